"""Values of RocketMQ's expressions: Java's numbers, and how it compares them with texts.

A property is a text. A text beside an integer of 32 bits must be one, too, beside a longer one it
may have 64 bits, beside a double it is read as one. Text that cannot be read, and the comparison of
a boolean on the left with a text, end the evaluation: ``CannotEvaluate``.
"""

import math
import re
import sys
from collections.abc import Callable
from typing import Final

from features.selector.lexer import Token
from features.selector.model import (
    CannotEvaluate,
    Evaluate,
    InvalidSelector,
    Properties,
    Scalar,
)

DOUBLE_MAX: Final = sys.float_info.max
DOUBLE_MIN: Final = 5e-324  # the least above 0, as Java has it; 0.0 is no literal

_INT_MAX: Final = (1 << 31) - 1
_LONG_MAX: Final = (1 << 63) - 1
_UNLIKE: Final = -1  # the order of values that cannot be compared
_INTEGER: Final = re.compile(r"[+-]?\d{1,40}")
_DOUBLE: Final = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)"
)
_HEX_DOUBLE: Final = re.compile(
    r"[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?"
)
_CONTROLS: Final = "".join(map(chr, range(0x21)))  # what Java's trim takes away


class _Long(int):
    """Integer of 64 bits, as a literal is that needs more than 32."""


Test = Callable[[int], bool]
"""Test of an order: negative, 0 or positive."""

ORDERS: Final[dict[str, Test]] = {
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}


def parse_literal(token: Token) -> int:
    """Return an integer literal. Error: ``InvalidSelector`` beyond 64 bits."""
    digits = token.text.rstrip("lL")
    value = int(digits) if len(digits) <= len(str(_LONG_MAX)) else _LONG_MAX + 1
    if value > _LONG_MAX:
        raise InvalidSelector(f"{token.shown} is no integer of 64 bits", token.position)
    return value if value <= _INT_MAX else _Long(value)


def is_number(value: Scalar) -> bool:
    """Say whether a value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def of_property(name: str) -> Evaluate:
    """Return a property's value; a value of bytes counts as missing."""

    def evaluate(properties: Properties) -> Scalar:
        value = properties.get(name)
        if isinstance(value, bytes):
            return None
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _INT_MAX:
            return _Long(value)
        return value

    return evaluate


def as_condition(operand: Evaluate) -> Evaluate:
    """Return a property as a condition: a text is false, a missing one unknown."""

    def evaluate(properties: Properties) -> Scalar:
        value = operand(properties)
        return None if value is None else value is True

    return evaluate


def negative(operand: Evaluate) -> Evaluate:
    """Return a number with its other sign; anything else becomes unknown."""

    def evaluate(properties: Properties) -> Scalar:
        value = operand(properties)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return _Long(-value) if isinstance(value, _Long) else -value

    return evaluate


def equal(left: Evaluate, right: Evaluate) -> Evaluate:
    """Return ``=``: unknown with only the left side missing, false with only the right."""

    def evaluate(properties: Properties) -> Scalar:
        first, second = left(properties), right(properties)
        if first is None:
            return True if second is None else None
        if second is None:
            return False
        return order(first, second) == 0

    return evaluate


def ordered(test: Test, left: Evaluate, right: Evaluate) -> Evaluate:
    """Return ``<`` or its kin; two texts are compared as doubles."""

    def evaluate(properties: Properties) -> Scalar:
        first = left(properties)
        if first is None:
            return None
        second = right(properties)
        if second is None:
            return None
        if isinstance(first, str) and isinstance(second, str):
            return test(_order_of(_to_double(first), _to_double(second)))
        return test(order(first, second))

    return evaluate


def of_text(operand: Evaluate, test: Callable[[str], bool], searched: str) -> Evaluate:
    """Return a test of a text: false for other values, missing ones, and an empty search."""

    def evaluate(properties: Properties) -> Scalar:
        if not searched:
            return False
        value = operand(properties)
        return isinstance(value, str) and test(value)

    return evaluate


def is_in(operand: Evaluate, choice: frozenset[str], *, negated: bool) -> Evaluate:
    """Return IN: unknown for anything but a text."""

    def evaluate(properties: Properties) -> Scalar:
        value = operand(properties)
        return (value in choice) ^ negated if isinstance(value, str) else None

    return evaluate


def order(left: Scalar, right: Scalar) -> int:
    """Compare two values, which are not missing. Error: ``CannotEvaluate``."""
    if isinstance(left, str):
        if isinstance(right, str):
            return _order_of(left, right)
        return _order_of(_read(left, right), right)
    if isinstance(right, str):
        if isinstance(left, bool):
            raise CannotEvaluate("a boolean on the left of a text")
        return _order_of(left, _read(right, left))
    if isinstance(left, bool) is not isinstance(right, bool):
        return _UNLIKE
    return _order_of(left, right)


def _read(text: str, beside: Scalar) -> Scalar:
    """Read a text as the kind of value that it is compared with."""
    if isinstance(beside, bool):
        return text.lower() == "true"
    if isinstance(beside, float):
        return _to_double(text)
    bound = _LONG_MAX if isinstance(beside, _Long) else _INT_MAX
    if _INTEGER.fullmatch(text) is None or not -bound - 1 <= (value := int(text)) <= bound:
        raise CannotEvaluate("a text that is no integer")
    return value


def _to_double(text: str) -> float:
    text = text.strip(_CONTROLS)
    if _DOUBLE.fullmatch(text) is not None:
        return float(text.rstrip("fFdD") if text[-1:] in "fFdD" else text)
    if _HEX_DOUBLE.fullmatch(text) is not None:
        return _hex_double(text.rstrip("fFdD"))
    raise CannotEvaluate("a text that is no number")


def _hex_double(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return -math.inf if text.startswith("-") else math.inf


def _order_of(left: Scalar, right: Scalar) -> int:
    """Compare values of one kind as Java does: NaN is above all, -0.0 below 0.0."""
    assert left is not None
    assert right is not None
    if isinstance(left, float) or isinstance(right, float):
        first, second = _double_key(left), _double_key(right)
        return (first > second) - (first < second)
    return (left > right) - (left < right)  # type: ignore[operator]  # both are of one kind


def _double_key(value: Scalar) -> tuple[bool, float, float]:
    number = float(value)  # type: ignore[arg-type]  # a number
    if math.isnan(number):
        return (True, 0.0, 0.0)
    return (False, number, math.copysign(1.0, number))
