"""SQS requests as bytes, right ones and faulty ones: JSON, forms, query strings, bare HTTP."""

import json
import random
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote, urlencode

from tests.interop.sqs.programs.with_query import flattened

QUEUES: Final = ("fuzz-0", "fuzz-1", "fuzz.fifo")
ACCOUNT: Final = "000000000000"
CLOSE: Final = (
    b"GET /?Action=GetQueueUrl&QueueName=none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
)
_NUMBERS: Final = (-1, 0, 1, 11, 21, 2**31, -(2**63), 2**64, 10**400, 0.5, -0.0)
_TEXTS: Final = (
    "", " ", "x" * 300, "\u0000", "\ufffe", "\ud83d", "\U0001f600", "../../etc", "%00", "All",
    "arn:aws:sqs:us-east-1:000000000000:none", "http://[::1", '{"a":', "null", "9" * 5_000,
)  # fmt: skip
_EDGES: Final = (
    b"\x00",
    b"\r\n",
    b"\xff\xff",
    b"\xed\xa0\x80",
    b"%",
    b"&",
    b"{",
    b'"',
    b"1e999",
)
_PATHS: Final = ("/", "//", "/?", f"/{ACCOUNT}/fuzz-0", "/queue/us-east-1/x/y", "*", "/%ff%00")

Params = dict[str, Any]


def url_of(name: str) -> str:
    """Return a queue's URL; any host will do."""
    return f"http://localhost/{ACCOUNT}/{name}"


def valid_params(chooser: random.Random) -> tuple[str, Params]:
    """Return an action with parameters that are mostly right."""
    name = chooser.choice(QUEUES)
    url = url_of(name)
    arn = f"arn:aws:sqs:us-east-1:{ACCOUNT}:{name}"
    group = {"MessageGroupId": "g", "MessageDeduplicationId": f"{chooser.randrange(100)}"}
    more = group if name.endswith(".fifo") else {}
    found = {"a": {"DataType": "String", "StringValue": "x"}}
    handle = "AAAA" * 12
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 3})
    kind = {"FifoQueue": "true"} if more else {}
    actions: list[tuple[str, Params]] = [
        ("CreateQueue", {"QueueName": name, "Attributes": kind}),
        ("GetQueueUrl", {"QueueName": name}),
        ("ListQueues", {"QueueNamePrefix": "fuzz", "MaxResults": 2, "NextToken": "x"}),
        ("GetQueueAttributes", {"QueueUrl": url, "AttributeNames": ["All"]}),
        ("SetQueueAttributes", {"QueueUrl": url, "Attributes": {"DelaySeconds": "0"}}),
        ("SetQueueAttributes", {"QueueUrl": url, "Attributes": {"RedrivePolicy": policy}}),
        (
            "SendMessage",
            {"QueueUrl": url, "MessageBody": "b", "MessageAttributes": found, **more},
        ),
        (
            "SendMessageBatch",
            {"QueueUrl": url, "Entries": [{"Id": "a", "MessageBody": "b", **more}]},
        ),
        (
            "ReceiveMessage",
            {
                "QueueUrl": url,
                "MaxNumberOfMessages": 10,
                "VisibilityTimeout": 0,
                "MessageAttributeNames": ["a.*"],
                "AttributeNames": ["All"],
            },
        ),
        ("DeleteMessage", {"QueueUrl": url, "ReceiptHandle": handle}),
        (
            "DeleteMessageBatch",
            {"QueueUrl": url, "Entries": [{"Id": "a", "ReceiptHandle": handle}]},
        ),
        (
            "ChangeMessageVisibility",
            {"QueueUrl": url, "ReceiptHandle": handle, "VisibilityTimeout": 0},
        ),
        ("PurgeQueue", {"QueueUrl": url}),
        ("DeleteQueue", {"QueueUrl": url}),
        ("TagQueue", {"QueueUrl": url, "Tags": {"k": "v"}}),
        ("UntagQueue", {"QueueUrl": url, "TagKeys": ["k"]}),
        ("ListQueueTags", {"QueueUrl": url}),
        (
            "AddPermission",
            {"QueueUrl": url, "Label": "l", "AWSAccountIds": [ACCOUNT], "Actions": ["*"]},
        ),
        ("RemovePermission", {"QueueUrl": url, "Label": "l"}),
        ("ListDeadLetterSourceQueues", {"QueueUrl": url}),
        ("StartMessageMoveTask", {"SourceArn": arn}),
        ("ListMessageMoveTasks", {"SourceArn": arn}),
        ("CancelMessageMoveTask", {"TaskHandle": "eyJ0YXNrSWQiOiAiYSJ9"}),
    ]
    return chooser.choice(actions)


