"""DeleteQueue. Names of deleted queues: see ``test_create_queue``."""

from pathlib import Path

from gateway.model import TopicName
from tests.adapters.sqs.handlers.serving import Live, running


async def test_a_queue_goes_with_its_topic_and_messages(live: Live) -> None:
    url = await live.queue()
    await live.call("send_message", QueueUrl=url, MessageBody="1")
    assert await live.call("delete_queue", QueueUrl=url) == {}
    assert live.kernel.queues.of_clients() == []
    assert live.kernel.topics.find(TopicName("default", "orders")) is None
    for action in ("get_queue_attributes", "list_queue_tags", "purge_queue", "delete_queue"):
        refused = await live.refused(action, QueueUrl=url)
        assert refused.exception == "QueueDoesNotExist"


async def test_a_queue_goes_alone_from_a_topic_that_was_there_before(live: Live) -> None:
    await live.kernel.topics.create(TopicName("default", "orders"), partitions=1)
    url = await live.queue()
    await live.call("send_message", QueueUrl=url, MessageBody="1")

    await live.call("delete_queue", QueueUrl=url)

    assert live.kernel.topics.find(TopicName("default", "orders")) is not None
    refused = await live.refused("send_message", QueueUrl=url, MessageBody="2")
    assert refused.exception == "QueueDoesNotExist"


async def test_a_queue_of_the_same_name_begins_anew(tmp_path: Path) -> None:
    async with running(tmp_path, sqs={"deleted_name_s": 0}) as live:
        url = await live.queue(DelaySeconds="5")
        await live.call("purge_queue", QueueUrl=url)
        await live.call("send_message", QueueUrl=url, MessageBody="1")
        await live.call("delete_queue", QueueUrl=url)
        await live.queue()
        found = await live.attributes(url)
        assert found["ApproximateNumberOfMessages"] == "0"
        assert found["ApproximateNumberOfMessagesDelayed"] == "0"
        assert found["DelaySeconds"] == "0"
        await live.call("purge_queue", QueueUrl=url)
