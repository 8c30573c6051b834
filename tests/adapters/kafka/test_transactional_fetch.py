"""Fetch at both isolation levels, with and without sessions, while transactions end."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.model import TopicName
from gateway.partition import Partition
from gateway.records.markers import Marker
from gateway.writer import Write
from tests.adapters.kafka.running_adapter import Client, Live, running
from tests.support.batches import sample_batch
from tests.support.fetch_sessions import (
    BY_NAME,
    FINAL,
    FULL,
    Answer,
    Fetched,
    session_answer,
    session_request,
)
from tests.support.kafka_wire import FETCH, batches_of, request
from tests.support.waiting import until

ORDERS = TopicName("default", "orders")
KEY = ("orders", 0)
UNCOMMITTED, COMMITTED = 0, 1
NEVER_MS = 300_000


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    async with running(tmp_path, partitions=1) as found:
        yield found


def partition_of(live: Live) -> Partition:
    return live.kernel.broker.partition(live.kernel.topics.get(ORDERS), 0)


async def append(live: Live, write: Write) -> None:
    live.kernel.broker.append([write], lambda _error: None)
    await until(lambda: partition_of(live).high_watermark == write.end_offset)


async def write(live: Live, producer_id: int = -1, value: bytes = b"v") -> None:
    """Append a batch of one record; of a producer's transaction if there is one."""
    fields: dict[str, Any] = {}
    if producer_id >= 0:
        partition = partition_of(live)
        known = partition.producers and {
            one.producer_id: one.last_batch for one in partition.producers.active()
        }
        last = known and known.get(producer_id)
        fields = {
            "producer_id": producer_id,
            "producer_epoch": 0,
            "base_sequence": last.next_sequence if last else 0,
            "is_transactional": True,
        }
    found = live.kernel.broker.prepare(
        partition_of(live), sample_batch(value=value, **fields), transaction_version=1
    )
    assert isinstance(found, Write)
    await append(live, found)


async def end(live: Live, producer_id: int, *, is_commit: bool) -> None:
    marker = Marker(producer_id, 0, is_commit)
    found = live.kernel.broker.prepare_marker(partition_of(live), marker, transaction_version=1)
    assert found is not None
    await append(live, found)


def send(
    client: Client, level: int, offset: int, *, version: int = BY_NAME, **more: Any
) -> None:
    body = session_request(version, 0, FINAL, {KEY: offset}, isolation_level=level, **more)
    client.send(request(FETCH, version, 1, body))


async def answer_of(client: Client, version: int = BY_NAME) -> Answer:
    return session_answer(version, (await client.answer())[1])


async def fetched(client: Client, level: int, offset: int, **more: Any) -> Fetched:
    send(client, level, offset, **more)
    return (await answer_of(client)).partitions[KEY]


def offsets(found: Fetched) -> list[int]:
    return [header.base_offset for header in batches_of(found.records)]


async def test_both_levels_get_what_is_theirs(live: Live) -> None:
    client = await live.client()
    await write(live)  # 0
    await write(live, 7)  # 1: aborted at 3
    await write(live, 8)  # 2: committed at 5
    await end(live, 7, is_commit=False)  # 3
    await write(live)  # 4
    await end(live, 8, is_commit=True)  # 5
    await write(live, 7)  # 6: open

    uncommitted = await fetched(client, UNCOMMITTED, 0)
    committed = await fetched(client, COMMITTED, 0)

    assert offsets(uncommitted) == [0, 1, 2, 3, 4, 5, 6]
    assert uncommitted.aborted is None
    assert offsets(committed) == [0, 1, 2, 3, 4, 5]
    assert committed.aborted == ((7, 1),)
    for found in (uncommitted, committed):
        assert (found.high_watermark, found.stable_end) == (7, 6)
    assert (await fetched(client, COMMITTED, 3)).aborted == ((7, 1),)
    for offset in (4, 6):
        assert (await fetched(client, COMMITTED, offset)).aborted == ()


async def test_aborted_transactions_behind_what_is_returned_are_not_listed(live: Live) -> None:
    client = await live.client()
    await write(live)
    await write(live, 7)
    await end(live, 7, is_commit=False)
    found = await fetched(client, COMMITTED, 0, partition_bytes_max=1)
    assert (offsets(found), found.aborted) == ([0], ())
    found = await fetched(client, COMMITTED, 1, partition_bytes_max=1)
    assert (offsets(found), found.aborted) == ([1], ((7, 1),))


async def test_a_committed_wait_ends_with_the_transaction(live: Live) -> None:
    client = await live.client()
    send(client, COMMITTED, 0, wait_ms=NEVER_MS)
    await until(lambda: bool(partition_of(live).waiters))
    await write(live, 7)
    await write(live)
    assert partition_of(live).waiters  # still
    await end(live, 7, is_commit=True)
    assert offsets((await answer_of(client)).partitions[KEY]) == [0, 1, 2]


async def test_an_uncommitted_wait_ends_with_the_batch(live: Live) -> None:
    client = await live.client()
    await write(live, 7)
    send(client, UNCOMMITTED, 1, wait_ms=NEVER_MS)
    await until(lambda: bool(partition_of(live).waiters))
    await write(live, 7)
    assert offsets((await answer_of(client)).partitions[KEY]) == [1]


async def test_a_committed_wait_for_many_bytes_counts_stable_ones(live: Live) -> None:
    client = await live.client()
    send(client, COMMITTED, 0, wait_ms=NEVER_MS, bytes_min=1_500)
    await until(lambda: bool(partition_of(live).waiters))
    await write(live, value=bytes(500))
    await write(live, 7, bytes(2_000))
    assert partition_of(live).waiters
    await end(live, 7, is_commit=False)
    found = (await answer_of(client)).partitions[KEY]
    assert (offsets(found), found.aborted) == ([0, 1, 2], ((7, 1),))


@pytest.mark.parametrize("level", [UNCOMMITTED, COMMITTED])
async def test_a_session_follows_its_isolation_level(live: Live, level: int) -> None:
    client = await live.client()

    async def ask(session: int, epoch: int, at: int | None, **more: Any) -> Answer:
        wanted: dict[Any, int] = {} if at is None else {KEY: at}
        body = session_request(BY_NAME, session, epoch, wanted, isolation_level=level, **more)
        client.send(request(FETCH, BY_NAME, 1, body))
        return await answer_of(client)

    session = (await ask(0, FULL, 0)).session_id
    await write(live, 7)
    first = await ask(session, 1, None, wait_ms=10)
    if level == UNCOMMITTED:
        assert offsets(first.partitions[KEY]) == [0]
        return
    assert first.partitions == {}  # the high watermark alone is told with the next batches
    body = session_request(BY_NAME, session, 2, {}, isolation_level=level, wait_ms=NEVER_MS)
    client.send(request(FETCH, BY_NAME, 1, body))
    await until(lambda: live.adapter.requests[FETCH] == 3)
    await write(live)
    await end(live, 7, is_commit=False)
    found = (await answer_of(client)).partitions[KEY]
    assert (offsets(found), found.aborted) == ([0, 1, 2], ((7, 0),))
