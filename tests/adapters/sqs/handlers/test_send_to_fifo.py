"""SendMessage to FIFO queues: groups, sequence numbers, deduplication."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.model import DEDUP_ID, DEFAULT_NAMESPACE, TopicName
from gateway.records.codec import encode_headers
from gateway.records.record_run import RecordRun
from tests.adapters.sqs.handlers.messages import (
    append,
    bodies,
    delete,
    full_disk,
    let_pass,
    receive,
    receive_one,
    records,
    send,
)
from tests.adapters.sqs.handlers.serving import Live, running


async def test_fifo_message_has_a_sequence_number_that_grows(live: Live) -> None:
    url = await live.queue("orders.fifo")

    first = await send(live, url, MessageGroupId="g", MessageDeduplicationId="a")
    second = await send(live, url, MessageGroupId="g", MessageDeduplicationId="b")

    assert len(first["SequenceNumber"]) == 20
    assert first["SequenceNumber"] < second["SequenceNumber"]
    message = await receive_one(live, url, MessageSystemAttributeNames=["All"])
    assert message["Attributes"]["SequenceNumber"] == first["SequenceNumber"]
    assert message["Attributes"]["MessageDeduplicationId"] == "a"
    assert message["Attributes"]["MessageGroupId"] == "g"


@pytest.mark.parametrize(
    ("params", "code", "said"),
    [
        ({"MessageDeduplicationId": "d"}, "MissingParameter", "MessageGroupId"),
        ({"MessageGroupId": "g"}, "InvalidParameterValue", "ContentBasedDeduplication"),
        (
            {"MessageGroupId": "g", "MessageDeduplicationId": "d" * 129},
            "InvalidParameterValue",
            "1 to 128 in length",
        ),
        (
            {"MessageGroupId": "g", "MessageDeduplicationId": "d", "DelaySeconds": 2},
            "InvalidParameterValue",
            "not valid for this queue type",
        ),
    ],
)
async def test_what_a_fifo_queue_refuses_is_refused(
    live: Live, params: dict[str, Any], code: str, said: str
) -> None:
    url = await live.queue("orders.fifo")

    refused = await live.refused("send_message", QueueUrl=url, MessageBody="m", **params)

    assert refused.code == code
    assert said in refused.message


async def test_repetition_gets_the_answer_of_the_first_and_is_not_delivered(live: Live) -> None:
    url = await live.queue("orders.fifo")
    ids = {"MessageGroupId": "g", "MessageDeduplicationId": "d"}
    first = await send(live, url, "one", **ids)

    again = await send(live, url, "other", **ids)

    assert again["MessageId"] == first["MessageId"]
    assert again["SequenceNumber"] == first["SequenceNumber"]
    assert again["MD5OfMessageBody"] != first["MD5OfMessageBody"]  # of what was sent now
    assert await bodies(live, url) == ["one"]


async def test_repetition_is_known_after_the_message_was_deleted(live: Live) -> None:
    url = await live.queue("orders.fifo", ContentBasedDeduplication="true")
    await send(live, url, "one", MessageGroupId="g")
    await delete(live, url, await receive_one(live, url))

    await send(live, url, "one", MessageGroupId="g")
    assert await bodies(live, url) == []

    await let_pass(live, 300)
    await send(live, url, "one", MessageGroupId="g")
    assert await bodies(live, url) == ["one"]


async def test_scope_of_an_id_is_the_queue_or_the_group(live: Live) -> None:
    by_queue = await live.queue("by-queue.fifo", ContentBasedDeduplication="true")
    by_group = await live.queue(
        "by-group.fifo",
        ContentBasedDeduplication="true",
        DeduplicationScope="messageGroup",
        FifoThroughputLimit="perMessageGroupId",
    )
    for url in (by_queue, by_group):
        for group in ("a", "b", "b"):
            await send(live, url, "same", MessageGroupId=group)

    assert await bodies(live, by_queue) == ["same"]
    assert await bodies(live, by_group) == ["same", "same"]


async def test_ids_are_known_after_their_scope_has_changed(live: Live) -> None:
    url = await live.queue("orders.fifo", ContentBasedDeduplication="true")
    first = await send(live, url, "same", MessageGroupId="a")

    await scope(live, url, "messageGroup")
    again = await send(live, url, "same", MessageGroupId="a")
    other = await send(live, url, "same", MessageGroupId="b")
    await scope(live, url, "queue")
    last = await send(live, url, "same", MessageGroupId="c")

    assert first["MessageId"] == again["MessageId"] == last["MessageId"]
    assert first["MessageId"] != other["MessageId"]
    assert [record.key for record in records(live, "orders.fifo")] == [b"a", b"b"]


async def test_a_send_under_way_is_known_in_the_scope_that_comes_meanwhile(live: Live) -> None:
    url = await live.queue("orders.fifo", ContentBasedDeduplication="true")
    await send(live, url, "zero", MessageGroupId="g")
    live.storage.held = True
    sends = [asyncio.create_task(send(live, url, "one", MessageGroupId="g"))]
    await until_requests(live, "SendMessage", 2)
    await scope(live, url, "messageGroup")
    sends.append(asyncio.create_task(send(live, url, "one", MessageGroupId="g")))
    await until_requests(live, "SendMessage", 3)
    for _ in range(20):  # what the log has so far is read
        await asyncio.to_thread(int)
    assert not any(task.done() for task in sends)
    live.storage.release()

    answers = await asyncio.gather(*sends)

    assert len({answer["MessageId"] for answer in answers}) == 1
    assert await bodies(live, url) == ["zero", "one"]


async def scope(live: Live, url: str, value: str) -> None:
    attributes = {"DeduplicationScope": value}
    await live.call("set_queue_attributes", QueueUrl=url, Attributes=attributes)


async def until_requests(live: Live, action: str, count: int) -> None:
    async with asyncio.timeout(60):
        while live.adapter.dispatcher.requests[action] < count:
            await asyncio.to_thread(int)


async def test_repetition_of_what_is_not_kept_yet_waits_for_it(live: Live) -> None:
    url = await live.queue("orders.fifo")
    await send(live, url, "zero", MessageGroupId="g", MessageDeduplicationId="0")
    ids = {"MessageGroupId": "g", "MessageDeduplicationId": "d"}
    live.storage.held = True
    sends = [asyncio.create_task(send(live, url, "one", **ids)) for _ in range(3)]
    await until_requests(live, "SendMessage", 4)

    assert not any(task.done() for task in sends)
    live.storage.release()

    answers = await asyncio.gather(*sends)
    assert len({answer["MessageId"] for answer in answers}) == 1
    assert await bodies(live, url) == ["zero", "one"]


async def test_ids_are_known_after_a_restart(live: Live) -> None:
    """The window is read from the log, as after a start; deleted messages are there too."""
    url = await live.queue("orders.fifo")
    ids = {"MessageGroupId": "g", "MessageDeduplicationId": "d"}
    first = await send(live, url, "one", **ids)
    await delete(live, url, await receive_one(live, url))
    live.adapter.node.messages.close()

    again = await send(live, url, "one", **ids)

    assert again["MessageId"] == first["MessageId"]
    assert await receive(live, url) == []


async def test_window_is_read_from_what_was_sent_and_not_from_what_was_moved_here(
    live: Live,
) -> None:
    url = await live.queue("orders.fifo")
    name = "orders.fifo"
    await append(live, b"old", key=b"g", headers=[("dedup-id", b"old")], name=name)
    await let_pass(live, 300)
    await append(live, b"sent", key=b"g", headers=[("dedup-id", b"sent")], name=name)
    moved = [("dedup-id", b"moved"), ("message-id", b"an-id")]
    await append(live, b"moved", key=b"g", headers=moved, name=name)
    await append(live, b"null", key=b"g", headers=[("dedup-id", None)], name=name)

    for dedup_id in ("old", "sent", "moved"):
        await send(live, url, "new", MessageGroupId="g", MessageDeduplicationId=dedup_id)

    assert [record.value for record in records(live, name)] == [
        b"old",
        b"sent",
        b"moved",
        b"null",
        b"new",
        b"new",
    ]


async def test_window_is_read_in_the_scope_of_the_queue(live: Live) -> None:
    url = await live.queue(
        "orders.fifo",
        ContentBasedDeduplication="true",
        DeduplicationScope="messageGroup",
        FifoThroughputLimit="perMessageGroupId",
    )
    await send(live, url, "same", MessageGroupId="a")
    live.adapter.node.messages.close()

    for group in ("a", "b"):
        await send(live, url, "same", MessageGroupId=group)

    assert [record.key for record in records(live, "orders.fifo")] == [b"a", b"b"]


async def test_sends_that_wait_for_the_window_keep_their_order(live: Live) -> None:
    url = await live.queue("orders.fifo", ContentBasedDeduplication="true")
    for number in range(50):
        await append(
            live, b"x", key=b"g", headers=[("dedup-id", b"%d" % number)], name="orders.fifo"
        )
    entries = [
        {"Id": str(number), "MessageBody": f"m{number}", "MessageGroupId": "g"}
        for number in range(10)
    ]

    await live.call("send_message_batch", QueueUrl=url, Entries=entries)

    values = [record.value for record in records(live, "orders.fifo")][50:]
    assert values == [b"m%d" % number for number in range(10)]


async def test_groups_are_spread_over_the_partitions_of_a_queue(tmp_path: Path) -> None:
    async with running(tmp_path, sqs={"queue_partitions": 4}) as live:
        url = await live.queue("orders.fifo", ContentBasedDeduplication="true")
        groups = [f"g{number}" for number in range(8)]
        for round_number in range(2):
            for group in groups:
                await send(live, url, f"{group}-{round_number}", MessageGroupId=group)

        first, second = await receive(live, url), await receive(live, url)

        came = [message["Body"] for message in [*first, *second]]
        assert sorted(came) == sorted(f"{group}-{n}" for group in groups for n in range(2))
        for group in groups:
            assert came.index(f"{group}-0") < came.index(f"{group}-1")
        topic = live.kept("orders.fifo").topic
        ends = [
            live.kernel.broker.partition(topic, number).high_watermark for number in range(4)
        ]
        assert sum(end > 0 for end in ends) > 1


async def test_send_that_failed_may_be_repeated(live: Live) -> None:
    url = await live.queue("orders.fifo")
    ids = {"MessageGroupId": "g", "MessageDeduplicationId": "d"}
    with full_disk(live):
        await live.refused("send_message", QueueUrl=url, MessageBody="lost", **ids)

    await send(live, url, "kept", **ids)

    assert await bodies(live, url) == ["kept"]


async def test_send_that_was_refused_at_once_may_be_repeated(live: Live) -> None:
    url = await live.queue("orders.fifo")
    topic = live.kept("orders.fifo").topic
    await live.kernel.topics.alter_configs(topic.name, {"max.message.bytes": "1024"})
    ids = {"MessageGroupId": "g", "MessageDeduplicationId": "d"}
    refused = await live.refused("send_message", QueueUrl=url, MessageBody="x" * 2_000, **ids)
    assert refused.code == "InvalidParameterValue"

    await send(live, url, "kept", **ids)

    assert await bodies(live, url) == ["kept"]


async def test_above_the_bound_of_ids_sends_are_throttled(tmp_path: Path) -> None:
    async with running(tmp_path, sqs={"dedup_ids_max": 1}) as live:
        url = await live.queue("orders.fifo")
        await send(live, url, MessageGroupId="g", MessageDeduplicationId="a")

        refused = await live.refused(
            "send_message",
            QueueUrl=url,
            MessageBody="m",
            MessageGroupId="g",
            MessageDeduplicationId="b",
        )

        assert (refused.code, refused.status) == ("RequestThrottled", 403)
        await let_pass(live, 300)
        await send(live, url, MessageGroupId="g", MessageDeduplicationId="b")


async def test_an_id_of_a_time_to_come_is_forgotten_as_one_of_now(tmp_path: Path) -> None:
    """Other protocols may write such records; the ids of all FIFO queues share one limit."""
    async with running(tmp_path, sqs={"dedup_ids_max": 1}) as live:
        url = await live.queue("orders.fifo")
        queue = live.kept("orders.fifo")
        block = encode_headers([(DEDUP_ID, b"a")])
        run = RecordRun(b"g", (b"m",), block, live.clock.unix_ms() + 10**12)
        kept = asyncio.get_running_loop().create_future()
        live.kernel.queues.coalescer.add(queue.partition_for(b"g"), run, kept.set_result)
        assert await kept is None
        live.adapter.node.messages.close()
        other = {"QueueUrl": url, "MessageGroupId": "g", "MessageDeduplicationId": "b"}
        refused = await live.refused("send_message", MessageBody="m", **other)
        assert refused.code == "RequestThrottled"

        await let_pass(live, 300)

        await send(live, url, MessageGroupId="g", MessageDeduplicationId="b")


async def test_ids_go_with_their_queue(live: Live) -> None:
    url = await live.queue("orders.fifo")
    await send(live, url, MessageGroupId="g", MessageDeduplicationId="a")
    assert live.adapter.node.messages.dedup_ids_used == 1

    await live.call("delete_queue", QueueUrl=url)

    assert live.adapter.node.messages.dedup_ids_used == 0


async def test_a_queue_made_anew_on_a_topic_knows_no_ids_of_the_one_before(
    tmp_path: Path,
) -> None:
    """The queue begins at the topic's end: a repetition of an earlier message would be lost."""
    async with running(tmp_path, sqs={"deleted_name_s": 0}) as live:
        await live.kernel.topics.create(TopicName(DEFAULT_NAMESPACE, "orders.fifo"))
        ids = {"MessageGroupId": "g", "MessageDeduplicationId": "d"}
        url = await live.queue("orders.fifo")
        await send(live, url, "old", **ids)
        live.clock.advance(1_000)
        await live.call("delete_queue", QueueUrl=url)
        await live.queue("orders.fifo")

        await send(live, url, "new", **ids)

        assert await bodies(live, url) == ["new"]
        assert live.adapter.node.messages.dedup_ids_used == 1
