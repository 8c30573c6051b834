"""CreateQueue."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from features.queue.model import Order
from gateway.model import TopicName
from gateway.queues.create_queue import QUEUE_TOPIC_CONFIGS
from gateway.queues.model import QueueSettings
from tests.adapters.sqs.handlers.serving import ACCOUNT, Live, running

FIFO_ONLY = "Should be used only with FIFO Queues."
KMS_OR_SQS = "You can either enable KMS SSE or SQS SSE."


async def test_a_queue_is_made_with_a_topic_of_its_own(live: Live) -> None:
    answer = await live.call("create_queue", QueueName="orders")
    assert answer == {"QueueUrl": f"{live.url}/{ACCOUNT}/orders"}
    queue = live.kept()
    assert queue.owns_topic
    assert queue.protocol == "sqs"
    assert queue.settings.order is Order.FAIR
    assert len(queue.topic.partition_ids) == 1
    assert queue.topic.configs == {
        "cleanup.policy": "queue",
        "queue.keep.ms": "300000",
        "max.message.bytes": "1114112",
    }


async def test_a_fifo_queue_keeps_the_order_of_groups(live: Live) -> None:
    url = await live.queue("orders.fifo")
    assert url.endswith("/orders.fifo")
    assert live.kept("orders.fifo").settings.order is Order.KEY


async def test_attributes_and_tags_are_kept(live: Live) -> None:
    answer = await live.call(
        "create_queue",
        QueueName="orders",
        Attributes={"VisibilityTimeout": "45", "MaximumMessageSize": "2048"},
        tags={"team": "a"},
    )
    found = await live.attributes(answer["QueueUrl"])
    assert (found["VisibilityTimeout"], found["MaximumMessageSize"]) == ("45", "2048")
    assert live.kept().settings.lease_ms == 45_000
    assert (await live.call("list_queue_tags", **answer))["Tags"] == {"team": "a"}


@pytest.mark.parametrize(
    "again", [{}, {"VisibilityTimeout": "045"}, {"DelaySeconds": "0"}, {"Policy": ""}]
)
async def test_the_same_request_again_returns_the_same_queue(
    live: Live, again: dict[str, str]
) -> None:
    url = await live.queue(VisibilityTimeout="45")
    made = live.kept()
    assert await live.queue(**again) == url
    assert live.kept() is made


async def test_policies_are_the_same_however_they_are_written(live: Live) -> None:
    await live.queue("dead")
    statement = {"Effect": "Allow", "Principal": "*", "Action": "sqs:*", "Resource": "*"}
    target = {"deadLetterTargetArn": live.arn("dead"), "maxReceiveCount": "3"}
    documents: dict[str, Any] = {
        "Policy": {"Version": "2012-10-17", "Statement": [statement]},
        "RedrivePolicy": target,
        "RedriveAllowPolicy": {"redrivePermission": "denyAll"},
    }
    await live.queue(**{name: json.dumps(value) for name, value in documents.items()})
    documents["RedrivePolicy"] = {"maxReceiveCount": 3, "deadLetterTargetArn": live.arn("dead")}
    await live.queue(**{name: json.dumps(value, indent=1) for name, value in documents.items()})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DelaySeconds", "2"),
        ("VisibilityTimeout", "30"),
        ("MaximumMessageSize", "1024"),
        ("KmsMasterKeyId", "alias/aws/sqs"),
        ("SqsManagedSseEnabled", "false"),
        ("RedriveAllowPolicy", '{"redrivePermission":"denyAll"}'),
    ],
)
async def test_another_value_of_an_attribute_is_refused(
    live: Live, name: str, value: str
) -> None:
    await live.queue(DelaySeconds="1", VisibilityTimeout="45")
    refused = await live.refused("create_queue", QueueName="orders", Attributes={name: value})
    assert refused.exception == "QueueNameExists"
    assert refused.code == "QueueAlreadyExists"
    assert refused.message == (
        f"A queue already exists with the same name and a different value for attribute {name}"
    )


async def test_another_redrive_policy_is_refused(live: Live) -> None:
    await live.queue("dead")
    policy = {"deadLetterTargetArn": live.arn("dead"), "maxReceiveCount": 3}
    await live.queue(RedrivePolicy=json.dumps(policy))
    for other in ({**policy, "maxReceiveCount": 4}, None):
        text = json.dumps(other) if other else ""
        refused = await live.refused(
            "create_queue", QueueName="orders", Attributes={"RedrivePolicy": text}
        )
        assert refused.exception == "QueueNameExists"


async def test_requests_for_the_same_queue_at_once_get_the_same_queue(live: Live) -> None:
    clients = [live.client() for _ in range(4)]
    urls = await asyncio.gather(*[live.queue(by=client) for client in clients])
    assert len(set(urls)) == 1
    assert live.kept().owns_topic
    assert len(live.kernel.topics.topics()) == 1


@pytest.mark.parametrize("name", ["", "a.b", "x" * 81, "a b", "orders.fifo"])
async def test_wrong_names_are_refused(live: Live, name: str) -> None:
    refused = await live.refused("create_queue", QueueName=name)
    assert refused.code == "InvalidParameterValue"
    assert refused.message.startswith("Can only include alphanumeric characters")


@pytest.mark.parametrize("name", ["orders", "a.b.fifo", "x" * 76 + ".fifo", ".fifo"])
async def test_wrong_names_of_fifo_queues_are_refused(live: Live, name: str) -> None:
    refused = await live.refused(
        "create_queue", QueueName=name, Attributes={"FifoQueue": "true"}
    )
    assert refused.code == "InvalidParameterValue"
    assert refused.message.startswith("The name of a FIFO queue")


async def test_a_name_is_missing(live: Live) -> None:
    refused = await live.refused("create_queue")
    assert refused.code == "MissingParameter"


@pytest.mark.parametrize(
    ("attributes", "code", "message"),
    [
        ({"Color": "red"}, "InvalidAttributeName", "Unknown Attribute Color."),
        ({"QueueArn": "x"}, "InvalidAttributeName", "Unknown Attribute QueueArn."),
        ({"FifoQueue": "false"}, "InvalidAttributeName", "Unknown Attribute FifoQueue."),
        (
            {"FifoQueue": "maybe"},
            "InvalidAttributeValue",
            "Invalid value for the parameter FifoQueue.",
        ),
        (
            {"ContentBasedDeduplication": "true"},
            "InvalidAttributeName",
            f"Unknown Attribute ContentBasedDeduplication. {FIFO_ONLY}",
        ),
        (
            {"VisibilityTimeout": "43201"},
            "InvalidAttributeValue",
            "Invalid value for the parameter VisibilityTimeout.",
        ),
        (
            {"KmsMasterKeyId": "k", "SqsManagedSseEnabled": "true"},
            "InvalidAttributeName",
            f"You can use one type of server-side encryption (SSE) at one time. {KMS_OR_SQS}",
        ),
    ],
)
async def test_wrong_attributes_are_refused_and_nothing_is_made(
    live: Live, attributes: dict[str, str], code: str, message: str
) -> None:
    refused = await live.refused("create_queue", QueueName="orders", Attributes=attributes)
    assert (refused.code, refused.message, refused.status) == (code, message, 400)
    assert live.kernel.topics.topics() == []


async def test_what_a_policy_cannot_enforce_here_is_an_unsupported_operation(
    live: Live,
) -> None:
    statement = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "sqs:*",
        "Resource": "*",
        "Condition": {"StringEquals": {"aws:ResourceTag/team": "a"}},
    }
    refused = await live.refused(
        "create_queue",
        QueueName="orders",
        Attributes={"Policy": json.dumps({"Statement": statement})},
    )
    assert refused.exception == "UnsupportedOperation"
    assert refused.message.startswith("The condition key aws:ResourceTag/team in a policy")


async def test_too_many_tags_are_refused_and_nothing_is_made(live: Live) -> None:
    refused = await live.refused(
        "create_queue",
        QueueName="orders",
        tags={f"key-{index}": "" for index in range(51)},
    )
    assert refused.code == "InvalidParameterValue"
    assert live.kernel.topics.topics() == []


async def test_the_name_of_a_deleted_queue_is_barred_for_60_seconds(live: Live) -> None:
    url = await live.queue()
    await live.call("delete_queue", QueueUrl=url)
    live.clock.advance(59_999)
    refused = await live.refused("create_queue", QueueName="orders")
    assert refused.exception == "QueueDeletedRecently"
    assert refused.code == "AWS.SimpleQueueService.QueueDeletedRecently"
    assert refused.message == (
        "You must wait 60 seconds after deleting a queue "
        "before you can create another with the same name."
    )
    await live.queue("others")
    live.clock.advance(1)
    assert await live.queue() == url


async def test_the_bar_of_deleted_names_is_as_long_as_configured(tmp_path: Path) -> None:
    async with running(tmp_path, sqs={"deleted_name_s": 0}) as live:
        url = await live.queue()
        await live.call("delete_queue", QueueUrl=url)
        assert await live.queue() == url


async def test_a_queue_too_many_is_throttled_and_leaves_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, queue={"queues_max": 1}) as live:
        await live.queue("first")
        refused = await live.refused("create_queue", QueueName="second")
        assert refused.exception == "RequestThrottled"
        assert refused.status == 403
        assert [topic.name.name for topic in live.kernel.topics.topics()] == ["first"]


async def test_a_queue_on_a_topic_begins_at_its_end_and_leaves_it(live: Live) -> None:
    topics = live.kernel.topics
    name = TopicName("default", "orders.v1")
    topic = await topics.create(name, partitions=3)
    url = await live.queue("orders.v1")
    queue = live.kept("orders.v1")
    assert queue.topic is topic
    assert not queue.owns_topic
    assert await live.queue("orders.v1") == url
    await live.call("delete_queue", QueueUrl=url)
    assert topics.find(name) is topic


async def test_a_topic_that_a_crash_left_without_its_queue_is_taken_up(live: Live) -> None:
    topics = live.kernel.topics
    name = TopicName("default", "orders")
    left = await topics.create(name, partitions=1, configs=QUEUE_TOPIC_CONFIGS)
    url = await live.queue()
    assert live.kept().topic is left
    assert live.kept().owns_topic
    await live.call("delete_queue", QueueUrl=url)
    assert topics.find(name) is None


async def test_a_topic_that_another_group_reads_is_not_taken_for_left_over(live: Live) -> None:
    name = TopicName("default", "orders")
    topic = await live.kernel.topics.create(name, partitions=1, configs=QUEUE_TOPIC_CONFIGS)
    await live.kernel.queues.create(topic, QueueSettings(), group="others")
    await live.queue()
    assert not live.kept().owns_topic


async def test_a_topic_cannot_be_taken_for_a_fifo_queue_without_saying_so(live: Live) -> None:
    await live.kernel.topics.create(TopicName("default", "orders.fifo"))
    refused = await live.refused("create_queue", QueueName="orders.fifo")
    assert refused.code == "InvalidParameterValue"
    assert (await live.queue("orders.fifo")).endswith("orders.fifo")


async def test_the_gateways_own_streams_are_no_queues(live: Live) -> None:
    refused = await live.refused("create_queue", QueueName="__queues")
    assert refused.exception == "UnsupportedOperation"
    assert refused.message == "The name __queues is reserved."


async def test_accounts_and_regions_have_queues_of_their_own(tmp_path: Path) -> None:
    more = {"accounts": ["111111111111"], "regions": ["eu-west-1"]}
    async with running(tmp_path, sqs=more) as live:
        other = live.client(("111111111111", "x"), "eu-west-1")
        urls = [await live.queue(), await live.queue(by=other)]
        assert urls == [
            f"{live.url}/{ACCOUNT}/orders",
            f"{live.url}/queue/eu-west-1/111111111111/orders",
        ]
        assert live.kept() is not live.kept("orders", "sqs-111111111111-eu-west-1")


async def test_what_a_queue_was_made_with_is_stored(live: Live) -> None:
    await live.queue("dead")
    policy = {"deadLetterTargetArn": live.arn("dead"), "maxReceiveCount": 3}
    await live.queue(RedrivePolicy=json.dumps(policy), DelaySeconds="5")
    rows = {row.settings.dead_letter_topic: row for row in await live.kernel.metadata.queues()}
    row = rows["dead"]
    assert (row.settings.attempts_max, row.settings.delay_ms) == (3, 5_000)
    assert row.attributes == {"sqs.MaximumMessageSize": "1048576"}
    assert row.owns_topic


async def test_a_queue_that_another_made_on_the_topic_meanwhile_stays(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = live.kernel.topics
    create = topics.create

    async def create_and_be_overtaken(*args: Any, **kwargs: Any) -> Any:
        topic = await create(*args, **kwargs)
        await live.kernel.queues.create(topic, QueueSettings())
        return topic

    monkeypatch.setattr(topics, "create", create_and_be_overtaken)

    refused = await live.refused("create_queue", QueueName="orders")

    assert refused.code == "QueueAlreadyExists"
    assert not live.kept().is_gone
