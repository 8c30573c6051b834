"""Pulls: offsets, limits, filters, waiting."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from adapters.rocketmq.remoting.client import RemotingClient
from adapters.rocketmq.remoting.wire import Command, RequestCode, ResponseCode
from gateway.futures import await_done
from gateway.model import TopicName
from gateway.partition import Partition
from gateway.records.codec import encode_batch
from gateway.writer import Write
from tests.adapters.rocketmq.running_adapter import (
    RunningRocketMq,
    pull,
    pull_fields,
    running,
    send,
)
from tests.support.waiting import turns, until

WAIT_MS = 50_000
FOUND, NOT_FOUND = ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND
MOVED, RETRY = ResponseCode.PULL_OFFSET_MOVED, ResponseCode.PULL_RETRY_IMMEDIATELY


def partition_of(live: RunningRocketMq, topic: str) -> Partition:
    found = live.kernel.topics.get(TopicName("default", topic))
    return live.kernel.broker.partition(found, 0)


async def append(live: RunningRocketMq, topic: str, *values: bytes, tag: str = "a") -> None:
    """Append records as one batch of another protocol."""
    partition = partition_of(live, topic)
    headers = [("rocketmq.tags", tag.encode())]
    records = [(1, None, value, headers) for value in values]
    write = live.kernel.broker.prepare(partition, encode_batch(records))
    assert isinstance(write, Write)
    await await_done(lambda on_done: live.kernel.broker.append([write], on_done))


async def filled(live: RunningRocketMq, *values: bytes) -> RemotingClient:
    """Return a client of a topic with these messages."""
    await live.topic("orders")
    client = await live.client()
    for value in values:
        await send(client, "orders", value)
    return client


def places(response: Command) -> tuple[int, ...]:
    names = ("nextBeginOffset", "minOffset", "maxOffset")
    return tuple(int(response.fields[name]) for name in names)


async def waiting_pull(live: RunningRocketMq, **changed: Any) -> "asyncio.Future[Command]":
    """Return a pull of ``orders`` from offset 0 on that waits."""
    client = await live.client()
    fields = pull_fields(
        "orders", 0, **{"sysFlag": 6, "suspendTimeoutMillis": WAIT_MS, **changed}
    )
    partition = partition_of(live, "orders")
    before = len(partition.waiters)
    call = asyncio.ensure_future(
        client.call(RequestCode.PULL_MESSAGE, fields, within_s=WAIT_MS / 1_000)
    )
    await until(lambda: len(partition.waiters) > before)
    return call


async def test_messages_come_in_order_from_an_offset_on(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await filled(live, b"0", b"1", b"2", b"3")
        response, messages = await pull(client, "orders", 1, maxMsgNums=2)
        assert (response.code, response.remark, places(response)) == (FOUND, "FOUND", (3, 0, 4))
        assert [(one.queue_offset, one.body) for one in messages] == [(1, b"1"), (2, b"2")]
        assert messages[0].topic == "orders"
        assert messages[0].stored_unix_ms == live.clock.unix_ms()


async def test_messages_of_other_protocols_come_too(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await filled(live)
        await append(live, "orders", *(b"%d" % number for number in range(100)))
        _, messages = await pull(client, "orders", 90, maxMsgNums=5)
        assert [one.body for one in messages] == [b"90", b"91", b"92", b"93", b"94"]
        assert messages[0].properties["TAGS"] == "a"


async def test_a_response_has_at_most_the_bytes_that_are_allowed(tmp_path: Path) -> None:
    async with running(tmp_path, pull_bytes_max=4_096) as live:
        client = await filled(live, b"x" * 10_000, b"y" * 3_000, b"z" * 3_000)
        for offset, count in ((0, 1), (1, 1), (2, 1)):
            response, messages = await pull(client, "orders", offset)
            assert (len(messages), places(response)[0]) == (count, offset + 1)


@pytest.mark.parametrize(
    ("offset", "code", "next_offset"),
    [(1, NOT_FOUND, 1), (2, MOVED, 1), (-1, MOVED, 0), (1 << 40, MOVED, 1)],
)
async def test_an_offset_without_a_message_has_a_code(
    offset: int, code: ResponseCode, next_offset: int, tmp_path: Path
) -> None:
    async with running(tmp_path) as live:
        client = await filled(live, b"0")
        response, messages = await pull(client, "orders", offset)
        assert (response.code, places(response)[0], messages) == (code, next_offset, [])


async def test_an_offset_that_was_deleted_is_moved_to_the_start(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await filled(live, b"0", b"1", b"2")
        live.kernel.broker.truncate_before(partition_of(live, "orders"), 2, lambda _error: None)
        response, _ = await pull(client, "orders", 0)
        assert (response.code, places(response)) == (MOVED, (2, 2, 3))


@pytest.mark.parametrize(
    ("expression", "kind", "found"),
    [
        ("a", "TAG", [0, 2]),
        ("b || c", "TAG", [1]),
        ("*", "TAG", [0, 1, 2]),
        ("", "", [0, 1, 2]),
        ("TAGS = 'a' and n > 5", "SQL92", [2]),
    ],
)
async def test_a_filter_selects(
    expression: str, kind: str, found: list[int], tmp_path: Path
) -> None:
    async with running(tmp_path) as live:
        client = await filled(live)
        for number, tag in enumerate("aba"):
            await send(client, "orders", b"x", f"TAGS\x01{tag}\x02n\x01{number * 4}\x02")
        response, messages = await pull(
            client, "orders", 0, subscription=expression, expressionType=kind
        )
        assert [one.queue_offset for one in messages] == found
        assert places(response)[0] == 3


async def test_what_a_filter_passes_over_is_not_looked_at_again(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await filled(live)
        await append(live, "orders", *(b"%d" % number for number in range(1_000)))
        response, messages = await pull(client, "orders", 0, subscription="other")
        assert (response.code, places(response)[0], messages) == (RETRY, 1_000, [])


@pytest.mark.parametrize(("expression", "kind"), [("a >", "SQL92"), ("||", "TAG"), ("a", "XX")])
async def test_a_filter_that_cannot_be_read_is_refused(
    expression: str, kind: str, tmp_path: Path
) -> None:
    async with running(tmp_path) as live:
        client = await filled(live, b"0")
        response, _ = await pull(
            client, "orders", 0, subscription=expression, expressionType=kind
        )
        assert response.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


async def test_a_pull_waits_for_a_message(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.topic("orders")
        call = await waiting_pull(live)
        await append(live, "orders", b"late")
        response = await call
        assert (response.code, places(response)) == (FOUND, (1, 0, 1))


async def test_a_waiting_pull_goes_on_when_its_filter_selects_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.topic("orders")
        call = await waiting_pull(live, subscription="wanted")
        await append(live, "orders", b"0", tag="other")
        await turns(20)
        assert not call.done()
        await append(live, "orders", b"1", tag="wanted")
        response = await call
        assert (response.code, places(response)[0]) == (FOUND, 2)


async def test_a_pull_ends_with_its_time(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.topic("orders")
        call = await waiting_pull(live, suspendTimeoutMillis=20)
        assert (await call).code == NOT_FOUND
        assert not partition_of(live, "orders").waiters


async def test_a_pull_that_waits_is_answered_when_the_node_drains(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.topic("orders")
        call = await waiting_pull(live)
        await live.adapter.drain(1)
        assert (await call).code == NOT_FOUND


async def test_a_pull_that_waits_ends_with_its_topic_and_with_its_connection(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as live:
        await live.topic("orders")
        partition = partition_of(live, "orders")
        call = await waiting_pull(live)
        other = await live.client()
        fields = pull_fields("orders", 0, sysFlag=6, suspendTimeoutMillis=WAIT_MS)
        left = asyncio.ensure_future(other.call(RequestCode.PULL_MESSAGE, fields))
        await until(lambda: len(partition.waiters) == 2)
        await other.close()
        await until(lambda: len(partition.waiters) == 1)
        await live.kernel.topics.delete(TopicName("default", "orders"))
        live.kernel.broker.delete_topic(partition.topic, lambda _error: None)
        assert (await call).code == ResponseCode.TOPIC_NOT_EXIST
        assert isinstance((await asyncio.gather(left, return_exceptions=True))[0], Exception)


async def test_pulls_wait_while_their_budget_is_taken(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await filled(live, b"0")
        budget = live.node.pull_budget
        budget.take(budget.bytes_max)
        call = asyncio.ensure_future(pull(client, "orders", 0))
        await until(lambda: budget.waiting_count == 1)
        budget.give_back(budget.bytes_max)
        response, _ = await call
        assert response.code == FOUND
        await until(lambda: not budget.bytes_taken)


async def test_without_its_subscription_a_pull_goes_by_the_heartbeat(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await filled(live, b"0")
        fields = {"sysFlag": 0, "subscription": "", "subVersion": 5}
        response, _ = await pull(client, "orders", 0, **fields)
        assert response.code == ResponseCode.SUBSCRIPTION_NOT_EXIST

        async def beat(topic: str, version: int) -> None:
            subscription = {"topic": topic, "subString": "a", "subVersion": version}
            consumer = {"groupName": "group", "subscriptionDataSet": [subscription]}
            await heart_beat(client, {"clientID": "c", "consumerDataSet": [consumer]})

        await beat("others", 5)
        response, _ = await pull(client, "orders", 0, **fields)
        assert response.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        await beat("orders", 4)
        response, _ = await pull(client, "orders", 0, **fields)
        assert response.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        await beat("orders", 5)
        response, _ = await pull(client, "orders", 0, **fields)
        assert response.code == RETRY  # the message has no tag


async def heart_beat(client: RemotingClient, data: object) -> Command:
    return await client.call(RequestCode.HEART_BEAT, body=json.dumps(data).encode())


async def test_a_pull_commits_the_offset_that_it_brings(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await filled(live, b"0", b"1")
        await pull(client, "orders", 1, sysFlag=5, commitOffset=1)
        where = {"consumerGroup": "group", "topic": "orders", "queueId": "0"}
        response = await client.call(RequestCode.QUERY_CONSUMER_OFFSET, where)
        assert response.fields == {"offset": "1"}


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"topic": "unknown"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"topic": "%RETRY%group"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": 1}, ResponseCode.SYSTEM_ERROR),
        ({"queueId": -1}, ResponseCode.SYSTEM_ERROR),
        ({"consumerGroup": ""}, ResponseCode.INVALID_PARAMETER),
        ({"queueOffset": "x"}, ResponseCode.SYSTEM_ERROR),
        ({"sysFlag": 5, "commitOffset": -1}, ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_a_pull_that_cannot_be_is_refused(
    given: dict[str, Any], code: ResponseCode, tmp_path: Path
) -> None:
    async with running(tmp_path) as live:
        client = await filled(live, b"0")
        changed = dict(given)
        topic = changed.pop("topic", "orders")
        response, _ = await pull(client, topic, 0, **changed)
        assert response.code == code
