"""SetQueueAttributes."""

import asyncio
import json
from typing import Any

import pytest

from tests.adapters.sqs.handlers.messages import change as change_visibility
from tests.adapters.sqs.handlers.messages import receive, receive_one, send
from tests.adapters.sqs.handlers.serving import Live


async def change(live: Live, url: str, **attributes: str) -> None:
    assert await live.call("set_queue_attributes", QueueUrl=url, Attributes=attributes) == {}


async def test_what_is_named_changes_and_the_rest_stays(live: Live) -> None:
    url = await live.queue(VisibilityTimeout="45", MaximumMessageSize="2048")
    before = await live.attributes(url)
    await change(live, url, VisibilityTimeout="0", ReceiveMessageWaitTimeSeconds="20")
    assert await live.attributes(url) == {
        **before,
        "VisibilityTimeout": "0",
        "ReceiveMessageWaitTimeSeconds": "20",
    }


async def test_changes_at_once_are_all_made(live: Live) -> None:
    url = await live.queue()
    wanted = {"VisibilityTimeout": "1", "DelaySeconds": "2", "MaximumMessageSize": "3000"}
    clients = [live.client() for _ in wanted]
    await asyncio.gather(
        *[
            live.call("set_queue_attributes", by=client, QueueUrl=url, Attributes={name: value})
            for client, (name, value) in zip(clients, wanted.items(), strict=True)
        ]
    )
    assert wanted.items() <= (await live.attributes(url)).items()


async def test_all_of_a_request_or_nothing(live: Live) -> None:
    url = await live.queue()
    before = await live.attributes(url)
    live.clock.advance(5_000)
    attributes = {"VisibilityTimeout": "1", "DelaySeconds": "901"}
    refused = await live.refused("set_queue_attributes", QueueUrl=url, Attributes=attributes)
    assert refused.exception == "InvalidAttributeValue"
    assert refused.message == "Invalid value for the parameter DelaySeconds."
    assert await live.attributes(url) == before


async def test_policies_and_keys_are_removed_by_an_empty_text(live: Live) -> None:
    await live.queue("dead")
    statement = {"Effect": "Allow", "Principal": "*", "Action": "sqs:*", "Resource": "*"}
    target = {"deadLetterTargetArn": live.arn("dead"), "maxReceiveCount": 7}
    given = {
        "KmsMasterKeyId": "alias/aws/sqs",
        "Policy": json.dumps({"Statement": statement}),
        "RedriveAllowPolicy": '{"redrivePermission": "denyAll"}',
        "RedrivePolicy": json.dumps(target),
    }
    url = await live.queue(**given)
    assert given.keys() <= (await live.attributes(url)).keys()
    await change(live, url, **dict.fromkeys(given, ""))
    assert not given.keys() & (await live.attributes(url)).keys()
    assert live.kept().settings.attempts_max == 0


@pytest.mark.parametrize(
    ("name", "value", "code", "words"),
    [
        ("Color", "red", "InvalidAttributeName", "Unknown Attribute Color."),
        ("QueueArn", "x", "InvalidAttributeName", "Unknown Attribute QueueArn."),
        ("FifoQueue", "true", "InvalidAttributeName", "Unknown Attribute FifoQueue."),
        ("DeduplicationScope", "queue", "InvalidAttributeName", "only with FIFO Queues"),
        ("VisibilityTimeout", "-1", "InvalidAttributeValue", "parameter VisibilityTimeout."),
        ("MaximumMessageSize", "1023", "InvalidAttributeValue", "MaximumMessageSize."),
        ("MessageRetentionPeriod", "59", "InvalidAttributeValue", "MessageRetentionPeriod."),
        ("Policy", "{}", "InvalidAttributeValue", "parameter Policy."),
        ("RedrivePolicy", "x", "InvalidAttributeValue", "not a valid JSON map"),
        ("RedrivePolicy", "{}", "InvalidParameterValue", "mandatory attribute"),
        ("RedriveAllowPolicy", "{}", "InvalidAttributeValue", "unsupported format"),
        (
            "RedriveAllowPolicy",
            '{"redrivePermission":"byQueue"}',
            "InvalidParameterValue",
            "one or more sourceQueueArns",
        ),
    ],
)
async def test_wrong_attributes_are_refused(
    live: Live, name: str, value: str, code: str, words: str
) -> None:
    url = await live.queue()
    refused = await live.refused("set_queue_attributes", QueueUrl=url, Attributes={name: value})
    assert refused.code == code
    assert words in refused.message


async def test_nothing_to_set_is_a_missing_parameter(live: Live) -> None:
    url = await live.queue()
    requests: list[dict[str, Any]] = [{}, {"Attributes": {}}]
    for params in requests:
        refused = await live.refused("set_queue_attributes", QueueUrl=url, **params)
        assert refused.code == "MissingParameter"
        assert "Attributes" in refused.message


async def test_a_fifo_queue_stays_one(live: Live) -> None:
    url = await live.queue("orders.fifo")
    await change(live, url, FifoQueue="true")
    refused = await live.refused(
        "set_queue_attributes", QueueUrl=url, Attributes={"FifoQueue": "false"}
    )
    assert refused.exception == "InvalidAttributeValue"
    assert refused.message == (
        "Invalid value for the parameter FifoQueue. "
        "Reason: Modifying queue type is not supported."
    )


async def test_high_throughput_needs_both_attributes(live: Live) -> None:
    url = await live.queue("orders.fifo")
    by_group = {"FifoThroughputLimit": "perMessageGroupId"}
    refused = await live.refused("set_queue_attributes", QueueUrl=url, Attributes=by_group)
    assert refused.exception == "InvalidAttributeValue"
    await change(live, url, **by_group, DeduplicationScope="messageGroup")


