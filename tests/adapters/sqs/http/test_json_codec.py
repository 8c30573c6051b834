"""AWS JSON 1.0: bodies are checked against the table, errors have the names SDKs look for."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.sqs.errors import (
    MALFORMED_INPUT,
    MISSING_PARAMETER,
    QUEUE_DOES_NOT_EXIST,
    SqsError,
)
from adapters.sqs.http.json_codec import decode_json, encode_error, encode_result
from adapters.sqs.http.operations import OPERATIONS

SEND = OPERATIONS["SendMessage"]
SEND_BATCH = OPERATIONS["SendMessageBatch"]


def refusal(body: object, action: str = "SendMessage") -> SqsError:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(SqsError) as caught:
        decode_json(OPERATIONS[action], data)
    return caught.value


def test_parameters_come_as_they_are() -> None:
    params = {
        "QueueUrl": "q",
        "MessageBody": "é\n",
        "DelaySeconds": 5,
        "MessageAttributes": {"a": {"DataType": "Binary", "BinaryValue": "AA=="}},
    }
    assert decode_json(SEND, json.dumps(params).encode()) == params


def test_no_body_is_no_parameters() -> None:
    assert decode_json(OPERATIONS["ListQueues"], b"") == {}


def test_null_is_as_if_it_were_not_there() -> None:
    assert decode_json(SEND, b'{"QueueUrl":"q","DelaySeconds":null}') == {"QueueUrl": "q"}


def test_members_that_nobody_knows_do_no_harm() -> None:
    assert decode_json(SEND, b'{"Later":[1]}') == {"Later": [1]}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"QueueUrl": 1}, "NUMBER_VALUE can not be converted to a String"),
        ({"QueueUrl": True}, "TRUE_VALUE can not be converted to a String"),
        ({"QueueUrl": False}, "FALSE_VALUE can not be converted to a String"),
        ({"DelaySeconds": "1"}, "STRING_VALUE can not be converted to an Integer"),
        ({"DelaySeconds": 1.5}, "DECIMAL_VALUE can not be converted to an Integer"),
        ({"DelaySeconds": True}, "TRUE_VALUE can not be converted to an Integer"),
        ({"MessageBody": {}}, "Start of structure or map found where not expected."),
        ({"MessageBody": []}, "Start of structure or map found where not expected."),
        ({"MessageAttributes": "a"}, "Expected map or null"),
        ({"MessageAttributes": {"a": 1}}, "Expected map or null"),
        ({"MessageAttributes": {"a": {"DataType": 1}}}, "NUMBER_VALUE can not be conv"),
        ({"MessageAttributes": {"a": None}}, "Expected map or null"),
        ([], "Unexpected value: the body is not an object"),
        (b"{", "the body is not JSON"),
        (b'"\\ud800"', "the body is not JSON"),
        (b"\xff", "the body is not JSON"),
        (b"[" * 5_000, "the body is not JSON"),
    ],
)
def test_a_wrong_type_is_a_serialization_error(body: object, message: str) -> None:
    error = refusal(body)
    assert error.code is MALFORMED_INPUT
    assert error.message.startswith(message)


def test_a_wrong_type_in_a_list_is_found() -> None:
    assert refusal({"Entries": "e"}, "SendMessageBatch").message == "Expected list or null"
    assert refusal({"Entries": [1]}, "SendMessageBatch").message == "Expected map or null"
    assert refusal({"AttributeNames": [1]}, "ReceiveMessage").code is MALFORMED_INPUT
    entries = [{"Id": "1", "MessageBody": "m"}, {"Id": "2", "MessageBody": 3}]
    error = refusal({"Entries": entries}, "SendMessageBatch")
    assert error.message == "NUMBER_VALUE can not be converted to a String"


def test_an_entry_without_a_required_member_is_named() -> None:
    entries = [{"Id": "1", "MessageBody": "m"}, {"Id": "2"}]
    error = refusal({"Entries": entries}, "SendMessageBatch")
    assert error.code is MISSING_PARAMETER
    assert "SendMessageBatchRequestEntry.2.MessageBody" in error.message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
MEMBERS = sorted(
    {name for operation in OPERATIONS.values() for name in operation.input.members}
)


@given(
    params=st.dictionaries(st.sampled_from(MEMBERS) | st.text(), JSON),
    action=st.sampled_from(sorted(OPERATIONS)),
)
def test_any_json_is_parameters_or_an_error(params: dict[str, Any], action: str) -> None:
    operation = OPERATIONS[action]
    try:
        decoded = decode_json(operation, json.dumps(params).encode())
    except SqsError:
        return
    for name, value in decoded.items():
        shape = operation.input.members.get(name)
        assert shape is None or type(value) is shape.type


@given(data=st.binary())
def test_any_bytes_are_parameters_or_an_error(data: bytes) -> None:
    try:
        assert isinstance(decode_json(SEND, data), dict)
    except SqsError as error:
        assert error.code is MALFORMED_INPUT  # noqa: PT017 - either is right


def test_an_empty_result_is_an_empty_object() -> None:
    assert encode_result({}) == b"{}"
    assert json.loads(encode_result({"a": "é"})) == {"a": "é"}


def test_an_error_names_its_shape() -> None:
    assert json.loads(encode_error(SqsError(QUEUE_DOES_NOT_EXIST, "gone"))) == {
        "__type": "com.amazonaws.sqs#QueueDoesNotExist",
        "message": "gone",
    }
    common = json.loads(encode_error(SqsError(MISSING_PARAMETER, "none")))
    assert common["__type"] == "com.amazon.coral.service#MissingRequiredParameterException"
