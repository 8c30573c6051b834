"""Subscriptions of all sessions, found by topic name.

Filters without a wildcard are in one dict, as most of a million are; those with one are in a
tree over topic levels (``filter_tree``). What a topic matched is remembered, so that a run of
publishes costs one lookup.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Final, Generic, TypeVar

from adapters.mqtt.subscriptions.filter_tree import FilterTree
from adapters.mqtt.subscriptions.filters import has_wildcard, matches
from adapters.mqtt.subscriptions.subscription import Subscription

S = TypeVar("S", bound=Hashable)

CACHED_MATCHES_MAX: Final = 1_000_000  # 8 to 16 bytes each, and about 250 for each topic
CACHED_TOPIC_BYTES_MAX: Final = 1_024  # names above it are walked each time
CACHED_TOPIC_COST: Final = 16  # a remembered topic counts as so many matches
_CHECKED_TOPICS_MAX: Final = 64  # more remembered topics are cheaper forgotten than checked


class Match(Generic[S]):
    """All of one subscriber's subscriptions that matched a topic, as one delivery.

    ``qos`` is the highest (MQTT-3.3.4-2), ``retain_as_published`` and ``no_local`` say whether
    any has it, ``identifiers`` are all of them (MQTT-3.3.4-3 to -5) in the order in which the
    client subscribed.
    """

    __slots__ = (
        "identifiers",
        "no_local",
        "order",
        "qos",
        "retain_as_published",
        "subscriber",
        "subscriptions",
    )

    def __init__(
        self, subscriber: S, subscriptions: Sequence[Subscription], *, order: int = 0
    ) -> None:
        self.subscriber = subscriber
        self.subscriptions = tuple(subscriptions)
        self.order = order  # the trie's revision when the (first) subscription came
        first = subscriptions[0]
        self.qos = first.qos
        self.retain_as_published = first.retain_as_published
        self.no_local = first.no_local
        self.identifiers: tuple[int, ...] = (first.identifier,) if first.identifier else ()
        if len(subscriptions) > 1:
            for one in subscriptions:
                self.qos = max(self.qos, one.qos)
                self.retain_as_published |= one.retain_as_published
                self.no_local |= one.no_local
            self.identifiers = tuple(one.identifier for one in subscriptions if one.identifier)

    def __repr__(self) -> str:
        return f"<Match {self.subscriber!r} qos={self.qos} ids={self.identifiers}>"

    def for_own(self) -> "Match[S] | None":
        """Return what is left for a message of the subscriber's own (No Local, 3.8.3.1)."""
        if not self.no_local:
            return self
        kept = [one for one in self.subscriptions if not one.no_local]
        return Match(self.subscriber, kept, order=self.order) if kept else None


class MatchSet(Generic[S]):
    """Matches of a topic. ``plan`` belongs to the sender, and goes with the set.

    ``cost`` is what remembering it costs, in subscriptions.
    """

    __slots__ = ("cost", "matches", "plan")

    def __init__(self, found: tuple[Match[S], ...], *, overlaps: int = 0) -> None:
        """``overlaps``: subscriptions that are one delivery with another."""
        self.matches = found
        self.cost = CACHED_TOPIC_COST + len(found) + overlaps
        self.plan: object | None = None


# The subscriptions of one filter; a dict only where there are several: it takes 230 bytes.
_Entry = Match[S] | dict[S, Match[S]]


