"""SendMessage."""

import asyncio
from hashlib import md5
from typing import Any

import pytest

from tests.adapters.sqs.handlers.messages import (
    bodies,
    fields,
    full_disk,
    let_pass,
    receive_one,
    records,
    send,
)
from tests.adapters.sqs.handlers.serving import Live

MIB = 1_048_576


async def test_message_is_answered_with_id_and_digest_and_comes_out(live: Live) -> None:
    url = await live.queue()

    sent = await send(live, url, "Grüße\t\r\n")

    message = await receive_one(live, url)
    digest = md5("Grüße\t\r\n".encode(), usedforsecurity=False).hexdigest()
    assert sent == {"MessageId": message["MessageId"], "MD5OfMessageBody": digest}
    assert (message["Body"], message["MD5OfBody"]) == ("Grüße\t\r\n", digest)


async def test_message_is_a_record_that_a_kafka_client_can_read(live: Live) -> None:
    url = await live.queue()

    await send(
        live,
        url,
        MessageGroupId="tenant-1",
        MessageAttributes={
            "count": fields("7", "Number"),
            "photo": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
        },
    )

    [record] = records(live)
    assert (record.key, record.value) == (b"tenant-1", b"hello")
    assert dict(record.headers) == {
        "count": b"7",
        "photo": b"\x00\xff",
        "sqs.types": b'{"count":"Number","photo":"Binary"}',
    }
    assert record.timestamp_unix_ms == live.clock.unix_ms()


async def test_attributes_come_out_as_they_went_in(live: Live) -> None:
    url = await live.queue()
    attributes = {
        "text": fields("v"),
        "count": fields("-1.5", "Number.int"),
        "photo": {"DataType": "Binary.png", "BinaryValue": b"\x00\xff"},
        "mqtt.topic": fields("reserved"),
    }
    trace = "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1"

    sent = await send(
        live,
        url,
        MessageAttributes=attributes,
        MessageSystemAttributes={"AWSTraceHeader": fields(trace)},
    )

    message = await receive_one(
        live, url, MessageAttributeNames=["All"], MessageSystemAttributeNames=["AWSTraceHeader"]
    )
    assert message["MessageAttributes"] == attributes
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert message["Attributes"] == {"AWSTraceHeader": trace}
    assert len(sent["MD5OfMessageSystemAttributes"]) == 32


async def test_sender_is_who_signed(live: Live) -> None:
    url = await live.queue()
    alice = await live.user("alice")

    await live.call("send_message", by=alice, QueueUrl=url, MessageBody="m")

    message = await receive_one(live, url, MessageSystemAttributeNames=["SenderId"])
    assert message["Attributes"] == {"SenderId": "alice"}


async def test_message_of_1_mib_is_taken_and_one_byte_more_is_not(live: Live) -> None:
    url = await live.queue()

    await send(live, url, "x" * MIB)
    refused = await live.refused("send_message", QueueUrl=url, MessageBody="x" * (MIB + 1))

    assert refused.code == "InvalidParameterValue"
    assert refused.message.endswith("Reason: Message must be shorter than 1048576 bytes.")
    assert [len(body) for body in await bodies(live, url)] == [MIB]


async def test_queue_may_have_a_smaller_bound_which_may_change(live: Live) -> None:
    url = await live.queue(MaximumMessageSize="1024")
    refused = await live.refused("send_message", QueueUrl=url, MessageBody="x" * 1_025)
    assert "shorter than 1024 bytes" in refused.message

    await live.call(
        "set_queue_attributes", QueueUrl=url, Attributes={"MaximumMessageSize": "2048"}
    )

    await send(live, url, "x" * 1_025)


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"MessageBody": ""}, "MissingParameter"),
        ({"MessageBody": "a\x00"}, "InvalidMessageContents"),
        ({"MessageBody": "a\ufffe"}, "InvalidMessageContents"),
        ({"DelaySeconds": 901}, "InvalidParameterValue"),
        ({"DelaySeconds": -1}, "InvalidParameterValue"),
        ({"MessageDeduplicationId": "d"}, "InvalidParameterValue"),
        ({"MessageGroupId": "a b"}, "InvalidParameterValue"),
        ({"MessageAttributes": {"a b": fields("v")}}, "InvalidParameterValue"),
        ({"MessageAttributes": {"a": fields("")}}, "InvalidParameterValue"),
        ({"MessageAttributes": {"a": fields("x", "Number")}}, "InvalidParameterValue"),
        ({"MessageSystemAttributes": {"SenderId": fields("x")}}, "InvalidParameterValue"),
        (
            {"MessageAttributes": {"a": {"DataType": "String", "StringListValues": ["x"]}}},
            "AWS.SimpleQueueService.UnsupportedOperation",
        ),
    ],
)
async def test_what_sqs_refuses_is_refused_and_not_kept(
    live: Live, params: dict[str, Any], code: str
) -> None:
    url = await live.queue()

    refused = await live.refused(
        "send_message", **{"MessageBody": "m", **params, "QueueUrl": url}
    )

    assert (refused.code, refused.status) == (code, 400)
    assert records(live) == []


async def test_queue_that_is_not_there_is_refused(live: Live) -> None:
    url = f"{live.url}/000000000000/nowhere"

    refused = await live.refused("send_message", QueueUrl=url, MessageBody="m")

    assert refused.code == "AWS.SimpleQueueService.NonExistentQueue"


async def test_full_disk_is_said_and_nothing_is_kept(live: Live) -> None:
    url = await live.queue()

    with full_disk(live):
        refused = await live.refused("send_message", QueueUrl=url, MessageBody="m")

    assert (refused.code, refused.status) == ("ServiceUnavailable", 503)
    assert records(live) == []


async def test_answer_waits_for_the_disk(live: Live) -> None:
    url = await live.queue()
    live.storage.held = True
    sending = asyncio.create_task(send(live, url))
    async with asyncio.timeout(60):
        while not live.storage.queued_bytes:
            await asyncio.to_thread(int)

    assert not sending.done()
    assert await bodies(live, url) == []

    live.storage.release()
    await sending
    assert await bodies(live, url) == ["hello"]


# --- delays


async def test_message_with_a_delay_comes_when_it_is_over(live: Live) -> None:
    url = await live.queue()

    sent = await send(live, url, DelaySeconds=5)
    sent_unix_ms = live.clock.unix_ms()

    await let_pass(live, 4)
    assert await bodies(live, url) == []
    await let_pass(live, 1)
    message = await receive_one(live, url, WaitTimeSeconds=20, AttributeNames=["SentTimestamp"])
    assert message["MessageId"] == sent["MessageId"]
    assert message["Attributes"] == {"SentTimestamp": str(sent_unix_ms)}


async def test_queue_may_delay_all_messages_and_a_message_may_not_wait(live: Live) -> None:
    url = await live.queue(DelaySeconds="10")

    await send(live, url, "slow")
    await send(live, url, "fast", DelaySeconds=0)

    assert await bodies(live, url) == ["fast"]
    await let_pass(live, 10)
    assert await bodies(live, url) == ["slow"]


async def test_message_may_wait_longer_than_its_queue_says(live: Live) -> None:
    url = await live.queue(DelaySeconds="10")

    await send(live, url, "slower", DelaySeconds=60)

    await let_pass(live, 59)
    assert await bodies(live, url) == []
    await let_pass(live, 1)
    assert await bodies(live, url, WaitTimeSeconds=20) == ["slower"]
