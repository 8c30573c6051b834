"""The Kafka adapter over real sockets: order, one write per turn, bounds, malformed input."""

import asyncio
import struct
from pathlib import Path
from typing import Any

import pytest

from gateway.model import TopicName
from tests.adapters.kafka.running_adapter import DEADLINE_S, MIB, fetch, produce, running
from tests.support.batches import sample_batch
from tests.support.kafka_wire import (
    API_VERSIONS,
    FETCH,
    METADATA,
    PRODUCE,
    batches_of,
    fetch_records,
    produce_body,
    produce_errors,
    request,
)
from tests.support.waiting import until


def counting(tasks: list[Any]) -> Any:
    """Return a task factory that records every task."""

    def make(loop: asyncio.AbstractEventLoop, coro: Any, **kwargs: Any) -> asyncio.Task[Any]:
        tasks.append(coro)
        return asyncio.Task(coro, loop=loop, **kwargs)

    return make


# --- order, and what a run costs


async def test_a_run_of_produces_costs_one_write_and_no_task(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        client.send(request(METADATA, 1, 0, struct.pack(">i", 0)))
        await client.answer()
        tasks: list[Any] = []
        loop = asyncio.get_running_loop()
        loop.set_task_factory(counting(tasks))
        writes_before = live.adapter.listener.socket_writes
        client.send(*(produce(n, sample_batch(count=100)) for n in range(1, 21)))
        answers = [await client.answer() for _ in range(20)]
        loop.set_task_factory(None)
        assert [n for n, _ in answers] == list(range(1, 21))
        assert [produce_errors(body) for _, body in answers] == [
            [(0, 100 * n)] for n in range(20)
        ]
        assert live.adapter.listener.socket_writes - writes_before == 1
        assert tasks == []


async def test_answers_leave_in_the_order_of_the_requests(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        live.storage.held = True
        client.send(
            produce(1, sample_batch()),
            request(API_VERSIONS, 0, 2, b""),
            produce(3, sample_batch()),
        )
        await until(lambda: live.storage.enqueued == 2)
        live.storage.release()
        assert [(await client.answer())[0] for _ in range(3)] == [1, 2, 3]


async def test_nothing_is_acknowledged_or_readable_before_it_is_kept(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        writer, reader = await live.client(), await live.client()
        live.storage.held = True
        writer.send(produce(1, sample_batch(count=3)))
        await until(lambda: live.storage.enqueued == 1)
        reader.send(fetch(2, 0))
        _, body = await reader.answer()
        assert fetch_records(body) == (0, 0, b"")
        live.storage.release()
        assert produce_errors((await writer.answer())[1]) == [(0, 0)]
        reader.send(fetch(3, 0))
        code, high_watermark, records = fetch_records((await reader.answer())[1])
        assert (code, high_watermark, len(batches_of(records))) == (0, 3, 1)


async def test_a_waiting_fetch_is_answered_by_the_append_it_waited_for(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        writer, reader = await live.client(), await live.client()
        reader.send(fetch(1, 0, wait_ms=60_000))
        orders = live.kernel.topics.get(TopicName("default", "orders"))
        partition = live.kernel.broker.partition(orders, 0)
        await until(lambda: bool(partition.waiters))
        writer.send(produce(2, sample_batch(count=5)))
        _, body = await reader.answer()
        assert fetch_records(body)[1] == 5
        assert not partition.waiters


async def test_a_fetch_waits_its_time_and_no_longer(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        client.send(fetch(1, 0, wait_ms=50))
        assert fetch_records((await client.answer())[1]) == (0, 0, b"")


async def test_what_comes_after_a_waiting_fetch_is_answered_after_it(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        client.send(fetch(1, 0, wait_ms=50), request(API_VERSIONS, 0, 2, b""))
        assert [(await client.answer())[0] for _ in range(2)] == [1, 2]


async def test_a_client_that_goes_leaves_no_waiter(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        client.send(fetch(1, 0, wait_ms=60_000))
        orders = live.kernel.topics.get(TopicName("default", "orders"))
        partition = live.kernel.broker.partition(orders, 0)
        await until(lambda: bool(partition.waiters))
        client.writer.close()
        await until(lambda: not partition.waiters)


async def test_drain_answers_what_waits(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        reader, writer = await live.client(), await live.client()
        reader.send(fetch(1, 0, wait_ms=60_000))
        live.storage.held = True
        writer.send(produce(2, sample_batch()))
        await until(lambda: live.storage.enqueued == 1 and bool(live.adapter.requests[1]))
        draining = asyncio.ensure_future(live.adapter.drain(DEADLINE_S))
        assert (await reader.answer())[0] == 1
        assert not draining.done()
        live.storage.release()
        assert produce_errors((await writer.answer())[1]) == [(0, 0)]
        await draining


# --- idempotent producers


def idempotent(sequence: int, *, epoch: int = 0) -> bytearray:
    return sample_batch(count=10, producer_id=9, producer_epoch=epoch, base_sequence=sequence)


async def test_a_duplicate_of_a_pending_batch_is_answered_when_the_batch_is_kept(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as live:
        first, second = await live.client(), await live.client()
        live.storage.held = True
        first.send(produce(1, idempotent(0)))
        await until(lambda: live.storage.enqueued == 1)
        second.send(produce(2, idempotent(0)))
        await until(lambda: live.kernel.broker.writer.duplicates_answered == 1)
        assert live.adapter.listener.socket_writes == 0
        live.storage.release()
        assert produce_errors((await first.answer())[1]) == [(0, 0)]
        assert produce_errors((await second.answer())[1]) == [(0, 0)]
        assert live.storage.enqueued == 1


@pytest.mark.parametrize(("sequence", "epoch", "code"), [(11, 0, 45), (0, -1, 87)])
async def test_sequences_that_do_not_follow_are_refused(
    tmp_path: Path, sequence: int, epoch: int, code: int
) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        client.send(produce(1, idempotent(0)), produce(2, idempotent(sequence, epoch=epoch)))
        await client.answer()
        assert produce_errors((await client.answer())[1]) == [(code, -1)]


# --- bounds (law 5)


async def test_producers_are_paused_at_wal_queued_bytes_max_and_readers_are_not(
    tmp_path: Path,
) -> None:
    broker = {"wal_queued_bytes_max": 2 * MIB, "wal_queued_bytes_low": MIB}
    async with running(tmp_path, broker=broker) as live:
        writer, reader = await live.client(), await live.client()
        live.storage.held = True
        batch = sample_batch(value=bytes(256 * 1024))
        client_frames = [produce(n, batch) for n in range(32)]
        writer.send(*client_frames)
        reader.send(request(API_VERSIONS, 0, 1, b""))
        await reader.answer()
        await until(lambda: live.kernel.broker.writer.is_saturated)
        assert live.storage.queued_bytes < 2 * MIB + len(batch)
        reader.send(fetch(2, 0))
        assert (await reader.answer())[0] == 2
        live.storage.release()
        assert [(await writer.answer())[0] for _ in range(32)] == list(range(32))


async def test_a_connection_is_paused_at_unacknowledged_bytes_max(tmp_path: Path) -> None:
    async with running(tmp_path, kafka={"unacknowledged_bytes_max": MIB}) as live:
        client = await live.client()
        live.storage.held = True
        batch = sample_batch(value=bytes(256 * 1024))
        client.send(*(produce(n, batch) for n in range(16)))
        await until(lambda: live.storage.enqueued == 4)
        assert live.connection().is_held_but_for("requests")
        live.storage.release()
        assert [(await client.answer())[0] for _ in range(16)] == list(range(16))
        assert live.storage.enqueued == 16


async def test_a_connection_is_paused_at_requests_queued_max(tmp_path: Path) -> None:
    async with running(tmp_path, kafka={"requests_queued_max": 4}) as live:
        client = await live.client()
        client.send(
            fetch(0, 0, wait_ms=100), *(request(API_VERSIONS, 0, n, b"") for n in range(1, 9))
        )
        await until(lambda: bool(live.adapter.requests[1]))
        assert live.connection().is_held_but_for("anything else")
        assert [(await client.answer())[0] for _ in range(9)] == list(range(9))


async def test_stalled_consumers_hold_no_more_than_the_fetch_budget(tmp_path: Path) -> None:
    broker = {"fetch_bytes_budget": 8 * MIB}
    async with running(tmp_path, broker=broker) as live:
        writer = await live.client()
        batch = sample_batch(value=bytes(MIB - 2048))
        for n in range(24):
            writer.send(produce(n, batch))
            await writer.answer()
        stalled = [await live.client() for _ in range(6)]
        for client in stalled:
            client.send(fetch(1, 0, wait_ms=1))
        budget = live.adapter.node.fetch_budget
        await until(lambda: live.adapter.requests[1] == 6)
        assert budget.bytes_taken <= budget.bytes_max + len(batch)
        for client in stalled:  # each is served in its turn, as the others take theirs
            code, _, records = fetch_records((await client.answer())[1])
            assert code == 0
            assert records
        await until(lambda: budget.bytes_taken == 0)


async def test_a_stalled_consumer_that_goes_gives_its_budget_back(tmp_path: Path) -> None:
    async with running(tmp_path, broker={"fetch_bytes_budget": 48 * MIB}) as live:
        writer, stalled = await live.client(), await live.client()
        for n in range(24):
            writer.send(produce(n, sample_batch(value=bytes(MIB - 2048))))
            await writer.answer()
        live.adapter.node.fetch_pacing.bytes_max(0)  # an answer since: large ones again
        stalled.send(fetch(1, 0))
        budget = live.adapter.node.fetch_budget
        await until(lambda: budget.bytes_taken > 0)
        stalled.writer.transport.abort()
        await until(lambda: budget.bytes_taken == 0)


# --- bad input


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", -5),
        struct.pack(">i", 4) + bytes(4),
        request(999, 0, 1, b""),
        request(PRODUCE, 2, 1, b""),
        request(PRODUCE, 3, 1, b"\x00"),
        request(FETCH, 99, 1, b""),
        struct.pack(">ihhih", 10, 3, 1, 7, 100),
        b"GET / HTTP/1.1\r\nHost: headgate\r\n\r\n",
    ],
)
async def test_garbage_closes_its_connection_and_no_other(tmp_path: Path, data: bytes) -> None:
    async with running(tmp_path) as live:
        good, bad = await live.client(), await live.client()
        bad.send(data)
        assert await bad.ended()
        good.send(request(API_VERSIONS, 0, 1, b""))
        assert (await good.answer())[0] == 1
        assert live.adapter.listener.faults["PeerError"] == 1
        assert live.adapter.listener.faults["bug"] == 0


async def test_a_pipelined_request_whose_handler_is_not_loaded_does_not_hold_up_the_next(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        live.adapter.handlers.pop(PRODUCE)
        live.storage.held = True
        client.send(*[produce(number, sample_batch()) for number in (1, 2, 3)])
        await until(lambda: live.storage.enqueued == 3)
        live.storage.release()
        assert [(await client.answer())[0] for _ in range(3)] == [1, 2, 3]


async def test_an_unknown_api_versions_version_is_answered_with_version_0(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        client.send(request(API_VERSIONS, 99, 1, b""))
        _, body = await client.answer()
        code, count = struct.unpack_from(">hi", body)
        assert code == 35
        assert count > 30
        assert len(body) == 6 + 6 * count


async def test_what_is_not_served_is_not_advertised(tmp_path: Path) -> None:
    """Delegation tokens (38 to 41), telemetry (71, 72), Streams groups (88, 89)."""
    async with running(tmp_path) as live:
        client = await live.client()
        client.send(request(API_VERSIONS, 0, 1, b""))
        _, body = await client.answer()
        (count,) = struct.unpack_from(">i", body, 2)
        keys = {struct.unpack_from(">h", body, 6 + 6 * number)[0] for number in range(count)}
        assert {0, 1, 18, 48, 49} <= keys
        assert keys.isdisjoint({38, 39, 40, 41, 71, 72, 88, 89})


@pytest.mark.parametrize(
    ("batch", "number", "code"),
    [
        (sample_batch()[:-1], 0, 2),
        (sample_batch()[:40], 0, 2),
        (sample_batch() + sample_batch(), 0, 87),
        (b"", 0, 2),
        (sample_batch(), 7, 3),
        (sample_batch(value=bytes(2 * MIB)), 0, 10),
        (sample_batch(timestamp_unix_ms=1_700_000_000_000 + 3_600_001), 0, 32),
    ],
)
async def test_a_bad_batch_is_answered_with_its_code_and_the_connection_goes_on(
    tmp_path: Path, batch: bytes, number: int, code: int
) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        client.send(produce(1, batch, number=number), produce(2, sample_batch()))
        assert produce_errors((await client.answer())[1]) == [(code, -1)]
        assert produce_errors((await client.answer())[1]) == [(0, 0)]


async def test_one_bad_partition_does_not_hold_up_the_others(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        bad = bytes(sample_batch()[:-1])
        body = produce_body(
            [("orders", 0, bytes(sample_batch())), ("orders", 1, bad), ("gone", 0, bad)]
        )
        client.send(request(PRODUCE, 3, 1, body))
        assert produce_errors((await client.answer())[1]) == [(0, 0), (2, -1), (3, -1)]


async def test_wrong_acks_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        client.send(produce(1, sample_batch(), acks=2))
        assert produce_errors((await client.answer())[1]) == [(21, -1)]


async def test_acks_0_is_not_answered(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        client.send(produce(1, sample_batch(), acks=0), request(API_VERSIONS, 0, 2, b""))
        assert (await client.answer())[0] == 2
        client.send(fetch(3, 0))
        assert fetch_records((await client.answer())[1])[1] == 1


async def test_an_error_with_acks_0_closes_the_connection(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        client.send(produce(1, sample_batch()[:-1], acks=0))
        assert await client.ended()


async def test_offsets_out_of_range_are_measured_against_the_logs_end(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        client.send(produce(1, sample_batch(count=3)), fetch(2, 3), fetch(3, 4), fetch(4, -1))
        await client.answer()
        codes = [fetch_records((await client.answer())[1])[0] for _ in range(3)]
        assert codes == [0, 1, 1]


async def test_a_fetch_in_the_middle_of_a_batch_gets_the_whole_batch(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        client.send(produce(1, sample_batch(count=10)))
        await client.answer()
        client.send(fetch(2, 7))
        [header] = batches_of(fetch_records((await client.answer())[1])[2])
        assert (header.base_offset, header.record_count, header.leader_epoch) == (0, 10, 1)


async def test_with_users_configured_nothing_is_served_before_authentication(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, user="alice") as live:
        client = await live.client()
        client.send(request(API_VERSIONS, 0, 1, b""), produce(2, sample_batch()))
        assert (await client.answer())[0] == 1
        assert await client.ended()
        assert live.storage.enqueued == 0
