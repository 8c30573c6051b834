"""GetQueueAttributes."""

import json

import pytest

from adapters.sqs.queues.attribute_specs import NAMES
from features.queue.model import Order
from gateway.model import TopicName
from gateway.queues.model import QueueSettings
from tests.adapters.sqs.handlers.serving import Live


async def test_all_attributes_of_a_new_queue(live: Live) -> None:
    now_s = str(live.clock.unix_ms() // 1_000)
    assert await live.attributes(await live.queue()) == {
        "ApproximateNumberOfMessages": "0",
        "ApproximateNumberOfMessagesDelayed": "0",
        "ApproximateNumberOfMessagesNotVisible": "0",
        "CreatedTimestamp": now_s,
        "DelaySeconds": "0",
        "LastModifiedTimestamp": now_s,
        "MaximumMessageSize": "1048576",
        "MessageRetentionPeriod": "345600",
        "QueueArn": live.arn("orders"),
        "ReceiveMessageWaitTimeSeconds": "0",
        "SqsManagedSseEnabled": "true",
        "VisibilityTimeout": "30",
    }


async def test_fifo_queues_have_more_attributes(live: Live) -> None:
    found = await live.attributes(await live.queue("orders.fifo"))
    standard = await live.attributes(await live.queue("orders"))
    assert {name: found[name] for name in found.keys() - standard.keys()} == {
        "ContentBasedDeduplication": "false",
        "DeduplicationScope": "queue",
        "FifoQueue": "true",
        "FifoThroughputLimit": "perQueue",
    }


async def test_all_that_can_be_set_is_answered_as_it_was_set(live: Live) -> None:
    await live.queue("dead.fifo")
    statement = {"Effect": "Allow", "Principal": "*", "Action": "sqs:*", "Resource": "*"}
    target = {"deadLetterTargetArn": live.arn("dead.fifo"), "maxReceiveCount": 7}
    given = {
        "ContentBasedDeduplication": "true",
        "DeduplicationScope": "messageGroup",
        "DelaySeconds": "900",
        "FifoQueue": "true",
        "FifoThroughputLimit": "perMessageGroupId",
        "KmsDataKeyReusePeriodSeconds": "600",
        "KmsMasterKeyId": "alias/aws/sqs",
        "MaximumMessageSize": "1024",
        "MessageRetentionPeriod": "1209600",
        "Policy": json.dumps({"Version": "2012-10-17", "Statement": [statement]}),
        "ReceiveMessageWaitTimeSeconds": "20",
        "RedriveAllowPolicy": '{"redrivePermission": "denyAll"}',
        "RedrivePolicy": json.dumps(target, separators=(",", ":")),
        "SqsManagedSseEnabled": "false",
        "VisibilityTimeout": "43200",
    }
    found = await live.attributes(await live.queue("orders.fifo", **given))
    assert {name: found[name] for name in given} == given
    assert set(found) == NAMES


async def test_only_what_is_asked_for_and_what_the_queue_has(live: Live) -> None:
    url = await live.queue()
    names = ["QueueArn", "FifoQueue", "Policy", "RedrivePolicy", "KmsMasterKeyId"]
    assert await live.attributes(url, *names) == {"QueueArn": live.arn("orders")}
    assert set(await live.attributes(url, "DelaySeconds", "DelaySeconds")) == {"DelaySeconds"}


@pytest.mark.parametrize("params", [{}, {"AttributeNames": []}])
async def test_without_names_there_is_nothing(live: Live, params: dict[str, list[str]]) -> None:
    url = await live.queue()
    assert "Attributes" not in await live.call("get_queue_attributes", QueueUrl=url, **params)


@pytest.mark.parametrize("name", ["Color", "", "all"])
async def test_names_that_there_are_none_of_are_refused(live: Live, name: str) -> None:
    url = await live.queue()
    refused = await live.refused(
        "get_queue_attributes", QueueUrl=url, AttributeNames=["All", name]
    )
    assert refused.exception == "InvalidAttributeName"
    assert refused.message == f"Unknown Attribute {name}."


async def test_messages_are_counted_by_state(live: Live) -> None:
    url = await live.queue()
    for body in ("1", "2", "3"):
        await live.call("send_message", QueueUrl=url, MessageBody=body)
    await live.call("send_message", QueueUrl=url, MessageBody="4", DelaySeconds=900)
    await live.call("receive_message", QueueUrl=url)
    found = await live.attributes(url)
    assert {name: found[name] for name in found if name.startswith("Approximate")} == {
        "ApproximateNumberOfMessages": "2",
        "ApproximateNumberOfMessagesDelayed": "1",
        "ApproximateNumberOfMessagesNotVisible": "1",
    }


async def test_messages_of_a_delay_queue_are_counted_as_delayed(live: Live) -> None:
    url = await live.queue(DelaySeconds="60")
    await live.call("send_message", QueueUrl=url, MessageBody="1")
    found = await live.attributes(url)
    assert found["ApproximateNumberOfMessagesDelayed"] == "1"
    assert found["ApproximateNumberOfMessages"] == "0"


async def test_the_time_of_the_last_change_is_told(live: Live) -> None:
    url = await live.queue()
    made_s = live.clock.unix_ms() // 1_000
    live.clock.advance(5_000)
    await live.call("set_queue_attributes", QueueUrl=url, Attributes={"DelaySeconds": "1"})
    found = await live.attributes(url)
    assert found["CreatedTimestamp"] == str(made_s)
    assert found["LastModifiedTimestamp"] == str(made_s + 5)


async def test_a_queue_that_was_made_elsewhere_is_answered_in_sqs_words(live: Live) -> None:
    topic = await live.kernel.topics.create(TopicName("default", "orders"))
    settings = QueueSettings(
        order=Order.NONE,
        lease_ms=1_500,
        delay_ms=86_400_000,
        retention_ms=-1,
        dead_letter_topic="dead",
    )
    await live.kernel.queues.create(topic, settings)
    found = await live.attributes(f"{live.url}/000000000000/orders")
    assert found["VisibilityTimeout"] == "2"
    assert found["DelaySeconds"] == "900"
    assert found["MessageRetentionPeriod"] == "1209600"
    assert "RedrivePolicy" not in found
