"""SQS requests of as many parts as are taken, or more."""

import json
from typing import Any, Final

_TYPE: Final = "application/x-amz-json-1.0"
_FORM: Final = "application/x-www-form-urlencoded"
_BODY_BYTES: Final = 8_000_000


def _post(body: bytes, action: str, *, content: str = _TYPE, more: str = "") -> bytes:
    target = f"X-Amz-Target: AmazonSQS.{action}\r\n" if action else ""
    head = (
        f"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {content}\r\n{target}{more}"
        f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _json(action: str, **parameters: Any) -> bytes:
    return _post(json.dumps(parameters).encode(), action)


def create_queue() -> bytes:
    """Make the queue that the others use."""
    return _json("CreateQueue", QueueName="hostile")


def batch() -> bytes:
    """Send the largest batch: ten messages of 26,000 bytes with ten attributes each."""
    attributes = {f"a{n}": {"DataType": "String", "StringValue": "v"} for n in range(10)}
    entries = [
        {"Id": str(n), "MessageBody": "x" * 25_000, "MessageAttributes": attributes}
        for n in range(10)
    ]
    url = "http://127.0.0.1/000000000000/hostile"
    return _json("SendMessageBatch", QueueUrl=url, Entries=entries)


def deep() -> bytes:
    """Nest lists four million deep."""
    return _post(b"[" * (_BODY_BYTES // 2) + b"]" * (_BODY_BYTES // 2), "SendMessage")


def wide() -> bytes:
    """Return a JSON object of 800,000 keys."""
    keys = ",".join(f'"{n}":1' for n in range(_BODY_BYTES // 10))
    return _post(b"{" + keys.encode() + b"}", "SendMessage")


def entries() -> bytes:
    """Return a batch of 200,000 entries."""
    return _post(b'{"Entries":[' + b'{"Id":"1"},' * 200_000 + b"{}]}", "SendMessageBatch")


def numbers() -> bytes:
    """Return four million numbers in an unknown list."""
    return _post(b'{"more":[' + b"1," * (_BODY_BYTES // 2 - 10) + b"1]}", "SendMessage")


def quotes() -> bytes:
    """Send a message of four million quotation marks."""
    body = b'{"QueueUrl":"hostile","MessageBody":"' + b'\\"' * (_BODY_BYTES // 2 - 30) + b'"}'
    return _post(body, "SendMessage")


def escapes() -> bytes:
    """Send a message of 2,600,000 letters by a form that encodes each."""
    body = b"Action=SendMessage&QueueUrl=hostile&MessageBody=" + b"%41" * (
        _BODY_BYTES // 3 - 30
    )
    return _post(body, "", content=_FORM)


def fields() -> bytes:
    """Return the largest number of form parameters, each in eight parts."""
    body = "&".join(
        ["Action=SendMessageBatch", *(f"E.{n}.a.b.c.d.e.f=1" for n in range(4_000))]
    )
    return _post(body.encode(), "", content=_FORM)


def parameters() -> bytes:
    """Return 600,000 parameters in the form of a Query request."""
    body = "&".join(["Action=SendMessageBatch", *(f"E.{n}=1" for n in range(600_000))])
    return _post(body.encode(), "", content=_FORM)


def headers() -> bytes:
    """Return more headers than fit."""
    return _post(b"{}", "ListQueues", more="".join(f"h{n}: v\r\n" for n in range(8_000)))


CASES: Final = {
    "CreateQueue": create_queue,
    "SendMessageBatch, the largest": batch,
    "JSON, 4,000,000 levels": deep,
    "JSON, 800,000 keys": wide,
    "JSON, 200,000 entries": entries,
    "JSON, 4,000,000 numbers": numbers,
    "JSON, a message of 4,000,000 quotation marks": quotes,
    "Query, 600,000 parameters": parameters,
    "Query, 4,000 parameters of eight parts": fields,
    "Query, 2,600,000 percent signs": escapes,
    "8,000 headers": headers,
}
