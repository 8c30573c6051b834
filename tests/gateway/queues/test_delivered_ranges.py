"""Rows of a queue: handed out from memory, settled as one, and what they are after a restart."""

import asyncio
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from features.queue.model import BY_TIME, Outcome, Result, SettledRange
from gateway.errors import StorageUnavailable
from gateway.model import EXPIRES_AT, Record
from gateway.partition import Partition
from gateway.queues.delivered_ranges import DeliveredRange
from gateway.queues.queue import Queue
from gateway.queues.shown_forms import (
    SHOWN_RECORDS_MAX,
    SHOWN_VALUES_BYTES_MAX,
    Columns,
    Show,
    ShownRun,
)
from gateway.records.codec import NO_HEADERS, encode_batch
from gateway.records.record_run import RecordRun
from gateway.writer import Write
from tests.gateway.queues.queue_node import (
    World,
    is_fed,
    running,
    settle,
    take,
    take_now,
    values,
)
from tests.gateway.queues.test_journal import drain, fill


def show(_partition: Partition, records: Sequence[Record]) -> Columns:
    return [
        [record.value or b"" for record in records],
        [b"%d" % record.offset for record in records],
    ]


class Row(NamedTuple):
    """Messages that came together, in the form of ``show``."""

    ranges: list[DeliveredRange]
    shown: list[list[bytes]]

    @property
    def number(self) -> int:
        return self.ranges[0].number

    @property
    def offsets(self) -> range:
        return range(self.ranges[0].offsets.start, self.ranges[-1].offsets.stop)


def take_shown(
    queue: Queue, count: int = 10, *, bytes_max: int = 1 << 20, showing: Show = show
) -> Row | None:
    """Take messages; None when one of them is not plain."""
    got: list[list[DeliveredRange]] = []
    queue.receive_ranges(count, bytes_max=bytes_max, on_done=got.append)
    found = [queue.shown_of(one, showing) for one in got[0]]
    plain = [columns for columns in found if columns is not None]
    if len(plain) < len(found):
        return None
    return Row(got[0], [list(chain.from_iterable(some)) for some in zip(*plain, strict=True)])


def taken(queue: Queue, count: int = 10) -> Row:
    row = take_shown(queue, count)
    assert row is not None
    return row


async def settle_row(queue: Queue, row: Row, **how: Any) -> int | StorageUnavailable:
    done: asyncio.Future[tuple[list[int], StorageUnavailable | None]] = asyncio.Future()
    ranges = [SettledRange(one.offsets, one.attempt, Outcome.ACK) for one in row.ranges]
    queue.settle_ranges(row.number, ranges, lambda *answer: done.set_result(answer), **how)
    assert not done.done()
    counts, error = await asyncio.wait_for(done, 60)
    return error or sum(counts)


