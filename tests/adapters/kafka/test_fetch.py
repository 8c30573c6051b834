"""Fetch over real sockets: waits, errors, limits, the fetch budget, deleted topics."""

import asyncio
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Never

import pytest

from adapters.kafka.fetching import pending_fetch
from gateway.model import Buffer, TopicName
from gateway.partition import Partition
from tests.adapters.kafka.running_adapter import DEADLINE_S, MIB, Live, fetch, produce, running
from tests.support.batches import sample_batch
from tests.support.kafka_wire import FETCH, fetch_records, produce_errors, request, text
from tests.support.waiting import until

ORDERS = TopicName("default", "orders")


def partition_of(live: Live, number: int = 0) -> Partition:
    return live.kernel.broker.partition(live.kernel.topics.get(ORDERS), number)


def many(
    wanted: Sequence[tuple[str, int, int]],
    *,
    wait_ms: int = 60_000,
    bytes_min: int = 1,
    bytes_max: int = 50 * MIB,
    partition_bytes_max: int = 50 * MIB,
) -> bytes:
    """Return a Fetch v4 request for (topic, partition, offset), one topic entry each."""
    out = [struct.pack(">iiiibi", -1, wait_ms, bytes_min, bytes_max, 0, len(wanted))]
    for topic, number, offset in wanted:
        out += [text(topic), struct.pack(">iiqi", 1, number, offset, partition_bytes_max)]
    return request(FETCH, 4, 1, b"".join(out))


def results(answer: bytes) -> list[tuple[int, int]]:
    """Return (error code, bytes of records) of each partition."""
    at, found = 8, []
    for _ in range(struct.unpack_from(">i", answer, 4)[0]):
        at += 2 + struct.unpack_from(">h", answer, at)[0] + 4
        _, code, _, _, _, size = struct.unpack_from(">ihqqii", answer, at)
        at += 30 + size
        found.append((code, size))
    return found


async def appended(live: Live, *, number: int = 0, count: int = 1, **batch: Any) -> int:
    """Produce batches; return the size of each."""
    client = await live.client()
    data = sample_batch(**batch)
    for n in range(count):
        client.send(produce(n, data, number=number))
        assert produce_errors((await client.answer())[1])[0][0] == 0
    return len(data)


