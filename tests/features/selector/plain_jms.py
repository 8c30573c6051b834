"""JMS selectors as trees: their text, and their value by the definitions of the specification.

A tree is a tuple of a word and its operands. The value of each node is computed from the truth
tables and rules of section 3.8.1, one node at a time, without compiling anything.
"""

import re
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

Tree = tuple[Any, ...]
NAMES = ("a", "b", "c", "gone")

numbers = st.integers(-3, 3) | st.sampled_from([0.5, 1.0, -2.5, 2**62])
texts = st.text("a%_'b", max_size=4)
names = st.sampled_from(NAMES)


def arithmetic_of(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    operators = st.sampled_from(["+", "-", "*", "/"])
    return st.tuples(operators, inner, inner) | st.tuples(st.just("minus"), inner)


arithmetic = st.recursive(
    st.tuples(st.just("number"), numbers) | st.tuples(st.just("name"), names),
    arithmetic_of,
    max_leaves=4,
)
operands = st.tuples(st.just("text"), texts) | st.tuples(st.just("name"), names)
booleans = st.tuples(st.just("boolean"), st.booleans()) | st.tuples(st.just("name"), names)
comparisons = (
    st.tuples(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), arithmetic, arithmetic)
    | st.tuples(st.sampled_from(["=", "<>"]), operands, operands)
    | st.tuples(st.sampled_from(["=", "<>"]), booleans, booleans)
    | st.tuples(st.sampled_from(["between", "not between"]), arithmetic, arithmetic, arithmetic)
    | st.tuples(
        st.sampled_from(["in", "not in"]), names, st.lists(texts, min_size=1, max_size=3)
    )
    | st.tuples(
        st.sampled_from(["like", "not like"]), names, texts, st.sampled_from(["", "b", "%"])
    )
    | st.tuples(st.sampled_from(["is null", "is not null"]), names)
    | booleans
)
conditions = st.recursive(
    comparisons,
    lambda inner: (
        st.tuples(st.sampled_from(["and", "or"]), inner, inner)
        | st.tuples(st.just("not"), inner)
    ),
    max_leaves=6,
)
values = st.none() | st.booleans() | numbers | texts
properties = st.dictionaries(st.sampled_from(NAMES[:3]), values)


def text_of(tree: Tree) -> str:  # noqa: PLR0911 - a table of cases
    """Return a selector for a tree, with parentheses wherever they may be."""
    word, *parts = tree
    match word:
        case "number":
            return repr(parts[0])
        case "text":
            return quoted(parts[0])
        case "boolean":
            return str(parts[0])
        case "name":
            return str(parts[0])
        case "minus" | "not":
            return f"({'-' if word == 'minus' else 'not'} ({text_of(parts[0])}))"
        case "between" | "not between":
            left, low, high = map(text_of, parts)
            return f"({left} {word} {low} and {high})"
        case "in" | "not in":
            return f"{parts[0]} {word} ({', '.join(map(quoted, parts[1]))})"
        case "like" | "not like":
            escape = f" escape {quoted(parts[2])}" if parts[2] else ""
            return f"{parts[0]} {word} {quoted(parts[1])}{escape}"
        case "is null" | "is not null":
            return f"{parts[0]} {word}"
        case _:
            return f"({text_of(parts[0])} {word} {text_of(parts[1])})"


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def value_of(tree: Tree, given: Mapping[str, Any]) -> Any:
    """Return the value of an expression that is no condition."""
    word, *parts = tree
    match word:
        case "number" | "text" | "boolean":
            return parts[0]
        case "name":
            return given.get(parts[0])
        case "minus":
            value = value_of(parts[0], given)
            return in_64_bits(-value) if is_number(value) else None
        case "+" | "-" | "*" | "/":
            left, right = (value_of(part, given) for part in parts)
            if not (is_number(left) and is_number(right)):
                return None
            return in_64_bits(calculate(word, left, right))
        case _:
            return truth_of(tree, given)


def calculate(word: str, left: Any, right: Any) -> Any:
    if word == "/":
        if isinstance(left, int) and isinstance(right, int):
            return None if right == 0 else int_divided(left, right)
        if right == 0:
            sign = -1 if str(float(right)).startswith("-") else 1
            return float("nan") if left == 0 else float("inf") * (sign if left > 0 else -sign)
        return left / right
    return {"+": left + right, "-": left - right, "*": left * right}[word]


def int_divided(left: int, right: int) -> int:
    magnitude = abs(left) // abs(right)
    return magnitude if (left >= 0) == (right > 0) else -magnitude


def in_64_bits(value: Any) -> Any:
    if isinstance(value, int):
        return int.from_bytes((value & (2**64 - 1)).to_bytes(8, "big"), "big", signed=True)
    return value


def truth_of(tree: Tree, given: Mapping[str, Any]) -> bool | None:  # noqa: PLR0911 - a table of cases
    """Return the truth of a condition."""
    word, *parts = tree
    match word:
        case "and" | "or":
            both = {truth_of(part, given) for part in parts}
            decisive = word == "or"
            return decisive if decisive in both else None if None in both else not decisive
        case "not":
            inner = truth_of(parts[0], given)
            return None if inner is None else not inner
        case "name" | "boolean":
            value = value_of(tree, given)
            return None if value is None else value is True
        case "not between":
            left, low, high = parts
            return truth_of(("or", ("<", left, low), (">", left, high)), given)
        case "between":
            left, low, high = parts
            return truth_of(("and", (">=", left, low), ("<=", left, high)), given)
        case "is null":
            return given.get(parts[0]) is None
    if isinstance(word, str) and word.startswith(("not ", "is not ")):
        return truth_of(("not", (word.replace("not ", ""), *parts)), given)
    return compared(word, parts, given)


def compared(word: str, parts: list[Any], given: Mapping[str, Any]) -> bool | None:  # noqa: PLR0911 - a table of cases
    if word in {"in", "like"}:
        value = given.get(parts[0])
        if value is None:
            return None
        if not isinstance(value, str):
            return False
        return value in parts[1] if word == "in" else is_like(value, parts[1], parts[2])
    left, right = (value_of(part, given) for part in parts)
    if left is None or right is None:
        return None
    if is_number(left) != is_number(right) or (
        not is_number(left) and type(left) is not type(right)
    ):
        return False
    if word in {"=", "<>"}:
        return bool((left == right) is (word == "="))
    if not is_number(left):
        return False
    return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[
        word
    ]


def is_like(value: str, pattern: str, escape: str) -> bool:
    """Match by a regular expression; the patterns of tests are short."""
    found, index = "", 0
    while index < len(pattern):
        character = pattern[index]
        if character == escape:
            index += 1
            found += re.escape(pattern[index : index + 1] or character)
        else:
            found += {"%": ".*", "_": "."}.get(character, re.escape(character))
        index += 1
    return re.fullmatch(found, value, re.DOTALL) is not None