class SubscriptionTrie(Generic[S]):
    """Subscriptions by filter, one for each pair of filter and subscriber.

    Filters are checked before they come here. Subscribers are told apart by ``==``; the members
    of a shared subscription come as one subscriber, their group. ``revision`` grows with each
    change. At most ``cached_matches_max`` matches are remembered, twice as many for a moment.
    """

    def __init__(self, *, cached_matches_max: int = CACHED_MATCHES_MAX) -> None:
        self.revision = 0
        self._leaves_out: Callable[[S, str], bool] | None = None
        self._suspended: set[S] = set()
        self._count = 0
        self._exact: dict[str, _Entry[S]] = {}
        self._tree: FilterTree[_Entry[S]] = FilterTree()
        # What was asked for lately, and what was before that: the second goes when the first is
        # full, so that topics in use stay without any order being kept.
        self._recent: dict[bytes, MatchSet[S]] = {}
        self._older: dict[bytes, MatchSet[S]] = {}
        self._recent_cost = 0
        self._recent_cost_max = cached_matches_max // 2

    def __len__(self) -> int:
        return self._count

    @property
    def cached_topics(self) -> int:
        """Number of topics whose matches are cached."""
        return len(self._recent) + len(self._older)

    def add(self, subscription: Subscription, subscriber: S) -> Subscription | None:
        """Add a subscription; return the one that it replaces (MQTT-3.8.4-3)."""
        self.revision += 1
        topic_filter = subscription.topic_filter
        match = Match(subscriber, (subscription,), order=self.revision)
        if not has_wildcard(topic_filter):
            entry, replaced = _put(self._exact.get(topic_filter), match)
            self._exact[topic_filter] = entry
            self._forget(topic_filter.encode())
        else:
            levels, is_below = _split(topic_filter)
            node = self._tree.reach(levels)
            if is_below:
                node.below, replaced = _put(node.below, match)
            else:
                node.here, replaced = _put(node.here, match)
            self._forget_matching(topic_filter)
        if replaced is None:
            self._count += 1
            return None
        return replaced.subscriptions[0]

    def remove(self, topic_filter: str, subscriber: S) -> Subscription | None:
        """Remove and return a subscriber's subscription, or return None when there is none."""
        if not has_wildcard(topic_filter):
            removed = self._remove_exact(topic_filter, subscriber)
        else:
            removed = self._remove_wildcard(topic_filter, subscriber)
        if removed is None:
            return None
        self.revision += 1
        self._count -= 1
        return removed.subscriptions[0]

    def match(self, topic: bytes) -> MatchSet[S]:
        """Return who wants a topic (checked UTF-8), each subscriber once."""
        found = self._recent.get(topic)
        return self._find(topic) if found is None else found

    def _find(self, topic: bytes) -> MatchSet[S]:
        found = self._older.pop(topic, None)
        if found is None:
            text = topic.decode()
            found = _merge(self._collect(text))
            if self._leaves_out is not None:
                found = _without(found, self._leaves_out, text)
            if self._suspended:
                found = _without(found, self._is_suspended, text)
            if len(topic) > CACHED_TOPIC_BYTES_MAX:
                return found
        self._recent[topic] = found
        self._recent_cost += found.cost
        if self._recent_cost > self._recent_cost_max:
            self._older, self._recent, self._recent_cost = self._recent, {}, 0
        return found

    def leave_out(self, leaves_out: Callable[[S, str], bool] | None) -> None:
        """Match no subscriber of whom ``leaves_out`` says so of a topic; forget all matches.

        It is asked once for what is remembered: call this again when its answers change.
        """
        self._leaves_out = leaves_out
        self._recent, self._older, self._recent_cost = {}, {}, 0

    def suspend(self, subscriber: S) -> None:
        """Match a subscriber no more, whatever it has subscribed to, until ``resume``."""
        self._suspended.add(subscriber)
        self.forget_matches()

    def forget_matches(self) -> None:
        """Forget what topics matched: cheaper before many are added than with each of them."""
        self._recent, self._older, self._recent_cost = {}, {}, 0

    def resume(self, subscriber: S) -> None:
        """Match a subscriber again: by filters that are added again, or were all removed."""
        self._suspended.discard(subscriber)

    def _is_suspended(self, subscriber: S, _topic: str) -> bool:
        return subscriber in self._suspended

    def _collect(self, topic: str) -> list[_Entry[S]]:
        """Return the entries of all filters that match."""
        exact = self._exact.get(topic)
        hits = [] if exact is None else [exact]
        self._tree.collect(topic, hits)
        return hits

    def _remove_exact(self, topic_filter: str, subscriber: S) -> Match[S] | None:
        entry, removed = _take(self._exact.get(topic_filter), subscriber)
        if removed is None:
            return None
        if entry is None:
            del self._exact[topic_filter]
        else:
            self._exact[topic_filter] = entry
        self._forget(topic_filter.encode())
        return removed

    def _remove_wildcard(self, topic_filter: str, subscriber: S) -> Match[S] | None:
        levels, is_below = _split(topic_filter)
        found = self._tree.find(levels)
        if found is None:
            return None
        node = found[0]
        if is_below:
            node.below, removed = _take(node.below, subscriber)
        else:
            node.here, removed = _take(node.here, subscriber)
        if removed is None:
            return None
        self._tree.tidy(*found)
        self._forget_matching(topic_filter)
        return removed

    def _forget(self, topic: bytes) -> None:
        found = self._recent.pop(topic, None)
        if found is not None:
            self._recent_cost -= found.cost
        self._older.pop(topic, None)

    def _forget_matching(self, topic_filter: str) -> None:
        if self.cached_topics > _CHECKED_TOPICS_MAX:
            self._recent, self._older, self._recent_cost = {}, {}, 0
            return
        for topic in [*self._recent, *self._older]:
            if matches(topic_filter, topic.decode()):
                self._forget(topic)


