"""Tags of RocketMQ."""

import pytest

from features.selector.model import InvalidSelector
from features.selector.tags import hash_code, parse_tags


def test_a_message_matches_by_its_tag() -> None:
    tags = parse_tags(" A||B  || C ")

    assert tags.tags == {"A", "B", "C"}
    assert [tags.matches(tag) for tag in ("A", "B", "C", "a", "A ", "", None)] == [
        True, True, True, False, False, False, False,
    ]  # fmt: skip
    assert tags.codes == {65, 66, 67}


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_every_message_matches_without_a_choice(expression: str | None) -> None:
    tags = parse_tags(expression)

    assert tags.is_all
    assert tags.matches(None)
    assert tags.matches("A")


def test_an_expression_without_a_tag_is_refused() -> None:
    with pytest.raises(InvalidSelector, match="no tag"):
        parse_tags(" || ")
    with pytest.raises(InvalidSelector, match="1001 tags"):
        parse_tags("||".join(map(str, range(1_001))))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99_162_322),
        ("polygenelubricants", -(2**31)),
        ("\U0001f600", 1_772_899),
    ],
)
def test_the_hash_code_is_that_of_java(text: str, code: int) -> None:
    assert hash_code(text) == code
