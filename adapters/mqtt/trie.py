"""Who wants a topic: the subscriptions of all, found by topic name.

Filters without a wildcard are in one dict, as most of a million are; those with one are in a
trie over topic levels, walked level by level (MQTT 5.0 section 4.7). What a topic matched is
remembered, so that a run of publishes costs one lookup.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final, Generic, TypeVar

from adapters.mqtt.filters import has_wildcard, matches
from adapters.mqtt.subscription import Subscription

S = TypeVar("S", bound=Hashable)

CACHED_MATCHES_MAX: Final = 1_000_000  # 8 octets each, and about 250 for each topic
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
        for one in self.subscriptions[1:]:
            self.qos = max(self.qos, one.qos)
            self.retain_as_published |= one.retain_as_published
            self.no_local |= one.no_local
            if one.identifier:
                self.identifiers = (*self.identifiers, one.identifier)

    def __repr__(self) -> str:
        return f"<Match {self.subscriber!r} qos={self.qos} ids={self.identifiers}>"

    def for_own(self) -> "Match[S] | None":
        """Return what is left for a message of the subscriber's own (No Local, 3.8.3.1)."""
        if not self.no_local:
            return self
        kept = [one for one in self.subscriptions if not one.no_local]
        return Match(self.subscriber, kept, order=self.order) if kept else None


class MatchSet(Generic[S]):
    """What a topic matched. ``plan`` belongs to whoever sends, and goes with the set."""

    __slots__ = ("matches", "plan")

    def __init__(self, found: tuple[Match[S], ...]) -> None:
        self.matches = found
        self.plan: object | None = None


class _Node(Generic[S]):
    """One level of the filters with wildcards.

    ``here`` holds those that end with this level, ``below`` those that end with ``/#`` after it.
    """

    __slots__ = ("below", "children", "here", "plus")

    def __init__(self) -> None:
        self.children: dict[str, _Node[S]] | None = None
        self.plus: _Node[S] | None = None
        self.here: _Entry[S] | None = None
        self.below: _Entry[S] | None = None

    def is_empty(self) -> bool:
        return (
            self.here is None
            and self.below is None
            and self.plus is None
            and self.children is None
        )

    def child(self, level: str) -> "_Node[S] | None":
        if level == "+":
            return self.plus
        return None if self.children is None else self.children.get(level)

    def make_child(self, level: str) -> "_Node[S]":
        child: _Node[S] = _Node()
        if level == "+":
            self.plus = child
        elif self.children is None:
            self.children = {level: child}
        else:
            self.children[level] = child
        return child

    def drop_child(self, level: str) -> None:
        if level == "+":
            self.plus = None
            return
        assert self.children is not None
        del self.children[level]
        if not self.children:
            self.children = None


# The subscriptions of one filter; a dict only where there are several: it takes 230 octets.
_Entry = Match[S] | dict[S, Match[S]]


class SubscriptionTrie(Generic[S]):
    """Subscriptions by filter, one for each pair of filter and subscriber.

    Filters are checked before they come here. Subscribers are told apart by ``==``; the members
    of a shared subscription come as one subscriber, their group. ``revision`` grows with each
    change. At most ``cached_matches_max`` matches are remembered, twice as many for a moment.
    """

    def __init__(self, *, cached_matches_max: int = CACHED_MATCHES_MAX) -> None:
        self.revision = 0
        self._count = 0
        self._exact: dict[str, _Entry[S]] = {}
        self._root: _Node[S] = _Node()
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
        """How many topics' matches are remembered."""
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
            node = self._reach(levels)
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
            found = MatchSet(_merge(self._collect(topic.decode())))
            if len(topic) > CACHED_TOPIC_BYTES_MAX:
                return found
        self._recent[topic] = found
        self._recent_cost += _cost(found)
        if self._recent_cost > self._recent_cost_max:
            self._older, self._recent, self._recent_cost = self._recent, {}, 0
        return found

    def _collect(self, topic: str) -> list[_Entry[S]]:
        """Return the entries of all filters that match; each node is seen once at most."""
        exact = self._exact.get(topic)
        hits = [] if exact is None else [exact]
        levels = topic.split("/")
        nodes = [self._root]
        if topic.startswith("$"):  # No wildcard stands for such a level (MQTT-4.7.2-1).
            first = self._root.child(levels.pop(0))
            nodes = [] if first is None else [first]
        for level in levels:
            following: list[_Node[S]] = []
            for node in nodes:
                if node.below is not None:
                    hits.append(node.below)
                if node.plus is not None:
                    following.append(node.plus)
                children = node.children
                if children is not None and (child := children.get(level)) is not None:
                    following.append(child)
            nodes = following
            if not nodes:
                return hits
        for node in nodes:
            hits += [entry for entry in (node.here, node.below) if entry is not None]
        return hits

    def _reach(self, levels: Sequence[str]) -> _Node[S]:
        node = self._root
        for level in levels:
            node = node.child(level) or node.make_child(level)
        return node

    def _path(self, levels: Sequence[str]) -> list[_Node[S]] | None:
        node = self._root
        path = [node]
        for level in levels:
            child = node.child(level)
            if child is None:
                return None
            node = child
            path.append(node)
        return path

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
        path = self._path(levels)
        if path is None:
            return None
        node = path[-1]
        if is_below:
            node.below, removed = _take(node.below, subscriber)
        else:
            node.here, removed = _take(node.here, subscriber)
        if removed is None:
            return None
        for index in range(len(levels) - 1, -1, -1):
            if not path[index + 1].is_empty():
                break
            path[index].drop_child(levels[index])
        self._forget_matching(topic_filter)
        return removed

    def _forget(self, topic: bytes) -> None:
        found = self._recent.pop(topic, None)
        if found is not None:
            self._recent_cost -= _cost(found)
        self._older.pop(topic, None)

    def _forget_matching(self, topic_filter: str) -> None:
        if self.cached_topics > _CHECKED_TOPICS_MAX:
            self._recent, self._older, self._recent_cost = {}, {}, 0
            return
        for topic in [*self._recent, *self._older]:
            if matches(topic_filter, topic.decode()):
                self._forget(topic)


def _cost(found: MatchSet[S]) -> int:
    return CACHED_TOPIC_COST + len(found.matches)


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


def _merge(hits: Sequence[_Entry[S]]) -> tuple[Match[S], ...]:
    """Return one match for each subscriber; those who matched once share the trie's own."""
    if len(hits) <= 1:
        return tuple(_each(hits[0])) if hits else ()
    merged: dict[S, Match[S]] = {}
    several: dict[S, list[Match[S]]] = {}
    for match in _all(hits):
        first = merged.setdefault(match.subscriber, match)
        if first is not match:
            several.setdefault(match.subscriber, [first]).append(match)
    for subscriber, found in several.items():
        found.sort(key=lambda match: match.order)
        subscriptions = [match.subscriptions[0] for match in found]
        merged[subscriber] = Match(subscriber, subscriptions, order=found[0].order)
    return tuple(merged.values())


def _all(hits: Sequence[_Entry[S]]) -> Iterator[Match[S]]:
    for entry in hits:
        yield from _each(entry)
