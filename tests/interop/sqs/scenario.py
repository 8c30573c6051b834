"""Steps that every stock client does with the endpoint, and the results that it must see.

A step is a function of a client and a stem for names; it returns what was seen, in JSON's types.
Programs in other languages do the same steps and print what they saw as one JSON object.
Queues with groups are in ``scenario_fifo.py``; ``steps.py`` has them all, with what is expected.
"""

import time
from collections.abc import Iterator
from typing import Any, Final

from tests.interop.sqs.calls import (
    arn_of,
    attribute,
    attributes_md5,
    bodies,
    bury,
    counts,
    delete,
    look,
    made,
    md5,
    refused,
    send,
    take,
    with_dead_letters,
)
from tests.interop.sqs.programs.client_api import Api, Params, Result

LONG_POLL_S: Final = 20
AT_ONCE_S_MAX: Final = 5.0  # a busy machine is slow, but not as slow as who waits in full
MOVED_S_MAX: Final = 60.0
IN_TIME_S: Final = 6  # for what must be done before a delay or a lease is over
MIB: Final = 1 << 20
LARGE: Final = "".join(chr(0x20 + n % 0x5F) for n in range(MIB))
TRACE: Final = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
UNICODE: Final = "\t\n\r \u00e9\u2603\U0001f600 <&>\"' \ufffd \ue000 end"
ATTRIBUTES: Final[Params] = {
    "text": {"DataType": "String", "StringValue": "\u00e9\u2603 text"},
    "number": {"DataType": "Number", "StringValue": "-1.5e10"},
    "bytes": {"DataType": "Binary", "BinaryValue": bytes(range(256))},
    "custom.text": {"DataType": "String.uuid", "StringValue": "f81d4fae"},
    "custom.number": {"DataType": "Number.int", "StringValue": "7"},
    "custom.bytes": {"DataType": "Binary.png", "BinaryValue": b"\x89PNG"},
}


def standard(api: Api, stem: str) -> list[Any]:
    """Make, find, send, receive, delete."""
    url = made(api, stem)
    found = api.call("GetQueueUrl", QueueName=stem)["QueueUrl"]
    sent = send(api, url, UNICODE)
    [message] = take(api, url)
    seen = [found == url, message["Body"] == UNICODE, message["MessageId"] == sent["MessageId"]]
    seen += [sent["MD5OfMessageBody"] == message["MD5OfBody"] == md5(UNICODE)]
    delete(api, url, message)
    return [*seen, look(api, url), counts(api, url)]


def long_polling(api: Api, stem: str) -> list[bool]:
    """A waiting receive gets a message at once when it is sent; an empty one waits in full."""
    url = made(api, stem)
    latencies_s = []
    for _ in range(4):
        waiting = api.start("ReceiveMessage", QueueUrl=url, WaitTimeSeconds=LONG_POLL_S)
        for _ in range(5):  # some requests on, the receive is there and waits
            attribute(api, url, "QueueArn")
        began_s = time.monotonic()
        send(api, url, "wakes")
        [message] = waiting.result(LONG_POLL_S + 5)["Messages"]
        latencies_s.append(time.monotonic() - began_s)
        delete(api, url, message)
    began_s = time.monotonic()
    empty = look(api, url, WaitTimeSeconds=1)
    waited_s = time.monotonic() - began_s
    return [min(latencies_s) < AT_ONCE_S_MAX, empty == [], 0.9 < waited_s < LONG_POLL_S]


def visibility(api: Api, stem: str) -> list[Any]:
    """A message in flight is invisible, can be returned, and deleted by its new handle."""
    url = made(api, stem)
    send(api, url, "one")
    [first] = take(api, url, VisibilityTimeout=60)
    hidden = look(api, url)
    in_flight = counts(api, url)
    api.call(
        "ChangeMessageVisibility",
        QueueUrl=url,
        ReceiptHandle=first["ReceiptHandle"],
        VisibilityTimeout=0,
    )
    [again] = take(api, url, VisibilityTimeout=60)
    received = [int(one["Attributes"]["ApproximateReceiveCount"]) for one in (first, again)]
    is_new_handle = again["ReceiptHandle"] != first["ReceiptHandle"]
    delete(api, url, again)
    return [hidden, in_flight, received, is_new_handle, counts(api, url)]


