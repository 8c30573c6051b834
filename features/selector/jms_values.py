"""Values of JMS selectors: comparisons and arithmetic, in which None is unknown."""

import math
from collections.abc import Callable, Sequence
from typing import Final, cast

from features.selector.model import Evaluate, Properties, Scalar

Number = int | float
Compare = Callable[[Scalar, Scalar], bool]
Operation = Callable[[Number, Number], Number | None]

_BITS: Final = 64


def is_number(value: Scalar) -> bool:
    """Say whether a value is a number; a boolean is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def are_alike(left: Scalar, right: Scalar) -> bool:
    """Say whether two values are of one kind."""
    if is_number(left):
        return is_number(right)
    return type(left) is type(right)


def equal(left: Scalar, right: Scalar) -> bool:
    """Say whether values of one kind are equal; false across kinds."""
    return are_alike(left, right) and left == right


def unequal(left: Scalar, right: Scalar) -> bool:
    """Say whether values of one kind differ; false across kinds."""
    return are_alike(left, right) and left != right


EQUALITY: Final[dict[str, Compare]] = {"=": equal, "<>": unequal}


def _order(compare: Callable[[Number, Number], bool]) -> Compare:
    def ordered(left: Scalar, right: Scalar) -> bool:
        if is_number(left) and is_number(right):
            return compare(cast("Number", left), cast("Number", right))
        return False

    return ordered


ORDERS: Final[dict[str, Compare]] = {
    "<": _order(lambda left, right: left < right),
    "<=": _order(lambda left, right: left <= right),
    ">": _order(lambda left, right: left > right),
    ">=": _order(lambda left, right: left >= right),
}


def compared(compare: Compare, left: Evaluate, right: Evaluate) -> Evaluate:
    """Return a comparison, unknown where one side is."""

    def evaluate(properties: Properties) -> Scalar:
        first, second = left(properties), right(properties)
        if first is None or second is None:
            return None
        return compare(first, second)

    return evaluate


def as_condition(operand: Evaluate) -> Evaluate:
    """Return a property as a condition: false unless it is a boolean, unknown if missing."""

    def evaluate(properties: Properties) -> Scalar:
        value = operand(properties)
        return None if value is None else value is True

    return evaluate


def is_null(operand: Evaluate) -> Evaluate:
    """Return the test whether a property is missing."""
    return lambda properties: operand(properties) is None


def of_text(operand: Evaluate, test: Callable[[str], bool]) -> Evaluate:
    """Return a test of a text: false for another kind of value, unknown if missing."""

    def evaluate(properties: Properties) -> Scalar:
        value = operand(properties)
        if value is None:
            return None
        return isinstance(value, str) and test(value)

    return evaluate


# --- arithmetic


def wrapped(number: int) -> int:
    """Return an integer within 64 bits, as Java's arithmetic has it.

    >>> wrapped(2**63) == -(2**63)
    True
    """
    half = 1 << (_BITS - 1)
    return (number + half) % (1 << _BITS) - half


def _divided(left: Number, right: Number) -> Number | None:
    if isinstance(left, int) and isinstance(right, int):
        if not right:
            return None
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    if right:
        return float(left) / float(right)
    if not left or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


OPERATIONS: Final[dict[str, Operation]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": _divided,
}


def arithmetic(head: Evaluate, steps: Sequence[tuple[Operation, Evaluate]]) -> Evaluate:
    """Return a chain of operations from left to right, unknown where a part is no number."""

    def evaluate(properties: Properties) -> Scalar:
        found = head(properties)
        for operation, operand in steps:
            value = operand(properties)
            if not (is_number(found) and is_number(value)):
                return None
            result = operation(cast("Number", found), cast("Number", value))
            found = wrapped(result) if isinstance(result, int) else result
        return found if is_number(found) else None

    return evaluate


def negative(operand: Evaluate) -> Evaluate:
    """Return a number with its other sign."""

    def evaluate(properties: Properties) -> Scalar:
        value = operand(properties)
        if isinstance(value, int) and not isinstance(value, bool):
            return wrapped(-value)
        return -value if isinstance(value, float) else None

    return evaluate


def positive(operand: Evaluate) -> Evaluate:
    """Return a number as it is, unknown where it is none."""

    def evaluate(properties: Properties) -> Scalar:
        value = operand(properties)
        return value if is_number(value) else None

    return evaluate
