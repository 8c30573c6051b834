"""Patterns of topic names that members subscribe to: RE2, whole names, as in Kafka's brokers.

See ``gateway.regexes``; how many patterns a group has is bounded, too.
"""

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from gateway.errors import InvalidPattern
from gateway.groups.consumer.model import NO_NAMES, TopicSource
from gateway.regexes import InvalidRegex, TooComplexRegex, compile_regex

PATTERN_CHARS_MAX: Final = 4_096
INLINE_MATCHES_MAX: Final = 2_000
"""Matches of names by patterns that are made on the loop: 20 ms at worst."""

Matches = Callable[[str], object]


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> Matches:
    """Return a function that says whether a name matches as a whole. Error: ``InvalidPattern``.

    >>> bool(compile_pattern("orders-.*")("orders-eu"))
    True
    >>> bool(compile_pattern("orders")("orders-eu"))
    False
    """
    if len(pattern) > PATTERN_CHARS_MAX:
        raise InvalidPattern(f"a pattern has at most {PATTERN_CHARS_MAX} characters")
    try:
        return compile_regex(pattern).fullmatch
    except TooComplexRegex:
        raise InvalidPattern(
            f"SubscribedTopicRegex `{pattern[:200]}` is too complex."
        ) from None
    except InvalidRegex as error:
        raise InvalidPattern(
            f"SubscribedTopicRegex `{pattern[:200]}` is not a valid regular expression: {error}."
        ) from None


class PatternWork(NamedTuple):
    """Names to be matched by patterns of a group; ``names`` are all that there are."""

    tasks: list[tuple[str, frozenset[str]]]
    names: frozenset[str]

    @property
    def size(self) -> int:
        """Matches to be made: some 0.3 us each, 10 us at worst."""
        return sum(len(names) for _, names in self.tasks)

    def run(self) -> Mapping[str, frozenset[str]]:
        """Return the names that each pattern matches; in any thread."""
        return {
            pattern: frozenset(filter(compile_pattern(pattern), names))
            for pattern, names in self.tasks
        }


class GroupPatterns:
    """Names that the patterns of a group match. Each name is matched once by a pattern.

    Many matches, as of a new pattern in a namespace of thousands of topics, are left to a thread.
    Until they are made, a pattern matches what it did before, as in Kafka's brokers.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._matched: dict[str, frozenset[str]] = {}
        self._examined: dict[
            str, frozenset[str]
        ] = {}  # by pattern: the names it was matched to
        self._visible: Mapping[str, frozenset[str]] = {}
        self._is_matching = False
        self.work: PatternWork | None = None
        """Matches to be made in a thread, until ``take_work``."""

    def check(self, pattern: str) -> None:
        """Raise ``InvalidPattern`` for a bad pattern, or one too many for the group."""
        compile_pattern(pattern)
        if pattern not in self._visible and len(self._visible) >= self._count_max:
            raise InvalidPattern(f"a group has at most {self._count_max} patterns")

    def names_of(self, pattern: str) -> frozenset[str]:
        """Return the names that a pattern matched at the last ``refresh``."""
        return self._visible.get(pattern, NO_NAMES)

    def refresh(
        self, patterns: Collection[str], topics: TopicSource, can_see: Callable[[str], bool]
    ) -> None:
        """Match names that are new, of those that exist and that the asking member may see."""
        names = topics.names() if patterns else NO_NAMES
        self._matched = {one: self._matched.get(one, NO_NAMES) & names for one in patterns}
        self._examined = {one: self._examined.get(one, NO_NAMES) for one in patterns}
        work = self._work_for(names)
        if work.size <= INLINE_MATCHES_MAX:
            self._take(work, work.run())
        elif not self._is_matching:
            self.work = work
        found = NO_NAMES.union(*self._matched.values())
        seen = frozenset(filter(can_see, found))
        self._visible = {pattern: one & seen for pattern, one in self._matched.items()}

    def _work_for(self, names: frozenset[str]) -> PatternWork:
        new_of: dict[int, frozenset[str]] = {}  # patterns were mostly matched to the same names
        tasks = []
        for pattern, examined in self._examined.items():
            if examined is not names:
                new = new_of.get(id(examined))
                if new is None:
                    new = new_of[id(examined)] = names - examined
                tasks.append((pattern, new))
        return PatternWork(tasks, names)

    def take_work(self) -> PatternWork | None:
        """Return the matches to be made in a thread, once; ``install`` follows."""
        work, self.work = self.work, None
        self._is_matching |= work is not None
        return work

    def install(self, work: PatternWork, matched: Mapping[str, frozenset[str]] | None) -> None:
        """Take the results of ``take_work``; None when it failed."""
        self._is_matching = False
        if matched is not None:
            self._take(work, matched)

    def _take(self, work: PatternWork, matched: Mapping[str, frozenset[str]]) -> None:
        for pattern, names in matched.items():
            if pattern in self._matched:  # else no member has it any more
                self._matched[pattern] |= names
                self._examined[pattern] = work.names
