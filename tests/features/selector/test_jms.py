"""Selectors of JMS, against a plain interpreter and by the sentences of the specification."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.selector.jms import compile_jms
from features.selector.like import compile_like
from features.selector.model import DEPTH_MAX, SELECTOR_CHARS_MAX, InvalidSelector, Scalar
from tests.features.selector import plain_jms


def truth(text: str, /, **properties: Scalar) -> Scalar:
    return compile_jms(text).evaluate(properties)


@settings(max_examples=200)
@given(tree=plain_jms.conditions, properties=plain_jms.properties)
def test_selectors_have_the_truth_of_the_plain_interpreter(
    tree: plain_jms.Tree, properties: dict[str, Any]
) -> None:
    text = plain_jms.text_of(tree)

    assert truth(text, **properties) is plain_jms.truth_of(tree, properties), text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("JMSType = 'car' AND color = 'blue' AND weight > 2500", True),
        ("age BETWEEN 15 AND 19", True),
        ("age NOT BETWEEN 15 AND 19", False),
        ("Country IN ('UK', 'US', 'France')", True),
        ("Country NOT IN ('UK', 'US', 'France')", False),
        ("Country IS NULL", False),
        ("gone IN ('UK')", None),
        ("gone NOT IN ('UK')", None),
        ("gone IS NULL", True),
        ("phone LIKE '12%3'", True),
        ("word LIKE 'l_se'", True),
        (r"underscored LIKE '\_%' ESCAPE '\'", True),
        ("phone NOT LIKE '12%3'", False),
        ("text > 1", False),  # a text is no number, whatever it says
        ("text = 2", False),
        ("text <> 2", False),
        ("weight = 3000.0", True),
        ("weight * 2 - 1 = 5999 AND weight / 7 = 428", True),
        ("-weight < -2999 AND +weight > 2999", True),
        ("2 + 3 * 4 = 14 AND (2 + 3) * 4 = 20 AND 7 - 3 - 2 = 2 AND 8 / 4 / 2 = 1", True),
        ("age = 0x10 + 1 AND age = 021 AND age = 17L AND age = 1.7E1 AND age = 17.", True),
        ("weight / 0 = 1 OR age = 17", True),
        ("weight / 0 = 1 OR age = 18", None),
        ("is_new AND NOT is_old", True),
        ("NOT is_new = FALSE", True),
        ("NOT NOT is_new", True),
        ("age", False),
        ("gone OR TRUE", True),
        ("gone AND FALSE", False),
        ("NOT gone", None),
        ("not Not nOT is_old Or aGe iS nULL", True),
        ("quote = 'it''s' -- a comment", True),
        ("/* so */ m.b.c = 5", True),
        ("9223372036854775807 + 1 = -9223372036854775808", True),
        ("AGE = 17", None),
    ],
)
def test_conditions_of_the_specification(text: str, expected: bool | None) -> None:  # noqa: FBT001
    properties: dict[str, Scalar] = {
        "JMSType": "car", "color": "blue", "weight": 3_000, "age": 17, "Country": "UK",
        "phone": "12993", "word": "lose", "underscored": "_foo", "text": "2", "is_new": True,
        "is_old": False, "quote": "it's", "m.b.c": 5,
    }  # fmt: skip
    selector = compile_jms(text)

    assert selector.evaluate(properties) is expected
    assert selector.matches(properties) is (expected is True)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0),
        ("a =", 3),
        ("a = 1 b", 6),
        ("a = 'open", 4),
        ("a = 1 AND 5", 10),
        ("'text'", 0),
        ("a > 'x'", 4),
        ("a < TRUE", 4),
        ("a BETWEEN 'a' AND 'b'", 10),
        ("1 = 'x'", 4),
        ("5 LIKE 'x'", 0),
        ("a IN ()", 6),
        ("a IN (1)", 6),
        ("a LIKE 5", 7),
        ("a LIKE 'x' ESCAPE 'xy'", 18),
        ("(a) + 'x' = 1", 6),
        ("a IS 5", 5),
        ("1 IS NULL", 0),
        ("a NOT 5", 6),
        ("(a = 1", 6),
        ("a = 1)", 5),
        ("a = 9223372036854775808", 4),
        ("a = 09", 4),
        ("a = " + "9" * 5_000, 4),
        ("a # b", 2),
        ("AND", 0),
    ],
)
def test_an_invalid_selector_says_where(text: str, position: int) -> None:
    with pytest.raises(InvalidSelector, match=f"at character {position + 1}$") as caught:
        compile_jms(text)

    assert caught.value.position == position


@given(text=st.text(st.sampled_from("ab1 .'()=<>-+,*/NOTANDISLKE\n%_")))
def test_any_text_is_compiled_or_refused(text: str) -> None:
    try:
        selector = compile_jms(text)
    except InvalidSelector:
        return
    assert selector.evaluate({"a": 1, "b": "x"}) in {True, False, None}


def test_depth_and_size_are_bounded() -> None:
    assert truth("(" * DEPTH_MAX + "a = 1" + ")" * DEPTH_MAX, a=1) is True
    with pytest.raises(InvalidSelector, match="levels"):
        compile_jms("(" * (DEPTH_MAX + 1) + "a = 1" + ")" * (DEPTH_MAX + 1))
    with pytest.raises(InvalidSelector, match="levels"):
        compile_jms("a = " + "- " * 8_000 + "b")
    assert truth(" OR ".join(["a = 2"] * 1_800), a=1) is False
    assert truth("a = " + "+".join(["1"] * 5_000), a=5_000) is True
    assert truth("NOT " * 4_001 + "a", a=True) is False
    with pytest.raises(InvalidSelector, match="16384"):
        compile_jms("a = '" + "x" * SELECTOR_CHARS_MAX + "'")


def test_a_selector_names_the_properties_that_it_needs() -> None:
    assert compile_jms("a = 1 OR JMSPriority > b AND c IS NULL").names == {
        "a", "b", "c", "JMSPriority",
    }  # fmt: skip


@given(
    pattern=st.text("ab%_e", max_size=8),
    text=st.text("ab%_e", max_size=10),
    escape=st.sampled_from(["", "e", "%", "_"]),
)
def test_like_matches_as_a_regular_expression_does(
    pattern: str, text: str, escape: str
) -> None:
    assert compile_like(pattern, escape)(text) is plain_jms.is_like(text, pattern, escape)


def test_a_pattern_with_many_wildcards_ends() -> None:
    matches = compile_like("%" + "_a%" * 100 + "b")

    assert not matches("a" * 5_000)