async def test_more_than_20_statements_are_over_the_limit(live: Live) -> None:
    url = await live.queue()
    statement = {"Effect": "Allow", "Principal": "*", "Action": "sqs:*", "Resource": "*"}
    refused = await live.refused(
        "set_queue_attributes",
        QueueUrl=url,
        Attributes={"Policy": json.dumps({"Statement": [statement] * 21})},
    )
    assert refused.exception == "OverLimit"
    assert refused.status == 403


async def test_a_condition_that_nobody_could_answer_is_an_unsupported_operation(
    live: Live,
) -> None:
    url = await live.queue()
    statement = {
        "Effect": "Allow",
        "Principal": "*",
        "Action": "sqs:SendMessage",
        "Resource": live.arn("orders"),
        "Condition": {"StringEquals": {"aws:ResourceTag/team": "a"}},
    }
    policy = {"Policy": json.dumps({"Statement": [statement]})}
    refused = await live.refused("set_queue_attributes", QueueUrl=url, Attributes=policy)
    assert refused.exception == "UnsupportedOperation"
    for_sns = {**statement, "Principal": {"Service": "sns.amazonaws.com"}}
    await change(live, url, Policy=json.dumps({"Statement": [for_sns]}))


class Targets:
    """Illegal dead-letter queues."""

    @staticmethod
    async def refused(live: Live, arn: str, name: str = "orders") -> str:
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 3})
        refused = await live.refused(
            "set_queue_attributes",
            QueueUrl=f"{live.url}/000000000000/{name}",
            Attributes={"RedrivePolicy": policy},
        )
        assert refused.code == "InvalidParameterValue"
        start = f"Value {policy} for parameter RedrivePolicy is invalid. Reason: "
        assert refused.message.startswith(start)
        return refused.message.removeprefix(start)


async def test_a_dead_letter_queue_is_another_that_is_there(live: Live) -> None:
    await live.queue()
    arn = live.arn("dead")
    assert await Targets.refused(live, arn) == "Dead letter target does not exist."
    wrong = "Invalid value for deadLetterTargetArn."
    assert await Targets.refused(live, "dummy") == wrong
    assert await Targets.refused(live, arn.replace(":sqs:", ":sns:")) == wrong
    own = "Dead-letter target is the source itself."
    assert await Targets.refused(live, live.arn("orders")) == own


async def test_a_dead_letter_queue_has_the_same_owner_and_region(live: Live) -> None:
    await live.queue()
    arn = live.arn("dead")
    other_owner = arn.replace("000000000000", "111111111111")
    assert "owner should be same" in await Targets.refused(live, other_owner)
    other_region = arn.replace("us-east-1", "eu-west-1")
    assert "region should be same" in await Targets.refused(live, other_region)


@pytest.mark.parametrize(("name", "dead"), [("a", "dead.fifo"), ("a.fifo", "dead")])
async def test_a_dead_letter_queue_is_of_the_same_kind(
    live: Live, name: str, dead: str
) -> None:
    await live.queue(name)
    await live.queue(dead)
    reason = "Dead-letter queue must be same type of queue as the source."
    assert await Targets.refused(live, live.arn(dead), name) == reason


@pytest.mark.parametrize(
    ("allow", "is_allowed"),
    [
        ({"redrivePermission": "allowAll"}, True),
        ({"redrivePermission": "denyAll"}, False),
        ({"redrivePermission": "byQueue", "sourceQueueArns": ["ORDERS"]}, True),
        ({"redrivePermission": "byQueue", "sourceQueueArns": ["OTHERS"]}, False),
    ],
)
async def test_a_dead_letter_queue_says_whose_it_is(
    live: Live,
    allow: dict[str, Any],
    is_allowed: bool,  # noqa: FBT001
) -> None:
    arns = [live.arn(name.lower()) for name in allow.get("sourceQueueArns", [])]
    permission = {**allow, "sourceQueueArns": arns} if arns else allow
    await live.queue("dead", RedriveAllowPolicy=json.dumps(permission))
    url = await live.queue()
    policy = json.dumps({"deadLetterTargetArn": live.arn("dead"), "maxReceiveCount": 3})
    if is_allowed:
        await change(live, url, RedrivePolicy=policy)
        assert live.kept().settings.dead_letter_topic == "dead"
    else:
        assert "redrive allow policy" in await Targets.refused(live, live.arn("dead"))


async def test_a_change_of_the_delay_is_for_what_waits_in_fifo_queues_only(live: Live) -> None:
    url = await live.queue()
    fifo = await live.queue("orders.fifo", ContentBasedDeduplication="true")
    await send(live, url, "before")
    await send(live, fifo, "before", MessageGroupId="g")
    await change(live, url, DelaySeconds="300")
    await change(live, fifo, DelaySeconds="300")
    assert (await receive_one(live, url))["Body"] == "before"
    assert await receive(live, fifo) == []
    receiving = asyncio.create_task(receive(live, fifo, WaitTimeSeconds=20))
    await change(live, fifo, DelaySeconds="0")
    assert [message["Body"] for message in await receiving] == ["before"]


async def test_without_its_dead_letter_queue_messages_are_received_on(live: Live) -> None:
    dead = await live.queue("dead")
    policy = {"deadLetterTargetArn": live.arn("dead"), "maxReceiveCount": 1}
    url = await live.queue(RedrivePolicy=json.dumps(policy))
    await send(live, url, "poison")
    await live.call("delete_queue", QueueUrl=dead)
    for count in ("1", "2", "3"):
        message = await receive_one(live, url, MessageSystemAttributeNames=["All"])
        assert message["Attributes"]["ApproximateReceiveCount"] == count
        await change_visibility(live, url, message, 0)
    await change(live, url, RedrivePolicy="")
    assert (await receive_one(live, url))["Body"] == "poison"
