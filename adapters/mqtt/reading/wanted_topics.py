"""Topics that followers may want, asked once for each record of the log.

The trie of all subscriptions would say that of a million clients somebody wants most topics;
here are only those who are being served. Filters without a wildcard are one set, asked at the
speed of C; the others are a tree over topic levels.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from adapters.mqtt.ports import Follower
from adapters.mqtt.subscriptions.filters import has_wildcard
from gateway.storage import WantedKeys

KNOWN_TOPICS_MAX: Final = 65_536  # answers that are remembered where there are wildcards
KNOWN_TOPIC_BYTES_MAX: Final = 1_024  # longer names are looked at each time
FILTERS_ASKED_MAX: Final = 10_000  # of an index; who wants more reads

_PLUS: Final = b"+"  # no level of a topic name is one of these
_BELOW: Final = b"#"
_END: Final = b"/"

_Node: TypeAlias = dict[bytes, "_Node"]


class WantedTopics:
    """The filters of some followers. It only grows: make another one to forget.

    ``revision`` is how many followers came in so far. They are numbered as they come: those with
    a number below a revision were there when something was read at that revision.
    """

    def __init__(self) -> None:
        self.revision = 0
        self._numbers: dict[Follower, int] = {}
        self._filters: list[bytes] = []  # each once, in the order in which they came
        self._counts: list[int] = []  # of them, when each of the followers came in
        self._exact: set[bytes] = set()
        self._root: _Node = {}
        self._known = _Known(self._is_wanted)

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, follower: "Follower") -> int:
        """Count in what a follower wants of the log now; return its number.

        What it subscribes to later counts from the live end of now or a later one.
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
        """Forget a follower, though not its filters: it has gone, and is counted in anew."""
        self._numbers.pop(follower, None)

    @property
    def wants(self) -> Callable[[bytes], bool] | None:
        """Predicate for wanted topics, None when all are wanted. It follows ``add``."""
        if not self._root:
            return self._exact.__contains__
        return None if _BELOW in self._root else self._known.__getitem__

    def keys_since(self, revision: int) -> WantedKeys | None:
        """Return the topics that came to be wanted at or after a revision, to ask an index for.

        None when these are nearly all, or more than is worth asking for.
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
        """Say the same as ``_is_wanted``, in any thread: nothing is remembered."""
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
    """Answers that are remembered: one that is there costs no step of Python."""

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