def _split(topic_filter: str) -> tuple[list[str], bool]:
    """Return the levels before a final ``#``, and whether there is one."""
    levels = topic_filter.split("/")
    is_below = levels[-1] == "#"
    if is_below:
        levels.pop()
    return levels, is_below


def _put(entry: _Entry[S] | None, match: Match[S]) -> tuple[_Entry[S], Match[S] | None]:
    """Return the entry with ``match`` in it, and the match that was in its place."""
    if entry is None:
        return match, None
    if isinstance(entry, dict):
        replaced = entry.get(match.subscriber)
        entry[match.subscriber] = match
        return entry, replaced
    if entry.subscriber == match.subscriber:
        return match, entry
    return {entry.subscriber: entry, match.subscriber: match}, None


def _take(entry: _Entry[S] | None, subscriber: S) -> tuple[_Entry[S] | None, Match[S] | None]:
    """Return the entry without the subscriber's match (None when empty), and that match."""
    if isinstance(entry, dict):
        removed = entry.pop(subscriber, None)
        if len(entry) == 1:
            return next(iter(entry.values())), removed
        return entry, removed
    if entry is None or entry.subscriber != subscriber:
        return entry, None
    return None, entry


def _each(entry: _Entry[S]) -> Iterable[Match[S]]:
    return entry.values() if isinstance(entry, dict) else (entry,)


def _without(
    found: MatchSet[S], leaves_out: Callable[[S, str], bool], topic: str
) -> MatchSet[S]:
    kept = tuple(match for match in found.matches if not leaves_out(match.subscriber, topic))
    return found if len(kept) == len(found.matches) else MatchSet(kept)


def _merge(hits: Sequence[_Entry[S]]) -> MatchSet[S]:
    """Return one match for each subscriber; those who matched once share the trie's own."""
    if len(hits) <= 1:
        return MatchSet(tuple(_each(hits[0])) if hits else ())
    merged: dict[S, Match[S]] = {}
    several: dict[S, list[Match[S]]] = {}
    for match in _all(hits):
        first = merged.setdefault(match.subscriber, match)
        if first is not match:
            several.setdefault(match.subscriber, [first]).append(match)
    overlaps = 0
    for subscriber, found in several.items():
        found.sort(key=lambda match: match.order)
        subscriptions = [match.subscriptions[0] for match in found]
        merged[subscriber] = Match(subscriber, subscriptions, order=found[0].order)
        overlaps += len(found)
    return MatchSet(tuple(merged.values()), overlaps=overlaps)


def _all(hits: Sequence[_Entry[S]]) -> Iterator[Match[S]]:
    for entry in hits:
        yield from _each(entry)
