"""Clients above their quotas: throttle times, empty fetches, and sockets that are not read."""

import asyncio
import struct
from pathlib import Path
from typing import cast

import pytest

from features.quota.model import Entity, QuotaKey
from gateway.clock import ManualClock
from tests.adapters.kafka.running_adapter import Client, Live, fetch, produce, running
from tests.support.kafka_wire import (
    API_VERSIONS,
    FETCH,
    METADATA,
    batch,
    fetch_records,
    produce_errors,
    request,
    text,
)
from tests.support.waiting import until

PRODUCED = QuotaKey.PRODUCER_BYTE_RATE
CONSUMED = QuotaKey.CONSUMER_BYTE_RATE
REQUESTS = QuotaKey.REQUEST_PERCENTAGE
CLIENT = Entity(None, "wire")  # the client id of ``request``
BATCH = batch([bytes(10_000)], timestamp_ms=1_000)
FETCH_SESSION = 7
CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 19, 20, 37
THROTTLED = 89


def produce_throttle_ms(answer: bytes) -> int:
    (throttle_ms,) = struct.unpack(">i", answer[-4:])
    return int(throttle_ms)


def throttle_ms_of(answer: bytes) -> int:
    (throttle_ms,) = struct.unpack_from(">i", answer)
    return int(throttle_ms)


async def sent(client: Client, *frames: bytes) -> list[bytes]:
    client.send(*frames)
    return [(await client.answer())[1] for _ in frames]


def clock_of(live: Live) -> ManualClock:
    return cast("ManualClock", live.kernel.clock)


