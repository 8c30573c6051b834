"""Expressions of RocketMQ: as its own filter evaluates them, and what else must hold."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.selector.model import (
    DEPTH_MAX,
    SELECTOR_CHARS_MAX,
    CannotEvaluate,
    InvalidSelector,
)
from features.selector.rocketmq import compile_rocketmq

VECTORS = json.loads((Path(__file__).parent / "rocketmq_vectors.json").read_text())
PROPERTIES = VECTORS["properties"]


def outcome(text: str) -> str:
    """Return a word for what compiling and evaluating an expression comes to."""
    try:
        selector = compile_rocketmq(text)
    except InvalidSelector:
        return "invalid"
    try:
        value = selector.evaluate(PROPERTIES)
    except CannotEvaluate:
        return "error"
    return {None: "null", True: "true", False: "false"}[value]  # type: ignore[index]


def test_expressions_are_evaluated_as_by_the_filter_of_rocketmq() -> None:
    found = [[text, outcome(text)] for text, _ in VECTORS["cases"]]

    assert len(found) > 500
    assert {expected for _, expected in VECTORS["cases"]} == {
        "true", "false", "null", "error", "invalid",
    }  # fmt: skip
    assert found == VECTORS["cases"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a > 5", "true"),
        ("a = '10'", "true"),
        ("a = 10.0", "true"),
        ("t = true", "true"),
        ("q is null", "true"),
        ("q = r", "true"),
        ("not q = 1", "null"),
        ("A > 5", "null"),
        ("t", "false"),
        ("b = 5", "error"),
        ("f > 1", "error"),
        ("b > 'a'", "invalid"),
        ("a in (10)", "invalid"),
        ("", "invalid"),
        ("b like 'x'", "false"),
        ("a + 1 > 5", "false"),
    ],
)
def test_the_odd_rules(text: str, expected: str) -> None:
    assert outcome(text) == expected


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("a > 'x'", 4),
        ("a = ", 4),
        ("a in ('x' 'y')", 10),
        ("a ? b", 2),
        ("(a = 1", 6),
        ("a is 5", 5),
    ],
)
def test_an_error_says_where(text: str, position: int) -> None:
    with pytest.raises(InvalidSelector, match=f"at character {position + 1}$") as caught:
        compile_rocketmq(text)

    assert caught.value.position == position


@given(text=st.text(st.sampled_from("ab1 .'()=<>-+,NOTANDIS\n/*")))
def test_any_text_is_compiled_or_refused(text: str) -> None:
    assert outcome(text) in {"true", "false", "null", "error", "invalid"}


def test_depth_and_size_are_bounded() -> None:
    assert outcome("(" * DEPTH_MAX + "a = 10" + ")" * DEPTH_MAX) == "true"
    assert outcome("(" * (DEPTH_MAX + 1) + "a = 10" + ")" * (DEPTH_MAX + 1)) == "invalid"
    assert outcome("NOT " * 10_000 + "a") == "invalid"
    long = " or ".join(["a = 11"] * 1_600)
    assert len(long) <= SELECTOR_CHARS_MAX
    assert outcome(long) == "false"
    assert outcome("a = '" + "x" * SELECTOR_CHARS_MAX + "'") == "invalid"


def test_a_selector_names_the_properties_that_it_needs() -> None:
    assert compile_rocketmq("TAGS = 'x' and not b or a in ('y')").names == {"TAGS", "a", "b"}
