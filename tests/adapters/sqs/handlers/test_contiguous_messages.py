"""Batches of ten plain messages give the same answers and records as single messages."""

from typing import Any

import pytest

from adapters.sqs.handlers import delete_message_batch
from adapters.sqs.messages.receive_request import ReceiveRequest
from gateway.errors import StorageFull
from tests.adapters.sqs.handlers.messages import append, let_pass, receive
from tests.adapters.sqs.handlers.serving import Live

TEXTS = ["plain", '"', "\\", '","', "é", "\U0001f600", "\t\r\n", "x" * 300, "{}", "\x7f"]
BY_KEY = {"MessageId", "ReceiptHandle"}


class ContiguousCalls:
    """Counts of receives answered without a record, and of deletes of what came together."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.allows = True
        self.received = 0
        self.acknowledged = 0
        answer_plain = ReceiveRequest._answer_plain
        delete_contiguous = delete_message_batch._delete_contiguous

        def answering(request: ReceiveRequest, ranges: Any) -> bool:
            is_answered = self.allows and answer_plain(request, ranges)
            self.received += is_answered
            return is_answered

        def deleting(*args: Any) -> bool:
            is_deleted = delete_contiguous(*args)
            self.acknowledged += is_deleted
            return is_deleted

        patch.setattr(ReceiveRequest, "_answer_plain", answering)
        patch.setattr(delete_message_batch, "_delete_contiguous", deleting)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> ContiguousCalls:
    return ContiguousCalls(monkeypatch)


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
async def test_contiguous_messages_have_the_attributes_that_are_asked_for(
    live: Live, calls: ContiguousCalls, asked: str
) -> None:
    url = await live.queue("work")
    sent = await send_all(live, url)
    wanted: dict[str, Any] = {asked: ["All"], "MessageAttributeNames": ["All"]}

    messages = await receive(live, url, VisibilityTimeout=0, **wanted)
    again = await receive(live, url, **wanted)

    assert (calls.received, len(messages), len(again)) == (1, 10, 10)
    assert [one["MessageId"] for one in messages] == [one["MessageId"] for one in sent]
    assert messages[0]["Attributes"].keys() == {
        *("SenderId", "SentTimestamp"),
        *("ApproximateReceiveCount", "ApproximateFirstReceiveTimestamp"),
    }
    for first, second in zip(messages, again, strict=True):
        assert first["Attributes"]["ApproximateReceiveCount"] == "1"
        assert second["Attributes"]["ApproximateReceiveCount"] == "2"
        second["Attributes"]["ApproximateReceiveCount"] = "1"
    handle = {"ReceiptHandle"}
    assert without(messages, handle) == without(again, handle)


@pytest.mark.parametrize("wanted", [{}, {"AttributeNames": ["All"]}])
async def test_what_a_send_has_said_is_what_is_in_the_log(
    live: Live, calls: ContiguousCalls, wanted: dict[str, Any]
) -> None:
    url = await live.queue("work")
    entries = [{"Id": str(n), "MessageBody": f"text {n}"} for n in range(10)]
    sent = (await live.call("send_message_batch", QueueUrl=url, Entries=entries))["Successful"]

    said = await receive(live, url, VisibilityTimeout=0, **wanted)
    calls.allows = False
    read = await receive(live, url, **wanted)

    assert (calls.received, len(said), len(read)) == (1, 10, 10)
    assert [one["MD5OfBody"] for one in said] == [one["MD5OfMessageBody"] for one in sent]
    for message in read:
        if wanted:
            assert message["Attributes"].pop("ApproximateReceiveCount") == "2"
    for message in said:
        if wanted:
            assert message["Attributes"].pop("ApproximateReceiveCount") == "1"
    assert without(said, {"ReceiptHandle"}) == without(read, {"ReceiptHandle"})


@pytest.mark.parametrize("wanted", [{}, {"AttributeNames": ["All"]}])
async def test_bytes_are_rows_in_base64(
    live: Live, calls: ContiguousCalls, wanted: dict[str, Any]
) -> None:
    url = await live.queue()
    values = [b"\xff" * 9, b"text", b'"', b"\xff\x00\n"]
    for value in values:
        await append(live, value)
    calls.allows = False
    one_by_one = await receive(live, url, 4, VisibilityTimeout=0, **wanted)
    for value in values:
        await append(live, value)
    await delete_all(live, url, await receive(live, url, 4))
    calls.allows = True

    contiguous = await receive(live, url, 4, **wanted)

    assert calls.received == 1
    for message in (*one_by_one, *contiguous):
        for name in ("SentTimestamp", "ApproximateFirstReceiveTimestamp"):
            message.get("Attributes", {}).pop(name, None)
    assert without(contiguous, BY_KEY) == without(one_by_one, BY_KEY)
    assert [sorted(one) for one in contiguous] == [sorted(one) for one in one_by_one]
    assert "MD5OfMessageAttributes" in contiguous[0]
    assert "Failed" not in await delete_all(live, url, contiguous)


async def test_contiguous_messages_have_no_attributes_unless_asked_for(
    live: Live, calls: ContiguousCalls
) -> None:
    url = await live.queue()
    color = {"color": {"DataType": "String", "StringValue": "red"}}
    entries = [
        {"Id": str(n), "MessageBody": f"b{n}", "MessageAttributes": color} for n in range(3)
    ]
    await live.call("send_message_batch", QueueUrl=url, Entries=entries)
    contiguous = await receive(live, url, 3)
    assert calls.received == 1
    assert [one["Body"] for one in contiguous] == ["b0", "b1", "b2"]
    assert all(
        one.keys() == {"MessageId", "MD5OfBody", "Body", "ReceiptHandle"} for one in contiguous
    )
    await live.call("send_message_batch", QueueUrl=url, Entries=entries)
    for wanted in ({"MessageAttributeNames": ["color"]}, {"AttributeNames": ["SenderId"]}):
        for number in range(2):
            [one] = await receive(live, url, 1, VisibilityTimeout=number, **wanted)
            assert ("MessageAttributes" in one) == ("MessageAttributeNames" in wanted)
    assert calls.received == 1


async def test_messages_with_further_attributes_take_the_common_way(
    live: Live, calls: ContiguousCalls
) -> None:
    url = await live.queue("work")
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}}
    entries = [
        {"Id": str(n), "MessageBody": "b", "MessageSystemAttributes": trace} for n in range(10)
    ]
    await live.call("send_message_batch", QueueUrl=url, Entries=entries)
    some = await receive(live, url, AttributeNames=["All"])
    assert [one["Attributes"]["AWSTraceHeader"] for one in some] == ["Root=1"] * 10
    assert calls.received == 0


async def test_contiguous_messages_are_received_and_deleted_as_others(
    live: Live, calls: ContiguousCalls
) -> None:
    plain, other = await live.queue("plain"), await live.queue("looked-at")
    sent = await send_all(live, plain)
    await send_all(live, other)

    messages = await receive(live, plain)
    calls.allows = False
    one_by_one = await receive(live, other)  # the same messages, each looked at

    assert calls.received == 1
    assert [message["Body"] for message in messages] == TEXTS
    assert [message["MessageId"] for message in messages] == [one["MessageId"] for one in sent]
    assert [one["MD5OfBody"] for one in messages] == [one["MD5OfMessageBody"] for one in sent]
    assert without(messages, BY_KEY) == without(one_by_one, BY_KEY)
    deleted = await delete_all(live, plain, messages)
    assert deleted == {"Successful": [{"Id": f"e-{n}"} for n in range(10)]}
    assert await delete_all(live, other, one_by_one) == deleted
    assert calls.acknowledged == 2
    await let_pass(live, 60)
    assert await receive(live, plain) == await receive(live, other) == []


async def test_contiguous_messages_may_be_deleted_in_part_and_in_any_order(
    live: Live, calls: ContiguousCalls
) -> None:
    url = await live.queue()
    await send_all(live, url)
    messages = await receive(live, url)
    assert calls.received == 1

    for some in (messages[5:][::-1], messages[:2], messages[2:5]):
        assert len((await delete_all(live, url, some))["Successful"]) == len(some)

    assert calls.acknowledged == 1  # the first ones, in their order
    assert sum(live.kept().counts()) == 0


async def test_contiguous_messages_are_deleted_again_with_success(live: Live) -> None:
    url = await live.queue()
    await send_all(live, url)
    messages = await receive(live, url)
    answer = await delete_all(live, url, messages)

    assert await delete_all(live, url, messages) == answer


async def test_a_delete_that_is_not_durable_is_refused(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await live.queue()
    await send_all(live, url)
    messages = await receive(live, url)

    def full(*_args: Any, **_how: Any) -> None:
        raise StorageFull("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(live.storage, "enqueue", full)
        entries = [
            {"Id": str(n), "ReceiptHandle": message["ReceiptHandle"]}
            for n, message in enumerate(messages)
        ]
        refused = await live.refused("delete_message_batch", QueueUrl=url, Entries=entries)
        some = entries[:1]
        one = await live.refused("delete_message_batch", QueueUrl=url, Entries=some)

    assert (refused.code, refused.message) == (one.code, one.message)
    await let_pass(live, 31)
    assert [message["Body"] for message in await receive(live, url)] == TEXTS
