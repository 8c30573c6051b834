"""Batches of ten plain messages give the same answers and records as single messages."""

from typing import Any

import pytest

from gateway.errors import StorageFull
from gateway.queues.queue import Queue
from tests.adapters.sqs.handlers.messages import append, let_pass, receive
from tests.adapters.sqs.handlers.serving import Live

TEXTS = ["plain", '"', "\\", '","', "é", "\U0001f600", "\t\r\n", "x" * 300, "{}", "\x7f"]
BY_KEY = {"MessageId", "ReceiptHandle"}


class Seen:
    """Counts of contiguous receives and acknowledgements."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.allows = True
        self.rows = 0
        self.acked = 0
        receive_contiguous, ack_contiguous = Queue.receive_contiguous, Queue.ack_contiguous

        def receiving(queue: Queue, *args: Any, **how: Any) -> Any:
            row = receive_contiguous(queue, *args, **how) if self.allows else None
            self.rows += row is not None
            return row

        def acking(queue: Queue, *args: Any) -> bool:
            is_acked = ack_contiguous(queue, *args)
            self.acked += is_acked
            return is_acked

        patch.setattr(Queue, "receive_contiguous", receiving)
        patch.setattr(Queue, "ack_contiguous", acking)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    return Seen(monkeypatch)


async def send_all(live: Live, url: str) -> list[dict[str, Any]]:
    entries = [{"Id": str(n), "MessageBody": text} for n, text in enumerate(TEXTS)]
    answer = await live.call("send_message_batch", QueueUrl=url, Entries=entries)
    assert "Failed" not in answer
    return list(answer["Successful"])


async def delete_all(live: Live, url: str, messages: list[dict[str, Any]]) -> Any:
    entries = [
        {"Id": f"e-{n}", "ReceiptHandle": message["ReceiptHandle"]}
        for n, message in enumerate(messages)
    ]
    return await live.call("delete_message_batch", QueueUrl=url, Entries=entries)


def without(messages: list[dict[str, Any]], names: set[str]) -> list[dict[str, Any]]:
    return [{name: one[name] for name in one if name not in names} for one in messages]


@pytest.mark.parametrize("asked", ["AttributeNames", "MessageSystemAttributeNames"])
async def test_rows_have_the_attributes_that_are_asked_for(
    live: Live, seen: Seen, asked: str
) -> None:
    url = await live.queue("work")
    sent = await send_all(live, url)
    wanted: dict[str, Any] = {asked: ["All"], "MessageAttributeNames": ["All"]}

    row = await receive(live, url, VisibilityTimeout=0, **wanted)
    again = await receive(live, url, **wanted)

    assert (seen.rows, len(row), len(again)) == (1, 10, 10)
    assert [one["MessageId"] for one in row] == [one["MessageId"] for one in sent]
    assert row[0]["Attributes"].keys() == {
        *("SenderId", "SentTimestamp"),
        *("ApproximateReceiveCount", "ApproximateFirstReceiveTimestamp"),
    }
    for first, second in zip(row, again, strict=True):
        assert first["Attributes"]["ApproximateReceiveCount"] == "1"
        assert second["Attributes"]["ApproximateReceiveCount"] == "2"
        second["Attributes"]["ApproximateReceiveCount"] = "1"
    handle = {"ReceiptHandle"}
    assert without(row, handle) == without(again, handle)


@pytest.mark.parametrize("wanted", [{}, {"AttributeNames": ["All"]}])
async def test_what_a_send_has_said_is_what_is_in_the_log(
    live: Live, seen: Seen, wanted: dict[str, Any]
) -> None:
    url = await live.queue("work")
    entries = [{"Id": str(n), "MessageBody": f"text {n}"} for n in range(10)]
    sent = (await live.call("send_message_batch", QueueUrl=url, Entries=entries))["Successful"]

    said = await receive(live, url, VisibilityTimeout=0, **wanted)
    read = await receive(live, url, **wanted)

    assert (seen.rows, len(said), len(read)) == (1, 10, 10)
    assert [one["MD5OfBody"] for one in said] == [one["MD5OfMessageBody"] for one in sent]
    for message in read:
        if wanted:
            assert message["Attributes"].pop("ApproximateReceiveCount") == "2"
    for message in said:
        if wanted:
            assert message["Attributes"].pop("ApproximateReceiveCount") == "1"
    assert without(said, {"ReceiptHandle"}) == without(read, {"ReceiptHandle"})


@pytest.mark.parametrize("wanted", [{}, {"AttributeNames": ["All"]}])
async def test_bytes_are_rows_in_base64(live: Live, seen: Seen, wanted: dict[str, Any]) -> None:
    url = await live.queue()
    values = [b"\xff" * 9, b"text", b'"', b"\xff\x00\n"]
    for value in values:
        await append(live, value)
    seen.allows = False
    looked_at = await receive(live, url, 4, VisibilityTimeout=0, **wanted)
    for value in values:
        await append(live, value)
    await delete_all(live, url, await receive(live, url, 4))
    seen.allows = True

    rows = await receive(live, url, 4, **wanted)

    assert seen.rows == 1
    for message in (*looked_at, *rows):
        for name in ("SentTimestamp", "ApproximateFirstReceiveTimestamp"):
            message.get("Attributes", {}).pop(name, None)
    assert without(rows, BY_KEY) == without(looked_at, BY_KEY)
    assert [sorted(one) for one in rows] == [sorted(one) for one in looked_at]
    assert "MD5OfMessageAttributes" in rows[0]
    assert "Failed" not in await delete_all(live, url, rows)


async def test_rows_have_no_attributes_where_nobody_asks_for_them(
    live: Live, seen: Seen
) -> None:
    url = await live.queue()
    color = {"color": {"DataType": "String", "StringValue": "red"}}
    entries = [
        {"Id": str(n), "MessageBody": f"b{n}", "MessageAttributes": color} for n in range(3)
    ]
    await live.call("send_message_batch", QueueUrl=url, Entries=entries)
    rows = await receive(live, url, 3)
    assert seen.rows == 1
    assert [one["Body"] for one in rows] == ["b0", "b1", "b2"]
    assert all(
        one.keys() == {"MessageId", "MD5OfBody", "Body", "ReceiptHandle"} for one in rows
    )
    await live.call("send_message_batch", QueueUrl=url, Entries=entries)
    for wanted in ({"MessageAttributeNames": ["color"]}, {"AttributeNames": ["SenderId"]}):
        for number in range(2):
            [one] = await receive(live, url, 1, VisibilityTimeout=number, **wanted)
            assert ("MessageAttributes" in one) == ("MessageAttributeNames" in wanted)
    assert seen.rows == 1


async def test_rows_with_more_to_say_are_looked_at(live: Live, seen: Seen) -> None:
    url = await live.queue("work")
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}}
    entries = [
        {"Id": str(n), "MessageBody": "b", "MessageSystemAttributes": trace} for n in range(10)
    ]
    await live.call("send_message_batch", QueueUrl=url, Entries=entries)
    some = await receive(live, url, AttributeNames=["All"])
    assert [one["Attributes"]["AWSTraceHeader"] for one in some] == ["Root=1"] * 10
    assert seen.rows == 0


async def test_rows_are_received_and_deleted_as_other_messages_are(
    live: Live, seen: Seen
) -> None:
    plain, looked_at = await live.queue("plain"), await live.queue("looked-at")
    sent = await send_all(live, plain)
    await send_all(live, looked_at)

    row = await receive(live, plain)
    seen.allows = False
    one_by_one = await receive(live, looked_at)  # the same messages, each looked at

    assert seen.rows == 1
    assert [message["Body"] for message in row] == TEXTS
    assert [message["MessageId"] for message in row] == [one["MessageId"] for one in sent]
    assert [one["MD5OfBody"] for one in row] == [one["MD5OfMessageBody"] for one in sent]
    assert without(row, BY_KEY) == without(one_by_one, BY_KEY)
    deleted = await delete_all(live, plain, row)
    assert deleted == {"Successful": [{"Id": f"e-{n}"} for n in range(10)]}
    assert await delete_all(live, looked_at, one_by_one) == deleted
    assert seen.acked == 2
    await let_pass(live, 60)
    assert await receive(live, plain) == await receive(live, looked_at) == []


async def test_a_row_may_come_back_in_part_and_in_any_order(live: Live, seen: Seen) -> None:
    url = await live.queue()
    await send_all(live, url)
    row = await receive(live, url)
    assert seen.rows == 1

    for some in (row[5:][::-1], row[:2], row[2:5]):
        assert len((await delete_all(live, url, some))["Successful"]) == len(some)

    assert seen.acked == 0
    assert sum(live.kept().counts()) == 0


async def test_a_row_that_was_deleted_is_deleted_again_with_success(live: Live) -> None:
    url = await live.queue()
    await send_all(live, url)
    row = await receive(live, url)
    answer = await delete_all(live, url, row)

    assert await delete_all(live, url, row) == answer


async def test_a_delete_of_a_row_that_is_not_kept_is_refused(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await live.queue()
    await send_all(live, url)
    row = await receive(live, url)

    def full(*_args: Any, **_how: Any) -> None:
        raise StorageFull("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(live.storage, "enqueue", full)
        entries = [
            {"Id": str(n), "ReceiptHandle": message["ReceiptHandle"]}
            for n, message in enumerate(row)
        ]
        refused = await live.refused("delete_message_batch", QueueUrl=url, Entries=entries)
        some = entries[:1]
        one = await live.refused("delete_message_batch", QueueUrl=url, Entries=some)

    assert (refused.code, refused.message) == (one.code, one.message)
    await let_pass(live, 31)
    assert [message["Body"] for message in await receive(live, url)] == TEXTS
