"""Tags: count and length."""

import pytest

from adapters.sqs.errors import INVALID_PARAMETER_VALUE, SqsError
from adapters.sqs.queues.tags import check_tag_keys, merge_tags


def test_tags_are_added_and_those_of_the_same_key_replaced() -> None:
    tags = {"team": "a", "Team": "b"}
    assert merge_tags("q", tags, {"team": "c", "new": ""}) == {
        "team": "c",
        "Team": "b",
        "new": "",
    }
    assert tags["team"] == "a"


def test_a_queue_has_at_most_50_tags() -> None:
    tags = {f"key-{index}": "" for index in range(50)}
    assert merge_tags("orders", tags, {"key-0": "x"})["key-0"] == "x"
    with pytest.raises(SqsError, match="Too many tags added for queue orders") as refused:
        merge_tags("orders", tags, {"one-more": ""})
    assert refused.value.code is INVALID_PARAMETER_VALUE


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("", "", "Tag keys must be between 1 and 128"),
        ("k" * 129, "", "Tag keys must be between 1 and 128"),
        ("\x00", "", "Tag keys must be between 1 and 128"),
        ("\ud800", "", "Tag keys must be between 1 and 128"),
        ("aws:x", "", "cannot start with aws:"),
        ("AWS:x", "", "cannot start with aws:"),
        ("k", "v" * 257, "Tag values must be between 0 and 256"),
        ("k", "\x01", "Tag values must be between 0 and 256"),
    ],
)
def test_keys_and_values_have_bounds(key: str, value: str, words: str) -> None:
    with pytest.raises(SqsError, match=words):
        merge_tags("q", {}, {key: value})


def test_the_longest_tag_is_taken() -> None:
    assert merge_tags("q", {}, {"é" * 128: "é" * 256})
    check_tag_keys(["k" * 128])
