"""A body with too many names and values is refused before it is decoded."""

import orjson
import pytest

from adapters.sqs.errors import MALFORMED_INPUT, SqsError
from adapters.sqs.http.body_limits import ELEMENTS_MAX, UNCHECKED_BYTES_MAX, check_elements

MIB = 1 << 20
BODIES = {
    "commas": "," * MIB,
    "quotation marks": '"' * MIB,
    "backslashes": "\\" * MIB,
    "both": '\\"' * (MIB // 2),
    "brackets": "[{" * (MIB // 2),
    "a document": orjson.dumps([{"a": [1, "b"]}] * 50_000).decode(),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_message_of_1_mib_of_any_character_is_let_pass(name: str) -> None:
    entries = [{"Id": "a", "MessageBody": BODIES[name]}, {"Id": "b", "MessageBody": "x\\"}]

    check_elements(orjson.dumps({"QueueUrl": "q", "Entries": entries}), ELEMENTS_MAX)


@pytest.mark.parametrize(
    "element",
    [b"1,", b"{},", b'"a",', b"[],", b'{"a":1},', b"[", b'{"a":', b'"\\"",', b'"\\\\",'],
)
def test_more_than_any_request_has_is_refused(element: bytes) -> None:
    size = max(ELEMENTS_MAX + 2, UNCHECKED_BYTES_MAX // len(element) + 1)
    body = b'{"a":[' + element * size

    with pytest.raises(SqsError) as caught:
        check_elements(body, ELEMENTS_MAX)

    assert caught.value.code is MALFORMED_INPUT


def test_what_is_small_is_not_looked_at() -> None:
    check_elements(b"[" * UNCHECKED_BYTES_MAX, ELEMENTS_MAX)


def test_as_many_as_are_allowed_pass_and_one_more_does_not() -> None:
    body = b"[" + b"12345678," * ELEMENTS_MAX

    check_elements(body[:-9], ELEMENTS_MAX)
    with pytest.raises(SqsError):
        check_elements(body, ELEMENTS_MAX)
