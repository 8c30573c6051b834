"""Calls that the steps use: make a queue, send, receive until messages come, digests."""

import hashlib
import struct
import time
from collections.abc import Callable
from typing import Any, Final

from tests.interop.sqs.programs.client_api import Api, Params, Refused, Result

Step = Callable[[Api, str], Any]

COME_S_MAX: Final = 60.0


def made(api: Api, name: str, **attributes: str) -> str:
    """Make a queue; return its URL."""
    found = api.call("CreateQueue", QueueName=name, Attributes=attributes)
    return str(found["QueueUrl"])


def attribute(api: Api, url: str, name: str) -> str:
    """Return one attribute of a queue."""
    found = api.call("GetQueueAttributes", QueueUrl=url, AttributeNames=[name])
    return str(found["Attributes"][name])


def send(api: Api, url: str, body: str, **more: Any) -> Result:
    """Send a message."""
    return api.call("SendMessage", QueueUrl=url, MessageBody=body, **more)


def look(api: Api, url: str, **more: Any) -> list[Result]:
    """Receive once, by default without waiting; all attributes are asked for."""
    given = {
        "MaxNumberOfMessages": 10,
        "WaitTimeSeconds": 0,
        "AttributeNames": ["All"],
        "MessageAttributeNames": ["All"],
        **more,
    }
    found = api.call("ReceiveMessage", QueueUrl=url, **given)
    return list(found.get("Messages", []))


def take(api: Api, url: str, count: int = 1, **more: Any) -> list[Result]:
    """Receive until that many messages have come: a service may give fewer at a time."""
    given = {"WaitTimeSeconds": 2, **more}
    deadline = time.monotonic() + COME_S_MAX
    came: list[Result] = []
    while len(came) < count and time.monotonic() < deadline:
        came += look(api, url, MaxNumberOfMessages=min(10, count - len(came)), **given)
    assert len(came) == count, f"{len(came)} of {count} messages came to {url}"
    return came


def bodies(messages: list[Result]) -> list[str]:
    """Return what the messages say."""
    return [message["Body"] for message in messages]


def delete(api: Api, url: str, *messages: Result) -> None:
    """Delete messages."""
    for message in messages:
        api.call("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def counts(api: Api, url: str) -> list[int]:
    """Return how many messages are visible, in flight, delayed."""
    names = [
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesNotVisible",
        "ApproximateNumberOfMessagesDelayed",
    ]
    found = api.call("GetQueueAttributes", QueueUrl=url, AttributeNames=names)["Attributes"]
    return [int(found[name]) for name in names]


def refused(api: Api, action: str, **params: Any) -> str:
    """Return the code that a request is refused with."""
    try:
        api.call(action, **params)
    except Refused as error:
        return error.code.removeprefix("AWS.SimpleQueueService.")
    return "accepted"


def md5(body: str) -> str:
    """Return the digest that a body's answer must carry."""
    return hashlib.md5(body.encode(), usedforsecurity=False).hexdigest()


def attributes_md5(attributes: Params) -> str:
    """Return the digest of message attributes, as the developer guide describes it."""
    digest = hashlib.md5(usedforsecurity=False)
    for name in sorted(attributes):
        value = attributes[name]
        is_binary = value["DataType"].startswith("Binary")
        data = value["BinaryValue"] if is_binary else value["StringValue"].encode()
        for part in (name.encode(), value["DataType"].encode()):
            digest.update(struct.pack(">I", len(part)) + part)
        digest.update(bytes([2 if is_binary else 1]) + struct.pack(">I", len(data)) + data)
    return digest.hexdigest()


def arn_of(api: Api, url: str) -> str:
    """Return a queue's ARN."""
    return attribute(api, url, "QueueArn")


def with_dead_letters(api: Api, stem: str, attempts: int, suffix: str = "") -> tuple[str, str]:
    """Make a queue and where its dead letters go; return both URLs."""
    kind = {"FifoQueue": "true"} if suffix else {}
    dead = made(api, f"{stem}-dead{suffix}", **kind)
    policy = f'{{"deadLetterTargetArn":"{arn_of(api, dead)}","maxReceiveCount":"{attempts}"}}'
    url = made(api, f"{stem}{suffix}", RedrivePolicy=policy, **kind)
    return url, dead


def bury(api: Api, url: str, attempts: int, count: int = 1) -> None:
    """Receive all ``count`` messages until they are dead letters."""
    for _ in range(attempts):
        for message in take(api, url, count):
            api.call(
                "ChangeMessageVisibility",
                QueueUrl=url,
                ReceiptHandle=message["ReceiptHandle"],
                VisibilityTimeout=0,
            )
    assert look(api, url) == []
