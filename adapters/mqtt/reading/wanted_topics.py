"""Topics that followers may want, checked once for each record of the log.

Of a million clients, some want almost any topic; so the trie of all subscriptions is of no use
here. This holds the filters of the followers that are being served. Filters without a wildcard
are one set, checked at the speed of C; the others are a tree over topic levels.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from adapters.mqtt.ports import Follower
from adapters.mqtt.subscriptions.filters import has_wildcard
from gateway.storage import WantedKeys

KNOWN_TOPICS_MAX: Final = 65_536  # cached answers, when there are wildcards
KNOWN_TOPIC_BYTES_MAX: Final = 1_024  # longer names are not cached
FILTERS_ASKED_MAX: Final = 10_000  # in one question to an index; with more, the log is read

_PLUS: Final = b"+"  # no level of a topic name is one of these
_BELOW: Final = b"#"
_END: Final = b"/"

_Node: TypeAlias = dict[bytes, "_Node"]


class WantedTopics:
    """Filters of some followers. The set only grows; a new one replaces it.

    Followers are numbered as they come, and ``revision`` is the next number: what was read at a
    revision serves the followers with lower numbers.
    """

    def __init__(self) -> None:
        self.revision = 0
        self._numbers: dict[Follower, int] = {}
        self._filters: list[bytes] = []  # each once, in the order in which they came
        self._counts: list[int] = []  # of filters, when each follower came in
        self._exact: set[bytes] = set()
        self._root: _Node = {}
        self._known = _Known(self._is_wanted)

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, follower: "Follower") -> int:
        """Add the filters of a follower; return its number.

        Its later subscriptions begin at a live end, so they are not needed here.
        """
        number = self._numbers.setdefault(follower, self.revision)
        if number < self.revision:
            return number
        self._counts.append(len(self._filters))
        self.revision += 1
        for topic_filter in follower.wanted_filters():
            self._add_filter(topic_filter)
        return number

    def discard(self, follower: "Follower") -> None:
        """Forget a follower, but not its filters; it gets a new number when it is added again."""
        self._numbers.pop(follower, None)

    @property
    def wants(self) -> Callable[[bytes], bool] | None:
        """Predicate for wanted topics, None when all are wanted; later ``add`` calls change it."""
        if not self._root:
            return self._exact.__contains__
        return None if _BELOW in self._root else self._known.__getitem__

    def keys_since(self, revision: int) -> WantedKeys | None:
        """Return the filters added at or after a revision, as a question to an index.

        None when they match all topics, or are more than ``FILTERS_ASKED_MAX``.
        """
        if _BELOW in self._root:
            return None
        first = self._counts[revision] if revision < len(self._counts) else len(self._filters)
        if len(self._filters) - first > FILTERS_ASKED_MAX:
            return None
        exact: list[bytes] = []
        prefixes: list[bytes] = []
        for data in self._filters[first:]:
            at = _first_wildcard(data)
            if at < 0:
                exact.append(data)
            else:
                # What is before "/#" matches too.
                prefixes.append(data[:at].removesuffix(_END if data[at:] == _BELOW else b""))
        return WantedKeys(frozenset(exact), _shortest(prefixes), self._matches_key)

    def _matches_key(self, key: bytes) -> bool:
        """Return the same as ``_is_wanted``, from any thread: nothing is cached."""
        return key in self._exact or _matches(self._root, key)

    def _add_filter(self, topic_filter: str) -> None:
        data = topic_filter.encode()
        if not has_wildcard(topic_filter):
            if data not in self._exact:
                self._exact.add(data)
                self._filters.append(data)
                self._known.pop(data, None)
            return
        node = self._root
        levels = data.split(b"/")
        if levels[-1] != _BELOW:
            levels.append(_END)
        is_new = False
        for level in levels:
            is_new = level not in node
            node = node.setdefault(level, {})
        if is_new:
            self._known.clear()
            self._filters.append(data)

    def _is_wanted(self, topic: bytes) -> bool:
        return topic in self._exact or _matches(self._root, topic)


class _Known(dict[bytes, bool]):
    """Cached answers; a hit runs no Python code."""

    def __init__(self, find: Callable[[bytes], bool]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, topic: bytes) -> bool:
        found = self._find(topic)
        if len(topic) <= KNOWN_TOPIC_BYTES_MAX:
            if len(self) >= KNOWN_TOPICS_MAX:
                self.clear()
            self[topic] = found
        return found


def _matches(root: _Node, topic: bytes) -> bool:
    """Say whether a filter with a wildcard matches, as if ``$`` were a letter (4.7.2).

    Names that begin with it are not in the log, or are refused when they are decoded.
    """
    nodes = [root]
    for level in topic.split(b"/"):
        following: list[_Node] = []
        for node in nodes:
            if _BELOW in node:
                return True
            if (child := node.get(level)) is not None:
                following.append(child)
            if (child := node.get(_PLUS)) is not None:
                following.append(child)
        if not following:
            return False
        nodes = following
    return any(_END in node or _BELOW in node for node in nodes)


def _first_wildcard(topic_filter: bytes) -> int:
    """Return where the first wildcard is, -1 when there is none: it is a level of its own."""
    wildcards = [at for at in (topic_filter.find(_PLUS), topic_filter.find(_BELOW)) if at >= 0]
    return min(wildcards, default=-1)


def _shortest(prefixes: list[bytes]) -> tuple[bytes, ...]:
    """Return those that begin with no other."""
    kept: list[bytes] = []
    for prefix in sorted(prefixes):
        if not kept or not prefix.startswith(kept[-1]):
            kept.append(prefix)
    return tuple(kept)
