"""ListDeadLetterSourceQueues."""

import json

import pytest

from gateway.queues.model import QueueSettings
from tests.adapters.sqs.handlers.serving import Live


async def with_sources(live: Live, *names: str) -> str:
    dead = await live.queue("dead")
    policy = json.dumps({"deadLetterTargetArn": live.arn("dead"), "maxReceiveCount": 3})
    for name in names:
        await live.queue(name, RedrivePolicy=policy)
    return dead


async def test_sources_are_listed_by_name(live: Live) -> None:
    dead = await with_sources(live, "b", "a")
    url = await live.queue("others")
    answer = await live.call("list_dead_letter_source_queues", QueueUrl=dead)
    found = [source.rpartition("/")[2] for source in answer["queueUrls"]]
    assert found == ["a", "b"]
    assert "NextToken" not in answer
    assert (await live.call("list_dead_letter_source_queues", QueueUrl=url))["queueUrls"] == []


async def test_a_queue_is_a_source_no_more(live: Live) -> None:
    dead = await with_sources(live, "a", "b")
    await live.call(
        "set_queue_attributes",
        QueueUrl=f"{live.url}/000000000000/a",
        Attributes={"RedrivePolicy": ""},
    )
    await live.call("delete_queue", QueueUrl=f"{live.url}/000000000000/b")
    answer = await live.call("list_dead_letter_source_queues", QueueUrl=dead)
    assert answer["queueUrls"] == []


async def test_other_groups_of_a_topic_are_no_queues_of_sqs(live: Live) -> None:
    dead = await with_sources(live)
    await live.queue("a")
    settings = QueueSettings(dead_letter_topic="dead", attempts_max=3)
    await live.kernel.queues.create(live.kept("a").topic, settings, group="others")
    answer = await live.call("list_dead_letter_source_queues", QueueUrl=dead)
    assert answer["queueUrls"] == []


async def test_pages_hold_every_source_once(live: Live) -> None:
    dead = await with_sources(live, "a", "b", "c")
    first = await live.call("list_dead_letter_source_queues", QueueUrl=dead, MaxResults=2)
    rest = await live.call(
        "list_dead_letter_source_queues",
        QueueUrl=dead,
        MaxResults=2,
        NextToken=first["NextToken"],
    )
    found = [url.rpartition("/")[2] for url in first["queueUrls"] + rest["queueUrls"]]
    assert found == ["a", "b", "c"]
    assert "NextToken" not in rest


@pytest.mark.parametrize(
    "params", [{"MaxResults": 0}, {"MaxResults": 1_001}, {"MaxResults": 1, "NextToken": "x"}]
)
async def test_wrong_pages_are_refused(live: Live, params: dict[str, object]) -> None:
    dead = await with_sources(live)
    refused = await live.refused("list_dead_letter_source_queues", QueueUrl=dead, **params)
    assert refused.code == "InvalidParameterValue"
