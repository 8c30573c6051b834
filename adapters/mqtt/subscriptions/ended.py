"""Subscriptions that have ended: unsubscribed, or replaced, while their session was behind.

What one has matched until then still leaves, as it would have had it left at once: replacing a
subscription loses nothing (MQTT-3.8.4-4). It counts from its start to its end, the live end of
that moment, in each partition in which the session had not come so far; what is new never asks
it. It goes when the session has passed its ends.
"""

from collections.abc import Mapping
from typing import Final, Generic, TypeVar

from adapters.mqtt.subscriptions.filters import filter_bytes
from adapters.mqtt.subscriptions.subscription import Subscription

S = TypeVar("S")

ENDS_PER_ENDED: Final = 16  # partitions, on average; a session with more keeps fewer of them


class EndedSubscription(Generic[S]):
    """One that has ended. ``subscription`` says its options, but neither start nor end.

    ``starts`` and ``ends`` have the same partition ids: it counts for start <= offset < end, and
    nowhere else. ``number`` tells it from the others of its session; an older one has a lower.
    """

    __slots__ = ("ends", "number", "session", "starts", "subscription")

    def __init__(
        self,
        session: S,
        number: int,
        subscription: Subscription,
        *,
        starts: Mapping[int, int],
        ends: Mapping[int, int],
    ) -> None:
        self.session = session
        self.number = number
        self.subscription = subscription
        self.starts = starts
        self.ends = ends

    def is_passed(self, behind: Mapping[int, int]) -> bool:
        """Say whether who is ``behind`` at offsets, by partition id, has read all of it."""
        return all(
            behind.get(partition_id, end) >= end for partition_id, end in self.ends.items()
        )


class EndedSubscriptions(Generic[S]):
    """Ended subscriptions of one session, oldest first.

    ``kept``: the numbers that the session store has.
    """

    __slots__ = ("by_number", "end_count", "filter_bytes", "kept", "next_number")

    def __init__(self) -> None:
        self.by_number: dict[int, EndedSubscription[S]] = {}
        self.kept: set[int] = set()
        self.next_number = 1
        self.end_count = 0
        self.filter_bytes = 0

    def __len__(self) -> int:
        return len(self.by_number)

    def add(self, one: EndedSubscription[S]) -> None:
        """Add one; they come in the order of their numbers."""
        self.by_number[one.number] = one
        self.next_number = one.number + 1
        self.end_count += len(one.ends)
        self.filter_bytes += filter_bytes(one.subscription.topic_filter)

    def remove(self, one: EndedSubscription[S]) -> None:
        """Remove one; no harm when it has gone."""
        if self.by_number.pop(one.number, None) is not None:
            self.end_count -= len(one.ends)
            self.filter_bytes -= filter_bytes(one.subscription.topic_filter)

    def is_beyond(self, count_max: int, filter_bytes_max: int) -> bool:
        """Say whether these are more than so many, or take the room of more."""
        return (
            len(self.by_number) > count_max
            or self.end_count > ENDS_PER_ENDED * count_max
            or self.filter_bytes > filter_bytes_max
        )

    def changes(self) -> tuple[list[int], list[int]]:
        """Return the numbers of those that are not kept yet, and of those kept that have gone."""
        new = self.by_number.keys() - self.kept
        gone = self.kept - self.by_number.keys()
        return sorted(new), sorted(gone)