async def test_a_producer_is_throttled_and_its_next_request_waits(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.kernel.quotas.change(CLIENT, {PRODUCED: 1_000.0})
        client = await live.client()
        loop = asyncio.get_running_loop()
        first, second = (
            produce(1, BATCH[:]),
            produce(2, batch([bytes(100)], timestamp_ms=1_000)),
        )
        client.send(first, second)
        [(_, body)] = [await client.answer()]
        answered_s = loop.time()
        throttle_ms = produce_throttle_ms(body)
        assert produce_errors(body) == [(0, 0)]  # it was appended all the same
        assert 100 <= throttle_ms <= 200
        assert live.connection()._holds == {"quota"}
        _, body = await client.answer()
        assert loop.time() - answered_s >= throttle_ms / 1_000 - 0.05
        assert produce_errors(body) == [(0, 1)]
        counts = live.kernel.quotas.counts
        assert counts.count[PRODUCED] == 2
        assert counts.sum_ms[PRODUCED] >= throttle_ms


async def test_without_an_answer_a_producer_is_muted_too(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.kernel.quotas.change(CLIENT, {PRODUCED: 1_000.0, REQUESTS: 0.000_001})
        client = await live.client()
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        client.send(produce(1, BATCH, acks=0), request(API_VERSIONS, 0, 2, b""))
        correlation_id, _ = await client.answer()
        assert correlation_id == 2
        assert loop.time() - began_s >= 0.1
        assert live.kernel.quotas.counts.count[REQUESTS] == 1  # of ApiVersions alone


async def test_other_clients_are_not_throttled(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.kernel.quotas.change(Entity(None, "another"), {PRODUCED: 1.0})
        client = await live.client()
        [body] = await sent(client, produce(1, BATCH))
        assert produce_throttle_ms(body) == 0
        assert not live.connection()._holds


async def test_a_consumer_above_its_quota_gets_an_empty_answer(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        await sent(client, produce(1, BATCH), produce(2, BATCH))
        await live.kernel.quotas.change(CLIENT, {CONSUMED: 1_500.0})
        first, second = await sent(client, fetch(3, 0), fetch(4, 0))
        assert fetch_records(first)[2]
        assert throttle_ms_of(first) == 0
        assert second[4:] == bytes(4)  # no topics
        assert throttle_ms_of(second) > 0
        assert live.adapter.node.fetch_budget.free_bytes == (
            live.kernel.settings.broker.fetch_bytes_budget
        )
        clock_of(live).advance(11_000)  # a throttled answer was not charged
        [third] = await sent(client, fetch(5, 0))
        assert fetch_records(third)[2]


async def test_a_fetch_is_no_larger_than_its_quota_bears(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        for number in range(5):
            await sent(client, produce(number, BATCH))
        await live.kernel.quotas.change(CLIENT, {CONSUMED: 2_500.0})
        [body] = await sent(client, fetch(9, 0))
        assert len(BATCH) <= len(fetch_records(body)[2]) < 3 * len(BATCH)


def session_fetch(correlation_id: int, session_id: int, epoch: int, topics: bytes) -> bytes:
    head = struct.pack(">iiiibii", -1, 0, 1, 50 << 20, 0, session_id, epoch)
    return request(FETCH, FETCH_SESSION, correlation_id, head + topics + struct.pack(">i", 0))


async def test_a_fetch_session_outlives_a_throttled_answer(tmp_path: Path) -> None:
    topics = struct.pack(">i", 1) + text("orders")
    topics += struct.pack(">iiqqi", 1, 0, 0, 0, 50 << 20)
    none = struct.pack(">i", 0)
    async with running(tmp_path) as live:
        client = await live.client()
        await sent(client, produce(1, BATCH))
        [full] = await sent(client, session_fetch(2, 0, 0, topics))
        code, session_id = struct.unpack_from(">hi", full, 4)
        assert (code, session_id > 0) == (0, True)
        await live.kernel.quotas.change(CLIENT, {CONSUMED: 900.0})
        [throttled] = await sent(client, session_fetch(3, session_id, 1, none))
        assert throttle_ms_of(throttled) > 0
        assert struct.unpack_from(">hi", throttled, 4) == (0, session_id)
        assert len(throttled) == 4 + 6 + 4
        await live.kernel.quotas.change(CLIENT, {CONSUMED: None})
        [answer] = await sent(client, session_fetch(4, session_id, 2, none))
        assert len(answer) > len(BATCH)


async def test_a_request_quota_counts_the_time_of_requests(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.kernel.quotas.change(CLIENT, {REQUESTS: 0.000_1})
        client = await live.client()
        body = struct.pack(">i", -1)
        client.send(
            request(METADATA, 3, 1, body + b"\0"), request(METADATA, 3, 2, body + b"\0")
        )
        throttles = [throttle_ms_of((await client.answer())[1]) for _ in range(2)]
        assert throttles == [1_000, 1_000]  # a window at most


def create_topics(version: int, correlation_id: int, *names: str) -> bytes:
    """CreateTopics v2 to v4: one topic of two partitions for each name."""
    topics = [text(name) + struct.pack(">ihii", 2, -1, 0, 0) for name in names]
    body = struct.pack(">i", len(names)) + b"".join(topics) + struct.pack(">ib", 1_000, 0)
    return request(CREATE_TOPICS, version, correlation_id, body)


async def test_changes_of_topics_are_throttled_below_the_strict_versions(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as live:
        rate = QuotaKey.CONTROLLER_MUTATION_RATE
        await live.kernel.quotas.change(CLIENT, {rate: 0.18})
        client = await live.client()
        [first] = await sent(client, create_topics(4, 1, "a"))  # 2 partitions, 1.98 tokens
        assert 50 <= throttle_ms_of(first) <= 150
        client.send(request(API_VERSIONS, 0, 2, b""))
        await asyncio.sleep(0)
        assert live.connection()._holds == {"quota"}
        assert (await client.answer())[0] == 2


async def test_quotas_do_not_count_before_a_login(tmp_path: Path) -> None:
    async with running(tmp_path, user="ann") as live:
        await live.kernel.quotas.change(CLIENT, {REQUESTS: 0.000_001})
        client = await live.client()
        await sent(client, request(API_VERSIONS, 0, 1, b""))
        assert not live.kernel.quotas.counts.count


async def test_a_muted_connection_that_goes_leaves_nothing_behind(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.kernel.quotas.change(CLIENT, {PRODUCED: 1.0})
        client = await live.client()
        [body] = await sent(client, produce(1, BATCH))
        assert produce_throttle_ms(body) > 1_000_000
        connection = live.connection()
        connection.close()
        assert await client.ended()
        assert connection._mute._timer is None


async def test_an_answer_after_the_end_of_a_connection_keeps_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.kernel.quotas.change(CLIENT, {PRODUCED: 1.0})
        live.storage.held = True
        client = await live.client()
        client.send(produce(1, BATCH))
        await until(lambda: live.kernel.quotas.counts.count[PRODUCED] == 1)
        connection = live.connection()
        client.writer.close()
        connection.close()
        await until(lambda: connection.transport is None)
        live.storage.release()
        await until(lambda: connection._unacknowledged_bytes == 0)
        assert connection._mute._timer is None


@pytest.mark.parametrize("count", [1, 3])
async def test_an_address_makes_so_many_connections_a_second(
    tmp_path: Path, count: int
) -> None:
    async with running(tmp_path) as live:
        live.adapter.listener.admission._quota = live.kernel.quotas
        entity = Entity(ip="127.0.0.1")
        await live.kernel.quotas.change(entity, {QuotaKey.CONNECTION_CREATION_RATE: 1.0})
        for _ in range(10):
            client = await live.client()
            await sent(client, request(API_VERSIONS, 0, 1, b""))
        for _ in range(count):
            assert await (await live.client()).ended()
        assert live.adapter.listener.refused == count
        clock_of(live).advance(11_000)
        await sent(await live.client(), request(API_VERSIONS, 0, 1, b""))
