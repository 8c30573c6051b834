"""The ended subscriptions of connected clients, found by topic; see ``subscriptions.ended``."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

from adapters.mqtt.ports import Follower, SessionPort, Subscriber, SubscriberMatch
from adapters.mqtt.subscriptions.ended import EndedSubscription
from adapters.mqtt.subscriptions.subscription import Subscription
from adapters.mqtt.subscriptions.trie import Match, MatchSet, SubscriptionTrie

S = TypeVar("S")
Ended: TypeAlias = EndedSubscription[SessionPort]
AnyMatch: TypeAlias = "SubscriberMatch | MatchWithEnded[Subscriber]"
Offer: TypeAlias = tuple[Follower, AnyMatch]

_CACHED_MATCHES_MAX: Final = 100_000


class MatchWithEnded(Generic[S]):
    """Match of a subscriber's ended subscriptions, and ``living``, that of its others."""

    __slots__ = ("ended", "living", "subscriber")

    def __init__(self, subscriber: S, ended: Sequence[Ended], living: Match[S] | None) -> None:
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
        self._trie: SubscriptionTrie[Ended] = SubscriptionTrie(
            cached_matches_max=_CACHED_MATCHES_MAX
        )

    def __len__(self) -> int:
        return len(self._trie)

    def add(self, one: Ended) -> None:
        """Let one count."""
        self._trie.add(one.subscription, one)

    def remove(self, one: Ended) -> None:
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
    matches: MatchSet[Ended],
) -> "dict[Subscriber, list[Ended]]":
    """Return what was matched by whose it is; worked out once for each topic."""
    if matches.plan is None:
        plan: dict[Subscriber, list[Ended]] = {}
        for match in matches.matches:
            plan.setdefault(match.subscriber.session, []).append(match.subscriber)
        matches.plan = plan
    assert isinstance(matches.plan, dict)
    return matches.plan


def _number(one: Ended) -> int:
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
