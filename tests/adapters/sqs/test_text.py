"""Characters of SQS texts: those of XML 1.0."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.sqs.text import QUOTED_CHARS_MAX, has_only_text, quote, to_bytes, to_text

# As Amazon SQS documents it for MessageBody.
ALLOWED = re.compile("[\x09\x0a\x0d\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]*")


@given(st.text(st.characters(codec=None), max_size=20))
def test_text_is_what_the_documentation_allows(text: str) -> None:
    allowed = ALLOWED.fullmatch(text) is not None

    assert (to_bytes(text) is not None) == allowed


@given(st.binary(max_size=20))
def test_bytes_are_text_when_they_are_utf_8_of_it(data: bytes) -> None:
    text = to_text(data)

    try:
        decoded = data.decode()
    except UnicodeDecodeError:
        assert text is None
    else:
        assert text == (decoded if ALLOWED.fullmatch(decoded) else None)


@pytest.mark.parametrize("char", ["\x00", "\x08", "\x0b", "\x1f", "\ufffe", "\uffff"])
def test_character_at_the_edge_is_refused_wherever_it_stands(char: str) -> None:
    assert to_bytes(f"é{char}z") is None


@pytest.mark.parametrize("char", ["\t", "\n", "\r", " ", "\x7f", "\ud7ff", "\ue000", "\ufffd"])
def test_character_at_the_edge_is_taken(char: str) -> None:
    assert to_bytes(char) == char.encode()


def test_largest_text_is_looked_at_to_its_end() -> None:
    assert has_only_text(b"x" * 1_048_575 + b"\n")
    assert not has_only_text(b"x" * 1_048_575 + b"\x01")


@given(st.text(st.characters(codec=None), max_size=300))
def test_quoted_text_is_short_and_text(text: str) -> None:
    quoted = quote(text)

    assert len(quoted) == min(len(text), QUOTED_CHARS_MAX)
    assert to_bytes(quoted) is not None