def lease_end(api: Api, stem: str) -> list[Any]:
    """A message returns after its visibility timeout, not before, or after an extended one."""
    url = made(api, stem, VisibilityTimeout="1")
    send(api, url, "one")
    began_s = time.monotonic()
    take(api, url)
    [again] = take(api, url, WaitTimeSeconds=10, VisibilityTimeout=IN_TIME_S)
    waited_s = time.monotonic() - began_s
    api.call(
        "ChangeMessageVisibility",
        QueueUrl=url,
        ReceiptHandle=again["ReceiptHandle"],
        VisibilityTimeout=60,
    )
    return [waited_s > 0.9, look(api, url, WaitTimeSeconds=IN_TIME_S + 1)]


def delay(api: Api, stem: str) -> list[Any]:
    """A message is delayed by its own DelaySeconds or the queue's; 0 overrides the queue."""
    url = made(api, stem)
    slow = made(api, f"{stem}-slow", DelaySeconds=f"{IN_TIME_S}")
    send(api, url, "later", DelaySeconds=IN_TIME_S)
    seen: list[Any] = [look(api, url), counts(api, url)]
    send(api, slow, "by the queue")
    seen.append(look(api, slow))
    send(api, slow, "at once", DelaySeconds=0)
    return [*seen, bodies(take(api, slow, 2)), bodies(take(api, url))]


def dead_letters(api: Api, stem: str) -> list[Any]:
    """A message received too often becomes a dead letter with its id, attributes and source."""
    url, dead = with_dead_letters(api, stem, 2)
    sent = send(api, url, "dies", MessageAttributes=ATTRIBUTES)
    bury(api, url, 2)
    [letter] = take(api, dead)
    sources = api.call("ListDeadLetterSourceQueues", QueueUrl=dead)["queueUrls"]
    return [
        letter["Body"],
        letter["MessageId"] == sent["MessageId"],
        letter["MessageAttributes"] == ATTRIBUTES,
        letter["Attributes"].get("DeadLetterQueueSourceArn") == arn_of(api, url),
        sources == [url],
        counts(api, url),
    ]


def redrive(api: Api, stem: str) -> list[Any]:
    """A move task returns dead letters to their source, with a fresh count of receives."""
    url, dead = with_dead_letters(api, stem, 1)
    for n in range(3):
        send(api, url, f"{n}")
    bury(api, url, 1, count=3)
    deadline = time.monotonic() + MOVED_S_MAX
    while counts(api, dead) != [3, 0, 0]:  # they are on their way
        assert time.monotonic() < deadline, counts(api, dead)
    dead_arn = arn_of(api, dead)
    handle = api.call("StartMessageMoveTask", SourceArn=dead_arn)["TaskHandle"]
    task: Result = {}
    while task.get("Status") != "COMPLETED" and time.monotonic() < deadline:
        [task] = api.call("ListMessageMoveTasks", SourceArn=dead_arn)["Results"]
    back = take(api, url, 3)
    tries = {message["Attributes"]["ApproximateReceiveCount"] for message in back}
    seen = [
        task["Status"],
        task["ApproximateNumberOfMessagesMoved"],
        task["SourceArn"] == dead_arn,
    ]
    return [bool(handle), *seen, sorted(bodies(back)), sorted(tries), counts(api, dead)]


