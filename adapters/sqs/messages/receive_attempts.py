"""ReceiveRequestAttemptId: what a receive was answered, so that a repetition gets it again.

Of each attempt the delivery ids are kept, not the messages. An attempt is over after five minutes,
and once one of its messages was deleted or had its visibility changed. Above the bound the oldest
is forgotten: its repetition is then a receive of its own, and the messages come when their
visibility timeout is over.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from gateway.queues.model import DeliveryId

ATTEMPT_MS: Final = 300_000


class Attempt(NamedTuple):
    """What was handed out: delivery ids with the time of the first receive, and when it was."""

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
        """Keep what a receive was answered; nothing is no answer to repeat."""
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
        """Return the attempt of that id unless it is over."""
        self._expire(now_unix_ms)
        return self._attempts.get((topic_uuid, attempt_id))

    def message_changed(self, topic_uuid: UUID, delivery_id: DeliveryId) -> None:
        """A message was deleted, or its visibility changed: its attempt is over."""
        key = self._by_position.get((topic_uuid, delivery_id.number, delivery_id.offset))
        if key is not None:
            self._forget(key)

    def forget(self, topic_uuid: UUID, attempt_id: str) -> None:
        """An attempt is over."""
        self._forget((topic_uuid, attempt_id))

    def forget_topic(self, topic_uuid: UUID) -> None:
        """All attempts of a queue are over."""
        for key in [key for key in self._attempts if key[0] == topic_uuid]:
            self._forget(key)

    def _expire(self, now_unix_ms: int) -> None:
        """Forget what is over; each attempt is looked at once more than it is kept."""
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
