"""Compiled selectors, their bounds and their errors."""

from collections.abc import Callable, Mapping
from typing import Final

from gateway.errors import RequestError

SELECTOR_CHARS_MAX: Final = 16_384
DEPTH_MAX: Final = 32
"""Parentheses and signs within each other."""

Scalar = bool | int | float | str | bytes | None
Properties = Mapping[str, Scalar]
Evaluate = Callable[[Properties], Scalar]
"""Function that returns the value of an expression for the properties of a message."""


class InvalidSelector(RequestError):
    """Selector that cannot be compiled. ``position`` is an index in characters."""

    def __init__(self, message: str = "", position: int = 0) -> None:
        super().__init__(f"{message}, at character {position + 1}" if message else "")
        self.position = position


class CannotEvaluate(Exception):
    """Failure to evaluate an expression for one message: the message does not match."""


class Selector:
    """Compiled selector."""

    __slots__ = ("_evaluate", "names", "text")

    def __init__(self, text: str, names: frozenset[str], evaluate: Evaluate) -> None:
        self.text = text
        self.names = names
        """Names of the properties that it looks at."""
        self._evaluate = evaluate

    def matches(self, properties: Properties) -> bool:
        """Say whether the selector is true for a message; unknown is not true."""
        try:
            return self._evaluate(properties) is True
        except CannotEvaluate:
            return False

    def evaluate(self, properties: Properties) -> Scalar:
        """Return the selector's value: True, False or None. Error: ``CannotEvaluate``."""
        return self._evaluate(properties)

    def __repr__(self) -> str:
        return f"<Selector {self.text!r}>"


def check_size(text: str) -> None:
    """Refuse a selector that is too long. Error: ``InvalidSelector``."""
    if len(text) > SELECTOR_CHARS_MAX:
        msg = (
            f"the selector has {len(text)} characters, at most {SELECTOR_CHARS_MAX} are allowed"
        )
        raise InvalidSelector(msg, SELECTOR_CHARS_MAX)