def json_request(action: str, body: bytes, path: str = "/") -> bytes:
    """Return a request of the JSON protocol."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.{action}\r\n"
        f"Content-Type: application/x-amz-json-1.0\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode("utf-8", "replace") + body


def query_request(action: str, params: Params, path: str = "/") -> bytes:
    """Return a request of the Query protocol, with a form."""
    fields = [("Action", action), ("Version", "2012-11-05"), *flattened(action, params)]
    body = urlencode(fields, quote_via=quote, errors="replace").encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\n\r\n"
    )
    return head.encode() + body


def valid_request(chooser: random.Random) -> bytes:
    """Return a request that is mostly in order."""
    action, params = valid_params(chooser)
    if chooser.randrange(2):
        return json_request(action, json.dumps(params).encode())
    return query_request(action, params)


def wrong_values(chooser: random.Random) -> bytes:
    """Return a request whose shape is right and whose values are not."""
    action, params = valid_params(chooser)
    if action == "CreateQueue" and chooser.randrange(20):
        return valid_request(chooser)  # many names would be many queues
    at = chooser.choice(sorted(params))
    params[at] = other_value(params[at], chooser)
    if chooser.randrange(2):
        text = json.dumps(params, ensure_ascii=chooser.randrange(2) == 0)
        return json_request(action, text.encode("utf-8", "surrogatepass"))
    try:
        return query_request(action, params)
    except (AttributeError, KeyError, TypeError, ValueError):
        return query_request(action, {})  # a form has no such shape


def other_value(value: Any, chooser: random.Random) -> Any:
    """Return another value, of the same shape or not."""
    kind = chooser.randrange(5)
    if kind == 0:
        return chooser.choice(_NUMBERS)
    if kind == 1:
        return chooser.choice(_TEXTS)
    if kind == 2:
        return chooser.choice([None, True, [], {}, [[]], {"": {}}, [None], {"a": None}])
    if isinstance(value, dict) and value:
        name = chooser.choice(sorted(value))
        other = chooser.choice([name, chooser.choice(_TEXTS)])
        return {**value, other: other_value(value[name], chooser)}
    if isinstance(value, list) and value:
        times = chooser.choice([1, 2, 11, 1_000])
        return [other_value(value[0], chooser), *value] * times
    return chooser.choice(_TEXTS)


def wrong_data(chooser: random.Random) -> bytes:
    """Return a request with a few bytes that are others, more or fewer."""
    data = bytearray(valid_request(chooser))
    for _ in range(chooser.randrange(1, 4)):
        at = chooser.randrange(len(data))
        kind = chooser.randrange(5)
        if kind == 0:
            data[at] ^= 1 << chooser.randrange(8)
        elif kind == 1:
            data[at:at] = chooser.choice(_EDGES)
        elif kind == 2:
            data[at:at] = chooser.randbytes(chooser.randrange(1, 16))
        elif kind == 3:
            del data[at : at + chooser.randrange(1, 8)]
        else:
            edge = chooser.choice(_EDGES)
            data[at : at + len(edge)] = edge
    return bytes(data)


def wrong_body(chooser: random.Random) -> bytes:
    """Return a request whose length is right and whose body is no JSON, or much of it."""
    action, params = valid_params(chooser)
    body = json.dumps(params).encode()
    depth = chooser.choice([10, 1_000, 100_000])
    bodies = [
        body[: chooser.randrange(len(body))],
        b"[" * depth,
        b'{"a":' * depth + b"1" + b"}" * depth,
        b"\xff\xfe" + body,
        b"null",
        b"[]",
        b'"text"',
        b"1",
        b"",
        body + body,
        chooser.randbytes(200),
        b'{"QueueUrl": NaN}',
        b'{"QueueUrl": "\\ud800"}',
        body.replace(b"}", b',"QueueUrl":1}', 1),
    ]
    path = chooser.choice(_PATHS)
    return json_request(
        chooser.choice([action, "", "Nothing", "__init__"]), chooser.choice(bodies), path
    )


def wrong_form(chooser: random.Random) -> bytes:
    """Return a form, or a query string, with names that fit nothing."""
    fields = [
        "Action=SendMessage", "Action=ReceiveMessage&", "Action=", "Action=SendMessageBatch",
        "MessageBody=%E2%98", "MessageBody=%zz", "QueueUrl=", "=&=&=", "&&&&", "%", "a" * 3_000,
        "SendMessageBatchRequestEntry.999999999999.Id=x",
        "MessageAttribute.1.Value.DataType=String",
        "SendMessageBatchRequestEntry.-1.Id=x", "MessageAttribute.1.Name.Name.Name=a",
        "AttributeName.1=All", "AttributeName=All", "AttributeName.x=All", "Version=1",
        "Attribute..Name=a", "MessageAttribute.1.Value.BinaryValue=%%%", "DelaySeconds=1e9",
        f"QueueUrl={url_of('fuzz-0')}", "X-Amz-Signature=x", "X-Amz-Algorithm=AWS4-HMAC-SHA256",
    ]  # fmt: skip
    form = "&".join(chooser.sample(fields, chooser.randrange(1, 8)))
    path = chooser.choice(_PATHS)
    if chooser.randrange(2):
        joint = "&" if "?" in path else "?"
        return f"GET {path}{joint}{form} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(form)}\r\n"
    return f"{head}Content-Type: application/x-www-form-urlencoded\r\n\r\n{form}".encode()


def wrong_http(chooser: random.Random) -> bytes:
    """Return what is hardly HTTP, or uses corners of it."""
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\n"
    target = b"X-Amz-Target: AmazonSQS.ListQueues\r\n"
    return chooser.choice(
        [
            head + target + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
            head + target + b"Content-Length: -1\r\n\r\n",
            head + target + b"Content-Length: 99999999999999999999\r\n\r\n",
            head + target + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            head + target + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
            head
            + target
            + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            head + target + b"Transfer-Encoding: gzip\r\n\r\n{}",
            head + target + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
            head + target + b"Expect: wonders\r\nContent-Length: 2\r\n\r\n{}",
            head
            + target
            + b"Upgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\n{}",
            head + b"X: " + b"x" * chooser.choice([10, 70_000]) + b"\r\n\r\n",
            head + b"".join(b"X-%d: y\r\n" % n for n in range(300)) + b"\r\n",
            head
            + b"Authorization: AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=, Signature=\r\n\r\n",
            head + b"Authorization: " + chooser.randbytes(40).replace(b"\n", b"") + b"\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"CONNECT localhost:1 HTTP/1.1\r\n\r\n",
            b"OPTIONS * HTTP/1.0\r\n\r\n",
            b"GET / HTTP/0.9\r\n\r\n",
            bytes.fromhex("16030100c8010000c40303"),
            chooser.randbytes(100),
        ]
    )


FAULTS: Final[tuple[Callable[[random.Random], bytes], ...]] = (
    wrong_values,
    wrong_data,
    wrong_body,
    wrong_form,
    wrong_http,
)


def thrown_at_once(chooser: random.Random, count: int) -> bytes:
    """Return what one faulty client says on a connection; its last word is to close it."""
    said = [
        valid_request(chooser) if chooser.randrange(4) == 0 else chooser.choice(FAULTS)(chooser)
        for _ in range(count - 1)
    ]
    return b"".join(said) + CLOSE