async def test_a_row_is_shown_settled_and_gone(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(order="fair")
        await world.send(queue, *[b"m%d" % n for n in range(25)])
        first, second = taken(queue), taken(queue)
        assert first.shown == [[b"m%d" % n for n in range(10)], [b"%d" % n for n in range(10)]]
        assert second.offsets == range(10, 20)
        assert queue.counts() == (5, 20, 0)
        assert world.queues.counters.delivered == 20
        assert await settle_row(queue, first) == 10
        assert world.queues.counters.settled == 10
        assert values(await take(queue)) == [b"m%d" % n for n in range(20, 25)]
        await world.restart()
        queue = world.find()
        await world.until(lambda: is_fed(queue))
        assert queue.counts() == (0, 15, 0)
        world.advance(30_001)
        again = await take(queue, 20)
        assert [one.record.offset for one in again] == list(range(10, 25))
        assert {one.attempt for one in again} == {2}


async def test_a_take_is_written_down_though_nothing_follows(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(order="fair")
        await world.send(queue, *[b"%d" % n for n in range(10)])
        partition = world.queues._context.journal.partitions[0]
        before = partition.high_watermark
        taken(queue)
        await world.until(lambda: partition.high_watermark > before)


async def test_an_acknowledgement_of_a_row_that_is_not_kept_is_undone(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(order="fair", lease_ms=1_000)
        await world.send(queue, *[b"%d" % n for n in range(20)])
        row = taken(queue)
        fill(world, reserved_too=True)
        assert isinstance(await settle_row(queue, row), StorageUnavailable)
        assert queue.counts() == (10, 10, 0)
        drain(world)
        world.advance(1_001)
        again = await take(queue)
        assert [one.record.offset for one in again] == list(row.offsets)
        assert await settle(queue, again) == [Result.DONE] * 10
        await world.restart()
        queue = world.find()
        await world.until(lambda: is_fed(queue))
        assert queue.counts() == (10, 0, 0)


async def test_a_row_of_many_batches_is_whole(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(order="fair")
        for number in range(4):
            await world.send(queue, *[b"%d-%d" % (number, n) for n in range(3)])
        row = taken(queue)
        expected = [b"%d-%d" % (number, n) for number in range(4) for n in range(3)]
        assert row.shown[0] == expected[:10]


async def send_one_batch(world: World, queue: Queue, bodies: Sequence[bytes]) -> None:
    """Append one batch, as a Kafka producer has made it."""
    partition = queue.lanes[0].partition
    now_unix_ms = world.clock.unix_ms()
    batch = encode_batch([(now_unix_ms, None, body, ()) for body in bodies])
    write = world.broker.prepare(partition, batch)
    assert isinstance(write, Write)
    end = partition.log_end_offset + len(bodies)
    world.broker.append([write], lambda _: None)
    await world.until(lambda: queue.lanes[0].lane.fed_end == end)


async def test_rows_of_a_large_batch_are_shown_piece_by_piece(tmp_path: Path) -> None:
    """Pieces that are shown take memory only while they are received."""
    async with running(tmp_path) as world:
        queue = await world.queue(order="fair")
        bodies = [b"m%d" % n for n in range(5 * SHOWN_RECORDS_MAX // 2)]
        await send_one_batch(world, queue, bodies)
        kept = world.queues._context.message_cache
        asked: list[int] = []
        sizes: list[int] = []

        def showing(partition: Partition, records: Sequence[Record]) -> Columns:
            asked.append(len(records))
            return show(partition, records)

        shown: list[bytes] = []
        for _ in range(len(bodies) // 10):
            row = take_shown(queue, showing=showing)
            assert row is not None
            shown += row.shown[0]
            sizes.append(kept.kept_bytes)

        assert shown == bodies
        assert asked == [SHOWN_RECORDS_MAX, SHOWN_RECORDS_MAX, SHOWN_RECORDS_MAX // 2]
        assert max(sizes) < sizes[0] * 1.01
        kept.forget([queue.lanes[0].partition.partition_id])
        assert kept.kept_bytes == 0


async def test_a_piece_of_a_large_batch_that_is_not_plain_is_no_row(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(order="fair")
        large = b"x" * (SHOWN_VALUES_BYTES_MAX // 2)
        bodies = [b"m"] * SHOWN_RECORDS_MAX + [large, large, b"m"]
        await send_one_batch(world, queue, bodies)
        for _ in range(SHOWN_RECORDS_MAX // 8):
            taken(queue, 8)
        assert take_shown(queue, 3) is None


async def test_what_the_sender_has_said_of_its_messages_is_shown(tmp_path: Path) -> None:
    """The sender's words replace what ``show`` says; other runs of the batch use ``show``."""
    async with running(tmp_path) as world:
        queue = await world.queue(order="fair", retention_ms=60_000)
        cases: list[list[Show | None]] = [[show, show], [show, None], [show, _show_nothing]]
        for shows in cases:
            await _send_shown(world, queue, shows)
        for first, said in ((0, b"said"), (10, b"m"), (20, b"m")):
            assert taken(queue).shown == [
                [said if said != b"m" else b"m%d" % n for n in range(first, first + 10)],
                [b"%d" % n for n in range(first, first + 10)],
            ]


async def test_what_is_too_old_is_no_row_whatever_its_sender_has_said(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(order="fair", retention_ms=60_000)
        await _send_shown(world, queue, [show, show])
        world.clock.advance(60_000)
        assert taken(queue, 5).offsets == range(5)
        world.clock.advance(1)
        assert take_now(queue, 5) == []


async def test_what_the_log_stamps_is_not_as_its_sender_has_said(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        await world.topic("work", message_timestamp_type="LogAppendTime")
        queue = await world.queue(order="fair")
        await _send_shown(world, queue, [show, show])
        assert taken(queue).shown[0] == [b"m%d" % n for n in range(10)]


async def test_each_protocol_has_its_own_form_of_a_batch(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(order="fair")
        await send_one_batch(world, queue, [b"m%d" % n for n in range(10)])
        asked: list[str] = []

        def other(_partition: Partition, records: Sequence[Record]) -> Columns:
            asked.append("other")
            return [[b"other"] * len(records)]

        def one(partition: Partition, records: Sequence[Record]) -> Columns:
            asked.append("one")
            return show(partition, records)

        for first in range(0, 10, 2):
            row = take_shown(queue, 1, showing=other)
            assert row is not None
            assert row.shown == [[b"other"]]
            row = take_shown(queue, 1, showing=one)
            assert row is not None
            assert row.shown[0] == [b"m%d" % (first + 1)]

        assert asked == ["other", "one"]


def _show_nothing(_partition: Partition, _records: Sequence[Record]) -> None:
    return None


async def _send_shown(world: World, queue: Queue, shows: list[Show | None]) -> None:
    """Send two runs of five messages; what is said of them is not what they are."""
    partition = queue.partition_for(None)
    runs: list[RecordRun] = []
    for one in shows:
        first = partition.log_end_offset + 5 * len(runs)
        values = [b"m%d" % n for n in range(first, first + 5)]
        runs.append(RecordRun(None, values, NO_HEADERS, world.clock.unix_ms()))
        if one is not None:
            offsets = [b"%d" % n for n in range(first, first + 5)]
            runs[-1].shown = ShownRun(one, ([b"said"] * 5, offsets), 100)
    world.queues.coalescer.add_many([(partition, run) for run in runs], lambda _: None)
    end = partition.log_end_offset + 10
    await world.until(lambda: queue.lanes[0].lane.fed_end == end)


async def test_what_is_known_of_messages_counts_as_kept(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(order="fair")
        bodies = world.queues._context.message_cache
        await _send_shown(world, queue, [None, None])
        before = bodies.kept_bytes
        await _send_shown(world, queue, [show, show])
        assert bodies.kept_bytes >= 2 * before + 200
        taken(queue)
        kept = bodies.kept_bytes
        taken(queue)  # of the batch whose sender has said it: no record is made
        assert bodies.kept_bytes == kept + 2 * 10 * 8
        bodies.forget([queue.lanes[0].partition.partition_id])
        assert bodies.kept_bytes == 0


async def test_what_comes_live_is_known_however_much_waits(tmp_path: Path) -> None:
    """A live batch brings its keys; a later read would cost decoding it."""
    async with running(tmp_path) as world:
        queue = await world.queue(order="fair")
        lane = queue.lanes[0]
        runs = [
            RecordRun(None, [b"m"] * 1_000, NO_HEADERS, world.clock.unix_ms())
            for _ in range(12)
        ]
        for run in runs:
            world.queues.coalescer.add(lane.partition, run, lambda _: None)
        await world.until(lambda: lane.partition.high_watermark == 12_000)
        await world.until(lambda: lane.lane.fed_end == 12_000)
        assert not lane.lane.wants_more
        await world.send(queue, b"last")
        await world.until(lambda: lane.lane.fed_end == 12_001)


async def test_partitions_have_rows_of_their_own(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(partitions=2, order="fair")
        await world.send(queue, *[b"%d" % n for n in range(40)])
        rows = [taken(queue) for _ in range(4)]
        assert [row.number for row in rows] in ([0, 1, 0, 1], [1, 0, 1, 0])
        assert sorted(body for row in rows for body in row.shown[0]) == sorted(
            b"%d" % n for n in range(40)
        )
        for row in rows:
            assert await settle_row(queue, row) == 10
        assert queue.counts() == (0, 0, 0)


async def test_no_more_bytes_are_delivered_than_are_asked_for(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(order="fair", retention_ms=60_000)
        await world.send(queue, *[b"%d" % n for n in range(10)])
        assert [len(one.offsets) for one in taken(queue, 0).ranges] == []
        row = take_shown(queue, bytes_max=4)
        assert row is not None
        assert row.offsets == range(4)
        assert queue.counts() == (6, 4, 0)
        row = take_shown(queue, bytes_max=0)
        assert row is not None
        assert row.offsets == range(4, 5)
        again = await take(queue)
        assert {one.attempt for one in again} == {1}


async def test_messages_that_expire_by_themselves_are_looked_at(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(order="fair")
        now = world.clock.unix_ms()
        for number in range(6):
            expires = [(EXPIRES_AT, b"%d" % (now + 1_000 * (number % 2) + 500))]
            await world.send(queue, b"%d" % number, headers=expires)
        world.clock.advance(1_000)
        assert taken(queue).shown[0] == [b"1", b"3", b"5"]
        assert world.queues.counters.expired == 3


async def test_what_is_too_old_is_not_delivered(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(order="fair", retention_ms=60_000)
        await world.send(queue, *[b"%d" % n for n in range(20)])
        world.clock.advance(60_000)
        assert taken(queue).offsets == range(10)
        world.clock.advance(1)
        assert take_now(queue) == []


async def test_a_range_that_was_received_again_is_not_settled(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(order="fair", lease_ms=1_000)
        await world.send(queue, *[b"%d" % n for n in range(10)])
        row = taken(queue)
        world.advance(1_001)
        await take(queue)
        assert not queue.holds(row.number, row.offsets, 1, holder=BY_TIME)
        assert not queue.holds(7, row.offsets, 2, holder=BY_TIME)
        assert queue.holds(row.number, row.offsets, 2, holder=BY_TIME)
        assert await settle_row(queue, row) == 0
        assert queue.counts() == (0, 10, 0)


@pytest.mark.parametrize("outcome", [Outcome.RELEASE, Outcome.RETURN, Outcome.REJECT])
async def test_each_range_has_its_own_outcome(tmp_path: Path, outcome: Outcome) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(order="fair")
        await world.send(queue, *[b"%d" % n for n in range(10)])
        taken(queue)
        done: asyncio.Future[list[int]] = asyncio.Future()
        ranges = [
            SettledRange(range(2), 1, Outcome.ACK),
            SettledRange(range(2, 5), 1, outcome),
            SettledRange(range(4, 12), 1, Outcome.ACK),
        ]
        queue.settle_ranges(0, ranges, lambda counts, _: done.set_result(counts))
        assert await asyncio.wait_for(done, 60) == [2, 3, 5]
        await world.restart()
        queue = world.find()
        await world.until(lambda: is_fed(queue))
        found = [(one.record.offset, one.attempt) for one in await take(queue)]
        attempt = 2 if outcome is Outcome.RELEASE else 1
        left = [] if outcome is Outcome.REJECT else [2, 3, 4]
        assert found == [(offset, attempt) for offset in left]