def batches(api: Api, stem: str) -> list[Any]:
    """Batches of ten; an error of one entry fails that entry alone."""
    url = made(api, stem)
    entries: list[Params] = [{"Id": f"e{n}", "MessageBody": f"{n}"} for n in range(8)]
    entries += [
        {"Id": "delayed", "MessageBody": "d", "DelaySeconds": 901},
        {"Id": "illegal", "MessageBody": "\ufffe"},
    ]
    sent = api.call("SendMessageBatch", QueueUrl=url, Entries=entries)
    came = take(api, url, 8)
    handles = [message["ReceiptHandle"] for message in came]
    changes = [
        {"Id": f"c{n}", "ReceiptHandle": handle, "VisibilityTimeout": 60}
        for n, handle in enumerate([*handles[:2], "forged"])
    ]
    changed = api.call("ChangeMessageVisibilityBatch", QueueUrl=url, Entries=changes)
    deletes = [
        {"Id": f"d{n}", "ReceiptHandle": handle}
        for n, handle in enumerate([*handles, "forged"])
    ]
    deleted = api.call("DeleteMessageBatch", QueueUrl=url, Entries=deletes)
    seen: list[Any] = [list(_outcome(answer)) for answer in (sent, changed, deleted)]
    return [*seen, sorted(bodies(came)), counts(api, url)]


def _outcome(answer: Result) -> Iterator[list[Any]]:
    yield sorted(entry["Id"] for entry in answer.get("Successful", []))
    yield sorted(
        [entry["Id"], entry["Code"], entry["SenderFault"]] for entry in answer.get("Failed", [])
    )


def message_attributes(api: Api, stem: str) -> list[Any]:
    """All types come back unchanged, with digests; attributes are filtered by name."""
    url = made(api, stem)
    sent = send(api, url, "x", MessageAttributes=ATTRIBUTES)
    give_back = {"VisibilityTimeout": 0}
    [every] = take(api, url, **give_back)
    [some] = take(api, url, MessageAttributeNames=["custom.*", "text"], **give_back)
    given = {"QueueUrl": url, "VisibilityTimeout": 0, "WaitTimeSeconds": 2}
    [bare] = api.call("ReceiveMessage", **given)["Messages"]
    right = attributes_md5(ATTRIBUTES)
    chosen = some["MessageAttributes"]
    return [
        sent["MD5OfMessageAttributes"] == right,
        every["MessageAttributes"] == ATTRIBUTES,
        every["MD5OfMessageAttributes"] == right,
        sorted(chosen),
        some["MD5OfMessageAttributes"] == attributes_md5(chosen),
        sorted(bare.keys()),
    ]


def system_attributes(api: Api, stem: str) -> list[Any]:
    """Sender, times, count of receives, and the trace header with its digest."""
    url = made(api, stem)
    header = {"AWSTraceHeader": {"DataType": "String", "StringValue": TRACE}}
    before_ms = time.time() * 1000 - 1
    sent = send(api, url, "x", MessageSystemAttributes=header)
    [message] = take(api, url, VisibilityTimeout=0)
    [again] = take(api, url, AttributeNames=["ApproximateReceiveCount"])
    found = message["Attributes"]
    sent_ms, first_ms = (
        float(found[name]) for name in ("SentTimestamp", "ApproximateFirstReceiveTimestamp")
    )
    return [
        sent["MD5OfMessageSystemAttributes"] == attributes_md5(header),
        found["AWSTraceHeader"] == TRACE,
        before_ms <= sent_ms <= first_ms <= time.time() * 1000 + 1,
        bool(found["SenderId"]),
        again["Attributes"],
    ]


def one_mebibyte(api: Api, stem: str) -> list[Any]:
    """The largest message, and the largest batch; a byte more is refused."""
    url = made(api, stem)
    send(api, url, LARGE)
    [message] = take(api, url)
    delete(api, url, message)
    half = MIB // 2
    entries = [{"Id": f"h{n}", "MessageBody": LARGE[:half]} for n in range(2)]
    both = api.call("SendMessageBatch", QueueUrl=url, Entries=entries)
    entries[1]["MessageBody"] += "+"
    return [
        message["Body"] == LARGE,
        len(both["Successful"]),
        refused(api, "SendMessage", QueueUrl=url, MessageBody=LARGE + "+"),
        refused(api, "SendMessageBatch", QueueUrl=url, Entries=entries),
    ]


