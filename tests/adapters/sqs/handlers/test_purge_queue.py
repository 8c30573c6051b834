"""PurgeQueue."""

import asyncio
from pathlib import Path

import pytest

from gateway.errors import StorageUnavailable
from gateway.model import TopicName
from gateway.queues.purge_offsets import parse_purged
from tests.adapters.sqs.handlers.messages import bodies, send
from tests.adapters.sqs.handlers.serving import Live, running


async def fill(live: Live, url: str) -> None:
    """Send four messages: one is then in flight, one delayed, two ready."""
    for body in ("1", "2", "3"):
        await live.call("send_message", QueueUrl=url, MessageBody=body)
    await live.call("send_message", QueueUrl=url, MessageBody="4", DelaySeconds=60)
    await live.call("receive_message", QueueUrl=url)


async def counted(live: Live, url: str) -> list[str]:
    found = await live.attributes(url)
    return [
        found[f"ApproximateNumberOfMessages{state}"] for state in ("", "NotVisible", "Delayed")
    ]


async def test_messages_in_every_state_go(live: Live) -> None:
    url = await live.queue()
    await fill(live, url)
    assert await counted(live, url) == ["2", "1", "1"]
    assert await live.call("purge_queue", QueueUrl=url) == {}
    assert await counted(live, url) == ["0", "0", "0"]
    await live.call("send_message", QueueUrl=url, MessageBody="5")
    [message] = (await live.call("receive_message", QueueUrl=url))["Messages"]
    assert message["Body"] == "5"


async def test_once_in_60_seconds(live: Live) -> None:
    url = await live.queue()
    await live.call("purge_queue", QueueUrl=url)
    live.clock.advance(59_999)
    refused = await live.refused("purge_queue", QueueUrl=url)
    assert refused.exception == "PurgeQueueInProgress"
    assert refused.code == "AWS.SimpleQueueService.PurgeQueueInProgress"
    assert refused.status == 403
    assert refused.message == (
        "Only one PurgeQueue operation on orders is allowed every 60 seconds."
    )
    await live.call("purge_queue", QueueUrl=await live.queue("others"))
    live.clock.advance(1)
    await live.call("purge_queue", QueueUrl=url)


async def test_the_time_between_two_purges_is_configured(tmp_path: Path) -> None:
    async with running(tmp_path, sqs={"purge_s": 0}) as live:
        url = await live.queue()
        await live.call("purge_queue", QueueUrl=url)
        await live.call("purge_queue", QueueUrl=url)


async def test_the_answer_comes_when_the_purge_is_kept(live: Live) -> None:
    url = await live.queue()
    live.storage.held = True
    asked = asyncio.ensure_future(live.call("purge_queue", QueueUrl=url))
    while TopicName("default", "orders") not in live.adapter.node.purged:
        await asyncio.wait([asked], timeout=0.01)
    assert not asked.done()
    live.storage.release()
    assert await asked == {}


async def test_a_purge_that_is_not_kept_may_be_tried_again_at_once(live: Live) -> None:
    url = await live.queue()
    storage = live.storage
    storage.held = True
    asked = asyncio.ensure_future(live.refused("purge_queue", QueueUrl=url))
    while not storage._kept_back:
        await asyncio.wait([asked], timeout=0.01)
    storage._kept_back = [
        (done, StorageUnavailable("broken")) for done, _ in storage._kept_back
    ]
    storage.release()
    refused = await asked
    assert refused.code == "ServiceUnavailable"
    assert refused.status == 503
    assert await live.call("purge_queue", QueueUrl=url) == {}


async def test_delayed_messages_of_a_topic_of_others_stay(live: Live) -> None:
    await live.kernel.topics.create(TopicName("default", "orders"))
    url = await live.queue()
    await fill(live, url)
    await live.call("purge_queue", QueueUrl=url)
    assert await counted(live, url) == ["0", "0", "1"]


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_ids_of_what_was_purged_may_be_sent_again(
    live: Live,
    is_restarted: bool,  # noqa: FBT001
) -> None:
    url = await live.queue("orders.fifo")
    ids = {"MessageGroupId": "g", "MessageDeduplicationId": "d"}
    first = await send(live, url, "purged", **ids)
    changed = (await live.attributes(url))["LastModifiedTimestamp"]
    live.clock.advance(5_000)

    await live.call("purge_queue", QueueUrl=url)
    if is_restarted:  # the ids are read from the log again
        live.adapter.node.messages.close()
    second = await send(live, url, "sent again", **ids)
    if is_restarted:
        live.adapter.node.messages.close()
    third = await send(live, url, "once more", **ids)

    assert first["MessageId"] != second["MessageId"] == third["MessageId"]
    assert await bodies(live, url) == ["sent again"]
    assert (await live.attributes(url))["LastModifiedTimestamp"] == changed


async def test_where_a_purge_ended_is_kept_with_the_queue(live: Live) -> None:
    url = await live.queue("orders.fifo")
    await send(live, url, MessageGroupId="g", MessageDeduplicationId="d")
    await live.call("purge_queue", QueueUrl=url)
    await live.call("set_queue_attributes", QueueUrl=url, Attributes={"DelaySeconds": "1"})

    [row] = await live.kernel.metadata.queues()

    assert parse_purged(row.attributes) == live.kept("orders.fifo").purged_ends == (1,)
