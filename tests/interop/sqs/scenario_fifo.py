"""Steps about message groups: FIFO queues, deduplication, fair queues."""

from typing import Any, Final

from tests.interop.sqs.calls import (
    arn_of,
    attribute,
    bodies,
    bury,
    counts,
    delete,
    look,
    made,
    refused,
    send,
    take,
    with_dead_letters,
)
from tests.interop.sqs.programs.client_api import Api, Result

NOISY: Final = 60  # messages of the tenant that floods a queue
QUIET: Final = 5


def fifo_made(api: Api, stem: str, **attributes: str) -> str:
    """Make a FIFO queue; return its URL."""
    return made(api, f"{stem}.fifo", FifoQueue="true", **attributes)


def put(api: Api, url: str, group: str, body: str, **more: Any) -> Result:
    """Send to a group; the body is its deduplication id where no other is given."""
    given = {"MessageDeduplicationId": f"{group}-{body}", **more}
    return send(api, url, body, MessageGroupId=group, **given)


def fifo(api: Api, stem: str) -> list[Any]:
    """Messages are in order within a group, which waits while one of them is in flight."""
    url = fifo_made(api, stem)
    numbers = [
        int(put(api, url, group, f"{n}")["SequenceNumber"])
        for n in range(3)
        for group in ("a", "b")
    ]
    first = look(api, url, MaxNumberOfMessages=1)
    others = take(api, url, 3)
    locked = look(api, url)
    delete(api, url, *first)
    # The rest of the first message's group is free now, that of the other is not.
    rest = take(api, url, 2)
    delete(api, url, *others, *rest)
    found = first[0]["Attributes"]
    return [
        numbers == sorted(set(numbers)),
        bodies(first),
        bodies(others),
        locked,
        bodies(rest),
        [found["MessageGroupId"], found["MessageDeduplicationId"]],
        int(found["SequenceNumber"]) == numbers[0],
        counts(api, url),
    ]


def group_lock(api: Api, stem: str) -> list[Any]:
    """A returned message is the first of its group again; no other overtakes it."""
    url = fifo_made(api, stem)
    for n in range(3):
        put(api, url, "g", f"{n}")
    [first] = look(api, url, MaxNumberOfMessages=1)
    api.call(
        "ChangeMessageVisibility",
        QueueUrl=url,
        ReceiptHandle=first["ReceiptHandle"],
        VisibilityTimeout=0,
    )
    came = []
    for _ in range(3):
        [message] = take(api, url, 1)
        came.append(message["Body"])
        delete(api, url, message)
    return came


def deduplication(api: Api, stem: str) -> list[Any]:
    """The same id within five minutes is one message, even after that was deleted."""
    url = fifo_made(api, stem)
    first = put(api, url, "g", "one", MessageDeduplicationId="same")
    second = put(api, url, "g", "two", MessageDeduplicationId="same")
    [message] = take(api, url)
    delete(api, url, message)
    third = put(api, url, "g", "three", MessageDeduplicationId="same")
    put(api, url, "g", "four", MessageDeduplicationId="other")
    ids = {sent["MessageId"] for sent in (first, second, third)}
    numbers = {sent["SequenceNumber"] for sent in (first, second, third)}
    return [message["Body"], len(ids), len(numbers), bodies(take(api, url))]


def content_deduplication(api: Api, stem: str) -> list[Any]:
    """The id is the body's SHA-256, unless one is given."""
    url = fifo_made(api, stem, ContentBasedDeduplication="true")
    for body, more in (
        ("x", {}), ("x", {}), ("y", {}), ("x", {"MessageDeduplicationId": "own"}),
    ):  # fmt: skip
        send(api, url, body, MessageGroupId="g", **more)
    return bodies(take(api, url, 3)) + look(api, url)


def group_scope(api: Api, stem: str) -> list[Any]:
    """With the scope messageGroup the same id in two groups is two messages."""
    url = fifo_made(
        api,
        stem,
        DeduplicationScope="messageGroup",
        FifoThroughputLimit="perMessageGroupId",
    )
    for group in ("a", "a", "b"):
        put(api, url, group, group, MessageDeduplicationId="same")
    return bodies(take(api, url, 2)) + look(api, url)


def receive_attempts(api: Api, stem: str) -> list[Any]:
    """A repeated attempt id gets the same messages, although they are in flight."""
    url = fifo_made(api, stem)
    for n in range(3):
        put(api, url, "g", f"{n}")
    given = {"ReceiveRequestAttemptId": f"{stem}-1", "MaxNumberOfMessages": 2}
    first = look(api, url, **given)
    again = look(api, url, **given)
    other = look(api, url, ReceiveRequestAttemptId=f"{stem}-2")
    same = [one["MessageId"] for one in first] == [one["MessageId"] for one in again]
    delete(api, url, *again)
    return [bodies(first), same, other, bodies(take(api, url))]


def fifo_dead_letters(api: Api, stem: str) -> list[Any]:
    """A dead letter frees its group; the next messages come in order."""
    url, dead = with_dead_letters(api, stem, 1, ".fifo")
    put(api, url, "g", "dies")
    bury(api, url, 1)
    put(api, url, "g", "lives")
    [letter] = take(api, dead)
    found = letter["Attributes"]
    return [
        letter["Body"],
        found["MessageGroupId"],
        found.get("DeadLetterQueueSourceArn") == arn_of(api, url),
        bodies(take(api, url)),
    ]


def fifo_refusals(api: Api, stem: str) -> list[str]:
    """A FIFO queue needs a group and an id, and refuses a delay of one message."""
    url = fifo_made(api, stem)
    group = {"MessageGroupId": "g"}
    own = {"MessageDeduplicationId": "d"}
    given: list[dict[str, Any]] = [own, group, {**group, **own, "DelaySeconds": 1}]
    sent = {"QueueUrl": url, "MessageBody": "x"}
    return [
        *(refused(api, "SendMessage", **sent, **more) for more in given),
        refused(api, "CreateQueue", QueueName=stem, Attributes={"FifoQueue": "true"}),
        attribute(api, url, "FifoQueue"),
        attribute(api, url, "ContentBasedDeduplication"),
    ]


def fair_queue(api: Api, stem: str) -> list[Any]:
    """A tenant with most messages in flight is served after the tenants behind it."""
    url = made(api, stem)
    for start in range(0, NOISY, 10):
        entries = [
            {"Id": f"e{n}", "MessageBody": f"noisy{n}", "MessageGroupId": "noisy"}
            for n in range(start, start + 10)
        ]
        api.call("SendMessageBatch", QueueUrl=url, Entries=entries)
    held = take(api, url, 40)  # of 30 on, and with more than a tenth, it is noisy
    for n in range(QUIET):
        send(api, url, f"quiet{n}", MessageGroupId=f"tenant{n % 2}")
    came = take(api, url, 10)
    groups = {message["Attributes"].get("MessageGroupId") for message in held}
    quiet = sorted(body for body in bodies(came)[:QUIET] if body.startswith("quiet"))
    return [sorted(map(str, groups)), quiet, len(came)]
