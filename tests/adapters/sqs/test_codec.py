"""Decoding of requests; repeated bodies of receivers are decoded once."""

import pytest

from adapters.sqs import codec
from adapters.sqs.codec import TARGET, decode_params, find_operation
from adapters.sqs.errors import MISSING_PARAMETER, SqsError
from adapters.sqs.wire import Request

RECEIVE = b"AmazonSQS.ReceiveMessage"


def params_of(body: bytes, path: bytes = b"/", target: bytes = RECEIVE) -> dict[str, object]:
    request = Request(b"POST", path, b"", {TARGET: target}, body, is_last=False)
    operation, fields = find_operation(request, in_json=True)
    return decode_params(operation, request, fields)


def test_a_receive_of_the_same_bytes_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"QueueUrl":"read-once","MaxNumberOfMessages":7}'
    first = params_of(body)
    monkeypatch.setattr(codec, "decode_json", None)
    assert params_of(body) == first == {"QueueUrl": "read-once", "MaxNumberOfMessages": 7}


def test_what_stands_in_the_path_is_of_its_request_only() -> None:
    found = [params_of(b"{}", b"/000000000000/%b" % name) for name in (b"one", b"two")]
    assert [one["QueueUrl"] for one in found] == ["/000000000000/one", "/000000000000/two"]
    with pytest.raises(SqsError) as caught:
        params_of(b"{}")
    assert caught.value.code is MISSING_PARAMETER


def test_the_same_bytes_ask_for_another_thing_by_another_action() -> None:
    body = b'{"QueueUrl":"q","AttributeNames":["All"]}'
    assert params_of(body) == params_of(body, target=b"AmazonSQS.GetQueueAttributes")
    wrong = b'{"QueueUrl":"q","MaxNumberOfMessages":"x"}'
    assert "MaxNumberOfMessages" in params_of(wrong, target=b"AmazonSQS.GetQueueAttributes")
    for _ in range(2):
        with pytest.raises(SqsError):
            params_of(wrong)


def test_a_long_body_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"QueueUrl":"%b"}' % (b"x" * codec.CACHED_BODY_BYTES_MAX)
    params_of(body)
    monkeypatch.setattr(codec, "decode_json", lambda *_: {"QueueUrl": "read again"})
    assert params_of(body) == {"QueueUrl": "read again"}
