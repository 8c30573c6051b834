"""SQS requests of as many parts as are taken, or more."""

import json
from typing import Any, Final

_TYPE: Final = "application/x-amz-json-1.0"
_FORM: Final = "application/x-www-form-urlencoded"
_BODY_BYTES: Final = 8_000_000


def _post(body: bytes, action: str, *, content: str = _TYPE, more: str = "") -> bytes:
    head = (
        f"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {content}\r\n"
        f"X-Amz-Target: AmazonSQS.{action}\r\n{more}"
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
    """Have 800,000 keys in an object."""
    keys = ",".join(f'"{n}":1' for n in range(_BODY_BYTES // 10))
    return _post(b"{" + keys.encode() + b"}", "SendMessage")


def entries() -> bytes:
    """Have 200,000 entries in a batch."""
    return _post(b'{"Entries":[' + b'{"Id":"1"},' * 200_000 + b"{}]}", "SendMessageBatch")


def parameters() -> bytes:
    """Have 600,000 parameters in the form of a Query request."""
    body = "&".join(["Action=SendMessageBatch", *(f"E.{n}=1" for n in range(600_000))])
    return _post(body.encode(), "", content=_FORM)


def headers() -> bytes:
    """Have as many headers as fit, and more."""
    return _post(b"{}", "ListQueues", more="".join(f"h{n}: v\r\n" for n in range(8_000)))


CASES: Final = {
    "CreateQueue": create_queue,
    "SendMessageBatch, the largest": batch,
    "JSON, 4,000,000 levels": deep,
    "JSON, 800,000 keys": wide,
    "JSON, 200,000 entries": entries,
    "Query, 600,000 parameters": parameters,
    "8,000 headers": headers,
}
