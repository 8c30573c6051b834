"""Patterns of topic names that members subscribe to: RE2, whole names, as in Kafka's brokers.

RE2 takes time linear in the text for any pattern, so a member cannot stall the node with one.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from gateway.errors import InvalidPattern

PATTERN_CHARS_MAX: Final = 4_096
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
    matches: Matches = compiled.fullmatch
    return matches