def tags(api: Api, stem: str) -> list[Any]:
    """Tags are set at creation, added, replaced and removed."""
    url = api.call("CreateQueue", QueueName=stem, tags={"a": "1", "b": "2"})["QueueUrl"]
    seen = [api.call("ListQueueTags", QueueUrl=url)["Tags"]]
    api.call("TagQueue", QueueUrl=url, Tags={"b": "3", "c": "\u00e9"})
    seen.append(api.call("ListQueueTags", QueueUrl=url)["Tags"])
    api.call("UntagQueue", QueueUrl=url, TagKeys=["a", "c", "none"])
    return [*seen, api.call("ListQueueTags", QueueUrl=url).get("Tags", {})]


def purge(api: Api, stem: str) -> list[Any]:
    """A purge drops all messages, also delayed ones and those in flight; once per minute."""
    url = made(api, stem)
    for n in range(3):
        send(api, url, f"{n}")
    send(api, url, "later", DelaySeconds=900)
    take(api, url)
    api.call("PurgeQueue", QueueUrl=url)
    seen = [counts(api, url), refused(api, "PurgeQueue", QueueUrl=url)]
    send(api, url, "after")
    return [*seen, bodies(take(api, url))]


def settled_twice(api: Api, stem: str) -> list[Any]:
    """Deleting a message again is no error, whether it was deleted or purged."""
    url = made(api, stem)
    for n in range(2):
        send(api, url, f"{n}")
    first, second = take(api, url, 2)
    delete(api, url, first, first)
    api.call("PurgeQueue", QueueUrl=url)
    delete(api, url, first, second)
    return counts(api, url)


def queue_attributes(api: Api, stem: str) -> list[Any]:
    """Default, given and changed attributes; lists by prefix and by pages."""
    url = made(api, stem, VisibilityTimeout="7")
    for n in range(3):
        made(api, f"{stem}-{n}")
    names = [
        "DelaySeconds", "MaximumMessageSize", "MessageRetentionPeriod",
        "ReceiveMessageWaitTimeSeconds", "VisibilityTimeout",
    ]  # fmt: skip
    asked = {"QueueUrl": url, "AttributeNames": ["All"]}
    before = api.call("GetQueueAttributes", **asked)["Attributes"]
    api.call("SetQueueAttributes", QueueUrl=url, Attributes={"DelaySeconds": "9"})
    after = api.call("GetQueueAttributes", **asked)["Attributes"]
    page = api.call("ListQueues", QueueNamePrefix=stem, MaxResults=3)
    rest = api.call(
        "ListQueues", QueueNamePrefix=stem, MaxResults=3, NextToken=page["NextToken"]
    )
    every = sorted(url.rsplit("/", 1)[1] for url in page["QueueUrls"] + rest["QueueUrls"])
    return [
        [before[name] for name in names],
        [after[name] for name in names],
        [*before["QueueArn"].split(":")[:3], before["QueueArn"].rsplit(":", 1)[1] == stem],
        [len(page["QueueUrls"]), every == [stem, *(f"{stem}-{n}" for n in range(3))]],
        api.call("ListQueues", QueueNamePrefix=f"{stem}-none").get("QueueUrls", []),
    ]


def deleted_queue(api: Api, stem: str) -> list[str]:
    """A deleted queue is gone at once; its name is barred for a minute."""
    url = made(api, stem)
    api.call("DeleteQueue", QueueUrl=url)
    return [
        refused(api, "SendMessage", QueueUrl=url, MessageBody="x"),
        refused(api, "GetQueueUrl", QueueName=stem),
        refused(api, "CreateQueue", QueueName=stem),
    ]
