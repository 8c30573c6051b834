"""ListQueues."""

import asyncio
import json
from pathlib import Path

import pytest

from gateway.config.auth import AuthRule
from gateway.model import TopicName
from gateway.queues.model import QueueSettings
from tests.adapters.sqs.handlers.serving import Live, running


def names(answer: dict[str, list[str]]) -> list[str]:
    return [url.rpartition("/")[2] for url in answer.get("QueueUrls", [])]


async def test_queues_are_listed_by_name(live: Live) -> None:
    assert names(await live.call("list_queues")) == []
    urls = [await live.queue(name) for name in ("b", "a", "a-2", "c.fifo")]
    answer = await live.call("list_queues")
    assert sorted(answer["QueueUrls"]) == sorted(urls)
    assert names(answer) == ["a", "a-2", "b", "c.fifo"]
    assert "NextToken" not in answer


async def test_a_prefix_is_exact(live: Live) -> None:
    for name in ("a", "a-2", "A-3", "ba"):
        await live.queue(name)
    assert names(await live.call("list_queues", QueueNamePrefix="a")) == ["a", "a-2"]
    assert names(await live.call("list_queues", QueueNamePrefix="a*")) == []


async def test_pages_hold_every_queue_once(live: Live) -> None:
    every = [f"queue-{index}" for index in range(5)]
    for name in every:
        await live.queue(name)
    found: list[str] = []
    params: dict[str, str] = {}
    while True:
        answer = await live.call("list_queues", MaxResults=2, **params)
        found += names(answer)
        if "NextToken" not in answer:
            break
        params = {"NextToken": answer["NextToken"]}
    assert found == every


async def test_a_page_is_not_shifted_by_what_happens_meanwhile(live: Live) -> None:
    for name in ("a", "b", "c", "d"):
        await live.queue(name)
    first = await live.call("list_queues", MaxResults=2)
    await live.call("delete_queue", QueueUrl=f"{live.url}/000000000000/b")
    await live.queue("aa")
    rest = await live.call("list_queues", MaxResults=2, NextToken=first["NextToken"])
    assert names(rest) == ["c", "d"]
    assert "NextToken" not in rest


async def test_without_a_count_1000_queues_and_no_token(live: Live) -> None:
    make = live.kernel.topics.create
    topics = [await make(TopicName("default", f"q-{n:04}"), partitions=1) for n in range(1_001)]
    queues = live.kernel.queues
    await asyncio.gather(*[queues.create(topic, QueueSettings()) for topic in topics])
    answer = await live.call("list_queues")
    assert len(answer["QueueUrls"]) == 1_000
    assert "NextToken" not in answer
    first = await live.call("list_queues", MaxResults=1_000)
    rest = await live.call("list_queues", MaxResults=1_000, NextToken=first["NextToken"])
    assert names(rest) == ["q-1000"]


@pytest.mark.parametrize("count", [0, -1, 1_001])
async def test_a_page_has_1_to_1000_queues(live: Live, count: int) -> None:
    refused = await live.refused("list_queues", MaxResults=count)
    assert refused.code == "InvalidParameterValue"
    assert refused.message == (
        "Value for parameter MaxResults is invalid. "
        "Reason: MaxResults must be an integer between 1 and 1000."
    )


@pytest.mark.parametrize("token", ["x", "e30=", "W10=", "WzFd", "é", "[" * 5_000, "W" * 5_000])
async def test_a_token_that_is_none_is_refused(live: Live, token: str) -> None:
    refused = await live.refused("list_queues", MaxResults=1, NextToken=token)
    assert refused.code == "InvalidParameterValue"
    assert refused.message == "Invalid or expired next token."


async def test_a_token_is_for_the_same_request(live: Live) -> None:
    for name in ("a", "a-2"):
        await live.queue(name)
    token = (await live.call("list_queues", MaxResults=1))["NextToken"]
    refused = await live.refused(
        "list_queues", MaxResults=1, NextToken=token, QueueNamePrefix="a"
    )
    assert refused.code == "InvalidParameterValue"
    assert "must not change the other request parameters" in refused.message


async def test_other_groups_of_a_topic_are_no_queues_of_sqs(live: Live) -> None:
    await live.queue("a")
    await live.kernel.queues.create(live.kept("a").topic, QueueSettings(), group="others")
    assert names(await live.call("list_queues")) == ["a"]


async def test_only_the_callers_account_and_region(tmp_path: Path) -> None:
    more = {"accounts": ["111111111111"], "regions": ["eu-west-1"]}
    async with running(tmp_path, sqs=more) as live:
        other = live.client(("111111111111", "x"))
        far = live.client(region="eu-west-1")
        for client, name in ((live.boto, "a"), (other, "b"), (far, "c")):
            await live.queue(name, by=client)
        for client, name in ((live.boto, "a"), (other, "b"), (far, "c")):
            assert names(await live.call("list_queues", by=client)) == [name]


async def test_only_what_the_caller_may_know_of(tmp_path: Path) -> None:
    rules = (
        AuthRule(principal="alice", operation="all", resource="topic", pattern="any"),
        AuthRule(
            principal="bob", operation="describe", resource="topic", pattern="prefix", name="b"
        ),
    )
    async with running(tmp_path, rules=rules) as live:
        alice, bob = await live.user("alice"), await live.user("bob")
        for name in ("a", "b", "b-2", "c"):
            await live.queue(name, by=alice)
        assert names(await live.call("list_queues", by=alice)) == ["a", "b", "b-2", "c"]
        first = await live.call("list_queues", by=bob, MaxResults=1)
        assert names(first) == ["b"]
        rest = await live.call(
            "list_queues", by=bob, MaxResults=1, NextToken=first["NextToken"]
        )
        assert names(rest) == ["b-2"]
        policy = json.dumps({"deadLetterTargetArn": live.arn("b"), "maxReceiveCount": 3})
        for name in ("a", "b-2"):
            await live.call(
                "set_queue_attributes",
                by=alice,
                QueueUrl=f"{live.url}/000000000000/{name}",
                Attributes={"RedrivePolicy": policy},
            )
        sources = await live.call(
            "list_dead_letter_source_queues",
            by=bob,
            QueueUrl=f"{live.url}/000000000000/b",
        )
        assert [url.rpartition("/")[2] for url in sources["queueUrls"]] == ["b-2"]
