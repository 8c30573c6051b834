"""Receive attempts by ReceiveRequestAttemptId, so that a repetition gets the same messages.

An attempt holds delivery ids, not messages. It ends after five minutes, or when one of its messages
is deleted or has its visibility changed. Above the limit the oldest attempt is forgotten: its
repetition is then an ordinary receive, and its messages come after their visibility timeout.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from gateway.queues.model import DeliveryId

ATTEMPT_MS: Final = 300_000


class Attempt(NamedTuple):
    """The result of a receive: delivery ids, each with its first receive, and the time."""

    messages: tuple[tuple[DeliveryId, int], ...]
    received_unix_ms: int


_Key = tuple[UUID, str]
_Position = tuple[UUID, int, int]  # topic, partition number, offset


class ReceiveAttempts:
    """The attempts of all FIFO queues, at most ``attempts_max``. Pure."""

    def __init__(self, *, attempts_max: int) -> None:
        self._attempts_max = attempts_max
        self._attempts: dict[_Key, Attempt] = {}  # oldest first
        self._by_position: dict[_Position, _Key] = {}

    def __len__(self) -> int:
        return len(self._attempts)

    def remember(
        self,
        topic_uuid: UUID,
        attempt_id: str,
        messages: Sequence[tuple[DeliveryId, int]],
        now_unix_ms: int,
    ) -> None:
        """Remember the messages of a receive; an empty answer is not remembered."""
        key = (topic_uuid, attempt_id)
        self._forget(key)
        self._expire(now_unix_ms)
        if not messages:
            return
        if len(self._attempts) >= self._attempts_max:
            self._forget(next(iter(self._attempts)))
        self._attempts[key] = Attempt(tuple(messages), now_unix_ms)
        for delivery_id, _ in messages:
            self._by_position[topic_uuid, delivery_id.number, delivery_id.offset] = key

    def find(self, topic_uuid: UUID, attempt_id: str, now_unix_ms: int) -> Attempt | None:
        """Return the attempt of an id, unless it has ended."""
        self._expire(now_unix_ms)
        return self._attempts.get((topic_uuid, attempt_id))

    def message_changed(self, topic_uuid: UUID, delivery_id: DeliveryId) -> None:
        """End the attempt of a message that was deleted or had its visibility changed."""
        key = self._by_position.get((topic_uuid, delivery_id.number, delivery_id.offset))
        if key is not None:
            self._forget(key)

    def forget(self, topic_uuid: UUID, attempt_id: str) -> None:
        """End an attempt."""
        self._forget((topic_uuid, attempt_id))

    def topics(self) -> set[UUID]:
        """Return the topics of queues that have attempts."""
        return {key[0] for key in self._attempts}

    def forget_topic(self, topic_uuid: UUID) -> None:
        """End all attempts of a queue."""
        for key in [key for key in self._attempts if key[0] == topic_uuid]:
            self._forget(key)

    def _expire(self, now_unix_ms: int) -> None:
        """Forget attempts that have ended; the oldest are first."""
        before = now_unix_ms - ATTEMPT_MS
        while self._attempts:
            key = next(iter(self._attempts))
            if self._attempts[key].received_unix_ms > before:
                return
            self._forget(key)

    def _forget(self, key: _Key) -> None:
        attempt = self._attempts.pop(key, None)
        if attempt is None:
            return
        for delivery_id, _ in attempt.messages:
            place = (key[0], delivery_id.number, delivery_id.offset)
            if self._by_position.get(place) == key:
                del self._by_position[place]
