"""The names of topics that have a retained message, found by topic filter.

Names are UTF-8 bytes and sorted, levels are separated by ``/``. A filter is answered by a skip
scan: from a name that does not match to the least one above it that may, so that ``a/+/c``
looks at what lies below ``a`` only, and whole branches of other levels are jumped over. (Names
are kept once, and no tree of nodes: 8 bytes a topic instead of some hundred.)
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from sortedcontainers import SortedList

LOOKS_PER_CALL_MAX: Final = 256
"""Names that one call of ``match`` looks at: about 0.5 ms."""

_JUST_ABOVE: Final = b"\0"  # no topic name holds U+0000 (MQTT-1.5.4-2)
_BEHIND: Final = b"0"  # the byte after "/": behind all that lies below a level
_FIRST_SYSTEM: Final = b"$"
_BEHIND_SYSTEM: Final = b"%"


class RetainedTopics:
    """A sorted set of topic names. The caller bounds it."""

    def __init__(self, topics: Iterable[bytes] = ()) -> None:
        """Begin with ``topics``, each of which is named once."""
        self._topics: SortedList[bytes] = SortedList(topics)

    def __len__(self) -> int:
        return len(self._topics)

    def find(self, topic: bytes) -> bytes | None:
        """Return the equal name that is held, so that others can share that object."""
        return next(self._topics.irange(topic, topic), None)

    def add(self, topic: bytes) -> None:
        """Add a name that is not there."""
        self._topics.add(topic)

    def put(self, topic: bytes) -> None:
        """Add a name; one that is there already stays."""
        if self.find(topic) is None:
            self._topics.add(topic)

    def remove(self, topic: bytes) -> None:
        """Remove a name; one that is not there changes nothing."""
        self._topics.discard(topic)

    def after(self, topic: bytes, *, count_max: int) -> list[bytes]:
        """Return the next names in order, at most ``count_max``."""
        return list(islice(self._topics.irange(topic + _JUST_ABOVE), count_max))

    def match(
        self, topic_filter: str, *, after: bytes = b"", count_max: int
    ) -> tuple[list[bytes], bytes | None]:
        """Return names that match, in order, and where to go on; None when that is all.

        ``after`` is empty at first, then what the call before returned; names that come or go
        in between do no harm. At most ``count_max`` names are returned and
        ``LOOKS_PER_CALL_MAX`` looked at, so there may be none and yet more to come.
        ``topic_filter`` is a valid one; wildcards in its first level do not match ``$``
        (MQTT-4.7.2-1).
        """
        wanted = topic_filter.encode().split(b"/")
        if b"+" not in wanted and b"#" not in wanted:
            topic = self.find(b"/".join(wanted))
            return ([] if topic is None else [topic]), None
        found: list[bytes] = []
        last = after
        at: bytes | None = after + _JUST_ABOVE
        topics: Iterator[bytes] = self._topics.irange(at)
        for _ in range(LOOKS_PER_CALL_MAX):
            topic = next(topics, None)
            if topic is None or at is None:
                return found, None
            if topic < at:  # The next name was tried first: that is cheaper than to seek.
                topics = self._topics.irange(at)
                continue
            last = topic
            at = _where_next(topic, wanted)
            if at != topic:
                continue
            found.append(topic)
            if wanted[-1] == b"#":
                at = self._take_branch(topic, len(wanted) - 1, found, count_max)
                last = found[-1]
                topics = self._topics.irange(at or last)
            if len(found) >= count_max:
                break
        return found, last

    def _take_branch(
        self, topic: bytes, depth: int, found: list[bytes], count_max: int
    ) -> bytes | None:
        """Append what follows ``topic`` in the branch that ``#`` stands for; return its end.

        No name of it need be looked at: they lie together, and all of them match.
        """
        if depth == 0:
            end = _FIRST_SYSTEM if topic < _FIRST_SYSTEM else None
        else:
            levels = topic.split(b"/", depth)
            if len(levels) == depth:
                return topic + _JUST_ABOVE  # The branch's own name, which does not lie in it.
            end = b"/".join(levels[:depth]) + _BEHIND
        branch = self._topics.irange(topic, end, inclusive=(False, False))
        found.extend(islice(branch, count_max - len(found)))
        return end


def _where_next(topic: bytes, wanted: list[bytes]) -> bytes | None:
    """Return ``topic`` when it matches, else the least bytes above it from which one may.

    None: no name above it can match. ``wanted`` are the levels of a filter with a wildcard.
    """
    if topic.startswith(_FIRST_SYSTEM) and wanted[0] in {b"+", b"#"}:
        return _BEHIND_SYSTEM
    levels = topic.split(b"/")
    for depth, level in enumerate(wanted):
        if level == b"#":
            return topic
        if depth == len(levels):  # What is wanted lies below this name, or in a later level.
            return topic + (_JUST_ABOVE if wanted[depth - 1] == b"+" else b"/")
        if level not in {b"+", levels[depth]}:
            return _beyond(topic, levels, depth, wanted)
    if len(levels) == len(wanted):
        return topic
    return b"/".join(levels[: len(wanted)]) + _BEHIND


def _beyond(topic: bytes, levels: list[bytes], depth: int, wanted: list[bytes]) -> bytes | None:
    """Return where a match may be next when ``topic`` differs first in the level at ``depth``.

    That level is not a wildcard: the match is ahead in the same branch, or else in the next
    branch of the deepest ``+`` above.
    """
    ahead = b"/".join((*levels[:depth], wanted[depth]))
    if topic < ahead:
        return ahead
    if depth + 1 < len(wanted) and topic < ahead + b"/":
        return ahead + b"/"
    for plus_depth in range(depth - 1, -1, -1):
        if wanted[plus_depth] == b"+":
            return b"/".join(levels[: plus_depth + 1]) + _BEHIND
    return None
