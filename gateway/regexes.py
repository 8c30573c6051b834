"""Regular expressions of users, by RE2.

RE2 takes time linear in the text for any expression. It is linear in the expression too, once for
each text: so the size of what is compiled is bounded.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, Protocol

REGEX_PROGRAM_SIZE_MAX: Final = 500
"""Instructions of a compiled expression with a repetition: some 10 us a text; 60 are usual."""

_REPETITIONS: Final = frozenset("*+?{")
_MEMORY_BYTES_MAX: Final = 1 << 20


class InvalidRegex(ValueError):
    """Text that is no regular expression of RE2, which has no look-around and no back-references.

    Its text says why.
    """


class TooComplexRegex(InvalidRegex):
    """Regular expression whose program is too large."""


class Regex(Protocol):
    """Compiled expression: RE2's object, as far as it is used."""

    @property
    def search(self) -> Callable[[str], object]:
        """The function that says whether the expression matches somewhere in a text."""
        ...

    @property
    def fullmatch(self) -> Callable[[str], object]:
        """The function that says whether the expression matches a text as a whole."""
        ...


@lru_cache(maxsize=4_096)
def compile_regex(pattern: str) -> Regex:
    """Return a compiled expression. Errors: ``InvalidRegex``, ``TooComplexRegex``.

    >>> bool(compile_regex("^a.c").search("abcd")), bool(compile_regex("^a.c").fullmatch("abcd"))
    (True, False)
    """
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_BYTES_MAX
    try:
        compiled = re2.compile(pattern, options=options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise InvalidRegex(text) from None
    # Without a repetition, as in a long list of names, a text is soon found not to match.
    if compiled.programsize > REGEX_PROGRAM_SIZE_MAX and not _REPETITIONS.isdisjoint(pattern):
        raise TooComplexRegex("it is too complex")
    found: Regex = compiled
    return found
