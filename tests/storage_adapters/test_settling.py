"""Closed log segments become settled ones; readers notice nothing."""

import asyncio
import threading
from pathlib import Path

import pytest

from gateway.clock import ManualClock
from gateway.model import Buffer, parse_batch_header
from gateway.storage import Bounds
from gateway.testing.storage import append, delete, make_entry, read_all, truncate
from storage_adapters.segment_log.adapter import SegmentLog
from storage_adapters.segment_log.idle import IdleCloser
from storage_adapters.segment_log.inspect import list_partitions
from storage_adapters.segment_log.segments import SETTLED_DIRECTORY, list_segments
from storage_adapters.segment_log.verify import Verification
from tests.storage_adapters.settling import fill, idle, opened, settle
from tests.support.waiting import until


async def contents(log: SegmentLog, partition_ids: tuple[int, ...] = (1, 2, 3)) -> list[object]:
    return [(log.bounds(i), log.size_bytes(i), await read_all(log, i)) for i in partition_ids]


async def test_settled_partitions_read_the_same(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    await fill(log, 60)
    before = await contents(log)
    assert log.segments_count > 3

    await settle(log)

    assert await contents(log) == before
    assert log.segments_count == 1
    assert list_segments(tmp_path)[0][0] == log._appender.active.number
    owners = {s.record.owner for s in log._catalog.settled.segments.values() if s.record}
    assert 1 in owners
    assert 2 not in owners
    await log.close()

    log = await opened(tmp_path)
    assert await contents(log) == before
    await fill(log, 1)
    assert log.bounds(1) == Bounds(0, 61)
    await log.close()


async def test_nothing_settles_before_scans_are_released(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    await fill(log, 60)
    await idle(log)
    assert log.metrics.settled_rounds == 0
    (first, *_) = log._catalog.closed_segments()
    log.release_scans_before(first.next_sequence)
    await until(lambda: log.metrics.settled_rounds == 1)
    assert first.is_gone
    assert next(iter(log.scan(0))).sequence >= first.next_sequence
    await log.close()


async def test_a_round_waits_for_more_or_for_a_while(tmp_path: Path) -> None:
    log = await opened(tmp_path, settle_after_bytes=10_000_000, settle_after_ms=5_000)
    await fill(log, 60)
    log.release_scans_before(log.next_sequence)
    await idle(log)
    assert log.metrics.settled_rounds == 0
    clock = log._clock
    assert isinstance(clock, ManualClock)
    clock.advance(5_000)
    log._wake_sweeper()  # What the timer does.
    await until(lambda: log.metrics.settled_rounds == 1)
    await log.close()


def passes(log: SegmentLog, span_ms: int) -> None:
    """Let time pass, and the timers run out."""
    assert isinstance(log._clock, ManualClock)
    log._clock.advance(span_ms)
    log._wake_sweeper()


async def test_what_an_idle_node_has_in_its_last_segment_is_settled_too(tmp_path: Path) -> None:
    log = await opened(tmp_path, settle_after_bytes=10_000_000, settle_after_ms=5_000)
    await fill(log, 10)
    before = await contents(log)
    log.release_scans_before(log.next_sequence)
    await idle(log)
    passes(log, 4_999)
    await idle(log)
    assert log.segments_count == 1
    await fill(log, 1, (2,))  # It was not quiet.
    log.release_scans_before(log.next_sequence)
    passes(log, 1)
    await idle(log)
    assert log.segments_count == 1
    closer = log._sweeper._idle
    assert is_waiting(closer)

    passes(log, 5_000)
    await until(lambda: log.metrics.segments_closed == 1 or still_made(log))
    await idle(log)
    passes(log, 5_000)
    await until(lambda: log.metrics.settled_rounds == 1)

    assert log._catalog.settled.segments
    assert log._appender.active_bytes == 0
    assert (await contents(log, (1, 3))) == [before[0], before[2]]
    await idle(log)
    assert not is_waiting(closer)  # Nothing wakes an idle node any more.
    await log.close()


def is_waiting(closer: IdleCloser) -> bool:
    """Whether it looks again by itself."""
    return closer._timer is not None


def still_made(log: SegmentLog) -> bool:
    """Let another check run while the next segment is being made."""
    log._wake_sweeper()
    return False


async def test_bounds_of_idle_partitions_stay_known(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    await append(log, make_entry((9, 0), 7))
    await truncate(log, 9, 7)
    await append(log, make_entry((8, 0), 5))
    await fill(log, 40)
    await settle(log)
    await fill(log, 40)
    await settle(log)
    await log.close()

    log = await opened(tmp_path)
    assert log.bounds(9) == Bounds(7, 7)
    assert log.bounds(8) == Bounds(0, 5)
    assert len(await read_all(log, 8)) == 1
    await append(log, make_entry((9, 7)))
    await log.close()
    names = {i.partition_id: i.topic.name for i in list_partitions(tmp_path).identities}
    assert names == {i: f"t{i}" for i in (1, 2, 3, 8, 9)}


async def test_what_is_dead_is_not_settled(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    await fill(log, 60)
    await truncate(log, 1, 50)
    await delete(log, 2)
    await settle(log)
    await log.close()

    log = await opened(tmp_path)
    assert log.bounds(1) == Bounds(50, 60)
    assert len(await read_all(log, 1)) == 10
    assert log.bounds(2) == Bounds(0, 0)
    assert await read_all(log, 2) == []
    assert log.bounds(3) == Bounds(0, 180)
    assert log.disk_usage().settled_bytes < 11 * 60_100 + 60 * 600 + 4_096
    await log.close()


async def test_passed_and_deleted_files_go(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    await fill(log, 60, (1, 3))
    await fill(log, 60, (2, 4))
    await settle(log)
    before = log.disk_usage().settled_bytes

    await delete(log, 2)
    await idle(log)
    assert log.disk_usage().settled_bytes < before - 40 * 60_000
    await truncate(log, 1, log.bounds(1).end)
    await idle(log)
    assert log.disk_usage().settled_bytes < 150_000
    assert len(await read_all(log, 3)) == 60
    await log.close()


async def test_shared_file_is_copied_when_half_dead(tmp_path: Path) -> None:
    log = await opened(tmp_path, settle_own_bytes=4_000_000)
    await fill(log, 30, (1, 2, 3))
    await fill(log, 30, (5,))
    await settle(log)
    (shared,) = log._catalog.settled.shared

    await delete(log, 1)
    await idle(log)
    await delete(log, 5)
    await idle(log)

    assert shared.is_gone
    assert not shared.path.exists()
    assert len(await read_all(log, 2)) == 30
    assert log.disk_usage().settled_bytes < 40_000
    await log.close()
    log = await opened(tmp_path)
    assert log.bounds(1) == log.bounds(5) == Bounds(0, 0)
    assert len(await read_all(log, 3)) == 30
    await log.close()


async def test_deletion_is_remembered_when_its_segment_is_settled(tmp_path: Path) -> None:
    log = await opened(tmp_path, settle_own_bytes=4_000_000)
    await fill(log, 60, (1, 2, 3))
    await settle(log)
    await delete(log, 2)  # Little of the shared file: it stays.
    await fill(log, 60, (1, 3))
    await settle(log)
    await log.close()

    log = await opened(tmp_path)
    await idle(log)
    assert log.bounds(2) == Bounds(0, 0)
    assert await read_all(log, 2) == []
    assert len(await read_all(log, 3)) == 120
    await log.close()
    assert [i.partition_id for i in list_partitions(tmp_path).identities] == [1, 3]


@pytest.mark.heavy
async def test_small_files_are_merged(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    for _ in range(30):
        await fill(log, 20)
        await settle(log)
    settled = log._catalog.settled
    assert len(settled.owned(1)) < 10
    assert len(settled.shared) <= 8
    for partition_id in (1, 2, 3):
        assert len(await read_all(log, partition_id)) == 600
    # A round that began late may still be at it: no file stays that does not count.
    await until(
        lambda: (
            {number for number, _ in list_segments(tmp_path, SETTLED_DIRECTORY)}
            == set(log._catalog.settled.segments)
        )
    )
    await log.close()


async def test_large_partitions_are_split_over_files(tmp_path: Path) -> None:
    log = await opened(tmp_path, settled_bytes_max=1_048_576)
    await fill(log, 90)
    before = await contents(log)
    await settle(log)
    assert len(log._catalog.settled.owned(1)) >= 4
    assert all(s.disk_bytes < 1_200_000 for s in log._catalog.settled.segments.values())
    assert await contents(log) == before
    await log.close()
    assert list(Verification(tmp_path).run()) == []


async def test_retention_frees_file_by_file(tmp_path: Path) -> None:
    log = await opened(tmp_path, settled_bytes_max=1_048_576)
    await fill(log, 90, (1,))
    await settle(log)
    sizes = [log.disk_usage().settled_bytes]
    for percent in (30, 60, 90):
        await truncate(log, 1, percent * log.settled_offset(1) // 100)
        await idle(log)
        sizes.append(log.disk_usage().settled_bytes)
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 4
    await log.close()


async def test_reader_in_the_middle_of_a_switch(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    await fill(log, 60)
    reading = asyncio.ensure_future(log.read(1, 0, 60, bytes_max=100_000_000))
    await settle(log)
    assert len(await reading) == 60
    await log.close()


async def three_files(tmp_path: Path) -> SegmentLog:
    """A log in which partition 1 has three settled files."""
    log = await opened(tmp_path, settle_round_bytes=2_000_000)
    while len(log._catalog.settled.owned(1)) < 3:  # A segment may not be closed in time.
        await fill(log, 20)
        await settle(log)
    return log


async def test_a_partition_is_rewritten_file_by_file(tmp_path: Path) -> None:
    """So that it takes the free space of one file, not of the partition."""
    log = await three_files(tmp_path)
    before = list(log._catalog.settled.owned(1))
    left: list[int] = []

    def keep(batch: Buffer) -> Buffer:
        left.append(sum(segment.path.exists() for segment in before))
        return batch

    await log.rewrite(1, log.settled_offset(1), keep)

    assert (left[0], left[-1]) == (3, 1)
    assert sorted(set(left)) == [1, 2, 3]
    assert len(await read_all(log, 1)) == log.bounds(1).end
    await log.close()


async def test_settling_has_its_turn_between_two_files(tmp_path: Path) -> None:
    log = await three_files(tmp_path)
    begun, goes_on = threading.Event(), threading.Event()
    rounds: list[int] = []

    def keep(batch: Buffer) -> Buffer:
        begun.set()
        goes_on.wait(20)
        rounds.append(log.metrics.settled_rounds)
        return batch

    rewriting = asyncio.create_task(log.rewrite(1, log.settled_offset(1), keep))
    await until(begun.is_set)
    await fill(log, 40)
    log.release_scans_before(log.next_sequence)
    await until(lambda: log._settler._lock._waiters is not None)
    goes_on.set()
    await rewriting

    assert rounds[-1] > rounds[0]
    assert len(await read_all(log, 1)) == log.bounds(1).end
    await log.close()


async def test_what_was_rewritten_is_not_offered_again_when_it_was_merged(
    tmp_path: Path,
) -> None:
    log = await three_files(tmp_path)
    before = await read_all(log, 1)
    end = log.bounds(1).end
    await fill(log, 40)
    begun, goes_on = threading.Event(), threading.Event()
    seen: list[int] = []

    def keep(batch: Buffer) -> Buffer | None:
        begun.set()
        goes_on.wait(20)
        seen.append(parse_batch_header(batch).base_offset)
        return keep_odd_offsets(batch)

    rewriting = asyncio.create_task(log.rewrite(1, end, keep))
    await until(begun.is_set)
    files = set(log._catalog.settled.owned(1))
    log.release_scans_before(log.next_sequence)  # a fourth file: all are merged
    await until(lambda: log._settler._lock._waiters is not None)
    goes_on.set()
    done = await rewriting

    assert done.upto_offset == end
    assert not files & set(log._catalog.settled.owned(1))
    assert seen == list(range(end))
    kept = [batch for batch in before if keep_odd_offsets(batch) is not None]
    assert (await read_all(log, 1))[: len(kept)] == kept
    await log.close()


def keep_odd_offsets(batch: Buffer) -> Buffer | None:
    return batch if parse_batch_header(batch).base_offset % 2 else None
