"""Subscriptions that have ended: unsubscribed, or replaced, while their session was behind.

What one has matched until then still leaves, as it would have had it left at once: replacing a
subscription loses nothing (MQTT-3.8.4-4). It counts from its start to its end, the live end of
that moment, in each partition in which the session had not come so far; what is new never asks
it. It goes when the session has passed its ends.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from adapters.mqtt.subscriptions.filters import filter_bytes
from adapters.mqtt.subscriptions.subscription import Subscription
from adapters.mqtt.subscriptions.trie import Match, MatchSet, SubscriptionTrie

if TYPE_CHECKING:  # sessions have ended subscriptions
    from adapters.mqtt.delivery.distributor import Follower, Subscriber, SubscriberMatch
    from adapters.mqtt.sessions.client_session import ClientSession

    AnyMatch: TypeAlias = "SubscriberMatch | MatchWithEnded[Subscriber]"
    Offer: TypeAlias = tuple[Follower, AnyMatch]

S = TypeVar("S")

ENDS_PER_ENDED: Final = 16  # partitions, on average; a session with more keeps fewer of them

_CACHED_MATCHES_MAX: Final = 100_000


class EndedSubscription:
    """One that has ended. ``subscription`` says its options, but neither start nor end.

    ``starts`` and ``ends`` have the same partition ids: it counts for start <= offset < end, and
    nowhere else. ``number`` tells it from the others of its session; an older one has a lower.
    """

    __slots__ = ("ends", "number", "session", "starts", "subscription")

    def __init__(
        self,
        session: "ClientSession",
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


class EndedSubscriptions:
    """Those of one session, oldest first. ``kept``: the numbers that the session store has."""

    __slots__ = ("by_number", "end_count", "filter_bytes", "kept", "next_number")

    def __init__(self) -> None:
        self.by_number: dict[int, EndedSubscription] = {}
        self.kept: set[int] = set()
        self.next_number = 1
        self.end_count = 0
        self.filter_bytes = 0

    def __len__(self) -> int:
        return len(self.by_number)

    def add(self, one: EndedSubscription) -> None:
        """Add one; they come in the order of their numbers."""
        self.by_number[one.number] = one
        self.next_number = one.number + 1
        self.end_count += len(one.ends)
        self.filter_bytes += filter_bytes(one.subscription.topic_filter)

    def remove(self, one: EndedSubscription) -> None:
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


class MatchWithEnded(Generic[S]):
    """What a subscriber's ended subscriptions matched, and ``living`` what the others did."""

    __slots__ = ("ended", "living", "subscriber")

    def __init__(
        self, subscriber: S, ended: Sequence[EndedSubscription], living: Match[S] | None
    ) -> None:
        self.subscriber = subscriber
        self.ended = sorted(ended, key=_number)
        self.living = living

    def at(self, partition_id: int, offset: int, stop: int) -> tuple[Match[S] | None, int]:
        """Return what of it counts at an offset, and up to where, ``stop`` at the most."""
        counted: list[Subscription] = []
        until = stop
        for one in self.ended:
            end = one.ends.get(partition_id, 0)
            if offset >= end:
                continue
            start = one.starts[partition_id]
            if offset < start:
                until = min(until, start)
            else:
                counted.append(one.subscription)
                until = min(until, end)
        living = self.living
        for subscription in () if living is None else living.subscriptions:
            if subscription.counts(partition_id, offset):
                counted.append(subscription)
            else:
                until = min(until, subscription.starts[partition_id])
        return (Match(self.subscriber, counted) if counted else None), until


class EndedIndex:
    """The ended subscriptions of those who are connected, found by topic. Empty, it is false."""

    def __init__(self) -> None:
        self._trie: SubscriptionTrie[EndedSubscription] = SubscriptionTrie(
            cached_matches_max=_CACHED_MATCHES_MAX
        )

    def __len__(self) -> int:
        return len(self._trie)

    def add(self, one: EndedSubscription) -> None:
        """Let one count."""
        self._trie.add(one.subscription, one)

    def remove(self, one: EndedSubscription) -> None:
        """Let one not count any more; no harm when it did not."""
        self._trie.remove(one.subscription.topic_filter, one)

    def leave_out(self, leaves_out: "Callable[[Subscriber, str], bool] | None") -> None:
        """See ``SubscriptionTrie.leave_out``; subscribers are the sessions."""
        if leaves_out is None:
            self._trie.leave_out(None)
        else:
            self._trie.leave_out(lambda one, topic: leaves_out(one.session, topic))

    def offers(
        self,
        by_follower: "Mapping[Subscriber, SubscriberMatch]",
        going: "Collection[Follower]",
        topic: bytes,
    ) -> "list[Offer]":
        """Return what those who are ``going`` want of a topic, with what ended ones matched."""
        by_session = _by_session(self._trie.match(topic))
        found = {one: by_session[one] for one in common(by_session, going)}
        offers: list[Offer] = []
        for follower in common(by_follower, going):
            match, ended = by_follower[follower], found.pop(follower, None)
            offers.append(
                (follower, match if ended is None else MatchWithEnded(follower, ended, match))
            )
        offers += [(one, MatchWithEnded(one, ended, None)) for one, ended in found.items()]
        return offers


def common(some: Collection[S], others: Collection[Any]) -> list[S]:
    """Return which of some are among others; both can be looked up in."""
    if len(others) < len(some):
        return [one for one in others if one in some]
    return [one for one in some if one in others]


def _by_session(
    matches: MatchSet[EndedSubscription],
) -> "dict[Subscriber, list[EndedSubscription]]":
    """Return what was matched by whose it is; worked out once for each topic."""
    if matches.plan is None:
        plan: dict[Subscriber, list[EndedSubscription]] = {}
        for match in matches.matches:
            plan.setdefault(match.subscriber.session, []).append(match.subscriber)
        matches.plan = plan
    assert isinstance(matches.plan, dict)
    return matches.plan


def _number(one: EndedSubscription) -> int:
    return one.number


def match_at(
    match: "AnyMatch",
    partition_id: int,
    offset: int,
    stop: int,
) -> "tuple[SubscriberMatch | None, int]":
    """Return what of a match was subscribed to at an offset already, and up to where."""
    if isinstance(match, MatchWithEnded):
        return match.at(partition_id, offset, stop)
    later = [one for one in match.subscriptions if not one.counts(partition_id, offset)]
    if not later:
        return match, stop
    until = min(stop, *(one.starts[partition_id] for one in later))
    counted = [one for one in match.subscriptions if one not in later]
    if not counted:
        return None, until
    return Match(match.subscriber, counted, order=match.order), until