async def test_an_unknown_topic_does_not_cut_the_wait_for_others_short(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        client.send(many([("gone", 0, 0), ("orders", 7, 0), ("orders", 0, 0)]))
        await until(lambda: bool(partition_of(live).waiters))
        size = await appended(live)
        assert results((await client.answer())[1]) == [(3, 0), (3, 0), (0, size)]


async def test_with_unknown_topics_alone_there_is_nothing_to_wait_for(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        client.send(many([("gone", 0, 0)]))
        assert results((await client.answer())[1]) == [(3, 0)]


async def test_an_error_at_reading_is_answered_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        client.send(many([("orders", 0, 99), ("orders", 1, 0)]))
        assert results((await client.answer())[1]) == [(1, 0), (0, 0)]
        assert not partition_of(live, 1).waiters


async def test_a_topic_that_is_deleted_wakes_the_fetch_that_waits_for_it(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        client.send(many([("orders", 0, 0), ("orders", 1, 0)]))
        await until(lambda: bool(partition_of(live, 1).waiters))
        await live.kernel.topics.delete(ORDERS)
        assert results((await client.answer())[1]) == [(3, 0), (3, 0)]


async def test_more_bytes_than_the_maximum_are_not_waited_for(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        size = await appended(live, count=3)
        client = await live.client()
        client.send(many([("orders", 0, 0)], bytes_min=50 * MIB, bytes_max=2 * size))
        assert results((await client.answer())[1]) == [(0, 2 * size)]


async def test_only_the_first_batch_may_be_above_the_limits(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        small = await appended(live, number=0)
        large = await appended(live, number=1, value=bytes(5000))
        client = await live.client()
        wanted = [("orders", 0, 0), ("orders", 1, 0)]
        client.send(many(wanted, bytes_max=small + 10))
        assert results((await client.answer())[1]) == [(0, small), (0, 0)]
        client.send(many(wanted[::-1], bytes_max=small + 10))
        assert results((await client.answer())[1]) == [(0, large), (0, 0)]


async def test_a_partition_that_is_named_twice_is_answered_twice(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        client.send(many([("orders", 0, 0), ("orders", 0, 0)]))
        await until(lambda: bool(partition_of(live).waiters))
        size = await appended(live)
        assert results((await client.answer())[1]) == [(0, size), (0, size)]


# --- the disk


def make_reads_wait(live: Live, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make every read wait for the disk; return the requested byte limits."""
    storage, asked = live.storage, []

    async def read(
        partition_id: int, start: int, end: int, *, bytes_max: int
    ) -> Sequence[Buffer]:
        asked.append(bytes_max)
        return warm(partition_id, start, end, bytes_max=bytes_max) or []

    warm = storage.read_cached
    monkeypatch.setattr(storage, "read", read)
    monkeypatch.setattr(storage, "read_cached", lambda *_args, **_kwargs: None)
    return asked


async def test_reads_from_the_disk_keep_the_limits_and_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, kafka={"fetch_bytes_max": 4096}) as live:
        size = await appended(live)
        asked = make_reads_wait(live, monkeypatch)
        client = await live.client()
        client.send(many([("orders", 0, 0)]))
        assert results((await client.answer())[1]) == [(0, size)]
        assert asked == [4096]
        await until(lambda: live.adapter.node.fetch_budget.bytes_taken == 0)


async def test_a_topic_deleted_while_its_disk_is_read_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as live:
        await appended(live)
        partition = partition_of(live)
        make_reads_wait(live, monkeypatch)
        monkeypatch.setattr(
            live.kernel.broker,
            "read_stored",
            lambda *_args, **_kwargs: setattr(partition, "is_gone", True),
        )
        client = await live.client()
        client.send(many([("orders", 0, 0)]))
        assert results((await client.answer())[1]) == [(3, 0)]


# --- the budget


async def test_a_fetch_that_finds_no_room_is_answered_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_fetch, "ROOM_WAIT_S_MAX", 0.05)
    async with running(tmp_path) as live:
        await appended(live)
        budget = live.adapter.node.fetch_budget
        budget.take(budget.bytes_max)
        client = await live.client()
        client.send(fetch(1, 0))
        assert fetch_records((await client.answer())[1]) == (0, 1, b"")
        assert budget.waiting_count == 0


async def test_a_client_that_goes_waits_for_no_room(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        budget = live.adapter.node.fetch_budget
        budget.take(budget.bytes_max)
        client = await live.client()
        client.send(fetch(1, 0, wait_ms=60_000))
        await until(lambda: budget.waiting_count == 1)
        client.writer.transport.abort()
        await until(lambda: budget.waiting_count == 0)


async def test_a_drain_does_not_wait_for_room(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        budget = live.adapter.node.fetch_budget
        budget.take(budget.bytes_max)
        client = await live.client()
        client.send(fetch(1, 0, wait_ms=60_000))
        await until(lambda: budget.waiting_count == 1)
        await live.adapter.drain(DEADLINE_S)
        assert fetch_records((await client.answer())[1]) == (0, 0, b"")


async def test_an_answer_that_waits_for_its_turn_counts(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await appended(live, value=bytes(MIB // 2))
        live.storage.held = True
        client = await live.client()
        client.send(produce(1, sample_batch(), number=1), fetch(2, 0))
        await until(lambda: bool(live.adapter.requests[FETCH]))
        budget = live.adapter.node.fetch_budget
        assert budget.bytes_taken > MIB // 2
        client.writer.transport.abort()
        await until(lambda: budget.bytes_taken == 0)


async def test_what_a_waiting_fetch_has_read_is_let_go(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await appended(live, value=bytes(MIB // 2))
        client = await live.client()
        client.send(many([("orders", 0, 0)], bytes_min=MIB))
        await until(lambda: bool(partition_of(live).waiters))
        assert live.adapter.node.fetch_budget.bytes_taken == 0
        size = await appended(live, value=bytes(MIB // 2))
        assert results((await client.answer())[1]) == [(0, 2 * size)]


async def test_a_bug_met_while_waiting_closes_that_connection_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        client.send(fetch(1, 0, wait_ms=60_000))
        await until(lambda: bool(partition_of(live).waiters))

        def fail(*_args: object, **_kwargs: object) -> Never:
            raise RuntimeError

        monkeypatch.setattr(live.kernel.broker, "read_stored", fail)
        writer = await live.client()
        writer.send(produce(2, sample_batch()))
        assert await client.ended()
        assert produce_errors((await writer.answer())[1]) == [(0, 0)]
        assert live.adapter.listener.faults["bug"] == 1


async def test_two_who_stall_leave_room_for_a_third(tmp_path: Path) -> None:
    async with running(tmp_path, broker={"fetch_bytes_budget": 48 * MIB}) as live:
        await appended(live, count=40, value=bytes(MIB - 2048))
        for _ in range(2):
            stalled = await live.client()
            stalled.send(fetch(1, 0))
        await until(lambda: live.adapter.requests[FETCH] == 2)
        third = await live.client()
        third.send(fetch(1, 0))
        async with asyncio.timeout(DEADLINE_S):
            assert fetch_records((await third.answer())[1])[2]


async def test_who_stalls_while_others_need_the_room_is_closed_soon(tmp_path: Path) -> None:
    async with running(tmp_path, broker={"fetch_bytes_budget": 48 * MIB}) as live:
        await appended(live, count=24, value=bytes(MIB - 2048))
        live.adapter.node.fetch_pacing.bytes_max(0)  # an answer since: large ones again
        client = await live.client()
        client.send(fetch(1, 0))
        listener, budget = live.adapter.listener, live.adapter.node.fetch_budget
        await until(lambda: not all(c.is_writable for c in listener.connections))
        [connection] = [c for c in listener.connections if not c.is_writable]
        now_s = listener.now_s
        assert connection.overdue(now_s) is None
        assert connection.overdue(now_s + 31) is None
        budget.wait(lambda: None)
        assert connection.overdue(now_s + 31) == "fetch_bytes_budget"


async def test_who_waits_for_much_gets_it_though_somebody_appends(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        client.send(many([("orders", 0, 0)], bytes_min=3 * MIB))
        await until(lambda: bool(partition_of(live).waiters))
        size = await appended(live, count=6, value=bytes(MIB // 2))
        assert results((await client.answer())[1]) == [(0, 6 * size)]
