"""Patterns of topic names that members subscribe to: RE2, whole names, as in Kafka's brokers.

RE2 takes time linear in the text for any pattern. It is linear in the pattern too, once for each
name: so the size of the compiled pattern is bounded, and how many a group has.
"""

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Final

from gateway.errors import InvalidPattern
from gateway.groups.consumer.model import NO_NAMES, TopicSource

PATTERN_CHARS_MAX: Final = 4_096
PROGRAM_SIZE_MAX: Final = 500
"""Instructions of a compiled pattern with a repetition: some 10 us a name; 60 are usual."""
GROUP_PATTERNS_MAX: Final = 32
"""Different patterns of the members of one group."""

_REPETITIONS: Final = frozenset("*+?{")
_MEMORY_BYTES_MAX: Final = 1 << 20

Matches = Callable[[str], object]


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> Matches:
    """Return a function that says whether a name matches as a whole. Error: ``InvalidPattern``.

    >>> bool(compile_pattern("orders-.*")("orders-eu"))
    True
    >>> bool(compile_pattern("orders")("orders-eu"))
    False
    """
    import re2

    if len(pattern) > PATTERN_CHARS_MAX:
        raise InvalidPattern(f"a pattern has at most {PATTERN_CHARS_MAX} characters")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_BYTES_MAX
    try:
        compiled = re2.compile(pattern, options=options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise InvalidPattern(
            f"SubscribedTopicRegex `{pattern[:200]}` is not a valid regular expression: {text}."
        ) from None
    # Without a repetition, as in a long list of names, a name is soon found not to match.
    if compiled.programsize > PROGRAM_SIZE_MAX and not _REPETITIONS.isdisjoint(pattern):
        raise InvalidPattern(f"SubscribedTopicRegex `{pattern[:200]}` is too complex.")
    matches: Matches = compiled.fullmatch
    return matches


class GroupPatterns:
    """Names that the patterns of a group match, looked up once until topics change."""

    def __init__(self) -> None:
        self._names: Mapping[str, frozenset[str]] = {}
        self._revision = -1

    def check(self, pattern: str) -> None:
        """Raise ``InvalidPattern`` for a bad pattern, or one too many for the group."""
        compile_pattern(pattern)
        if pattern not in self._names and len(self._names) >= GROUP_PATTERNS_MAX:
            raise InvalidPattern(f"a group has at most {GROUP_PATTERNS_MAX} patterns")

    def names_of(self, pattern: str) -> frozenset[str]:
        """Return the names that a pattern matched at the last ``refresh``."""
        return self._names.get(pattern, NO_NAMES)

    def refresh(
        self, patterns: Collection[str], topics: TopicSource, can_see: Callable[[str], bool]
    ) -> None:
        """Look up patterns that are new, or all of them if topics have changed."""
        known = self._names if self._revision == topics.revision else {}
        self._revision = topics.revision
        self._names = {
            pattern: known[pattern] if pattern in known else topics.match(pattern, can_see)
            for pattern in patterns
        }
