"""Segments go when every partition has passed them, and take no knowledge with them."""

import asyncio
from pathlib import Path

import pytest

from gateway.storage import Bounds
from gateway.testing.storage import Host, append, delete, make_entry, read_all, truncate
from storage_adapters.segment_log.adapter import SegmentLog
from storage_adapters.segment_log.inspect import list_partitions
from storage_adapters.segment_log.segments import list_segments
from tests.storage_adapters.test_segment_log import new_log
from tests.support.waiting import wait_until

PER_SEGMENT = 4
SIZE_BYTES = 250_000


async def opened(data_dir: Path) -> SegmentLog:
    log = new_log(data_dir)
    await log.open(Host())
    return log


async def fill(log: SegmentLog, partition_id: int, count: int) -> None:
    start = log.bounds(partition_id).end
    for number in range(start, start + count):
        await append(log, make_entry((partition_id, number), size_bytes=SIZE_BYTES))


async def until_removed(log: SegmentLog, count: int) -> None:
    await asyncio.to_thread(
        wait_until,
        lambda: log.metrics.segments_removed >= count,
        within_s=20,
        what=f"{count} segments are removed",
    )


def numbers(data_dir: Path) -> list[int]:
    return [number for number, _ in list_segments(data_dir)]


async def test_segment_goes_when_all_have_passed_it(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    await append(log, make_entry((2, 0)))
    await fill(log, 1, 3 * PER_SEGMENT)

    await truncate(log, 1, 2 * PER_SEGMENT)
    await until_removed(log, 1)
    assert 1 in numbers(tmp_path)  # Partition 2 still needs the first segment.
    assert 2 not in numbers(tmp_path)

    await truncate(log, 2, 1)
    await until_removed(log, 2)
    assert 1 not in numbers(tmp_path)
    assert len(await read_all(log, 1)) == PER_SEGMENT
    await log.close()


async def test_partition_whose_data_is_gone_goes_on_where_it_was(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    await append(log, make_entry((2, 0), 9))
    await truncate(log, 2, 9)
    await fill(log, 1, 2 * PER_SEGMENT)
    await truncate(log, 1, PER_SEGMENT + 1)
    await until_removed(log, 1)
    assert 1 not in numbers(tmp_path)
    await log.close()

    log = await opened(tmp_path)
    assert log.bounds(2) == Bounds(9, 9)
    await append(log, make_entry((2, 9)))
    assert log.bounds(2) == Bounds(9, 10)
    await log.close()

    identities = {i.partition_id: i.topic.name for i in list_partitions(tmp_path).identities}
    assert identities == {1: "t1", 2: "t2"}


async def test_deletion_is_remembered_as_long_as_data_is_there(tmp_path: Path) -> None:
    """The deletion lies in a segment that goes before the one that holds the deleted data."""
    log = await opened(tmp_path)
    await append(log, make_entry((3, 0)), make_entry((2, 0)))
    await fill(log, 1, PER_SEGMENT)
    await delete(log, 3)
    await fill(log, 1, 2 * PER_SEGMENT)

    await truncate(log, 1, 3 * PER_SEGMENT)
    await until_removed(log, 1)
    assert numbers(tmp_path)[0] == 1  # Partition 2 needs it.
    await log.close()

    log = await opened(tmp_path)
    assert log.bounds(3) == Bounds(0, 0)
    await log.close()
    assert [i.partition_id for i in list_partitions(tmp_path).identities] == [1, 2]


async def test_removal_goes_on_after_a_restart(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    await fill(log, 1, 3 * PER_SEGMENT)
    await log._sweeper.stop()  # As if the process had died between the two.
    await truncate(log, 1, 3 * PER_SEGMENT)
    await log.close()
    before = len(numbers(tmp_path))

    log = await opened(tmp_path)
    await until_removed(log, before - 1)
    assert log.bounds(1) == Bounds(3 * PER_SEGMENT, 3 * PER_SEGMENT)
    await log.close()


async def test_reader_of_a_removed_segment_reads_on(tmp_path: Path) -> None:
    """Files are unlinked, never truncated; who reads holds the descriptor."""
    log = await opened(tmp_path)
    await fill(log, 1, 2 * PER_SEGMENT)
    (segment, *_) = log._catalog.closed_segments()
    plan = log._reader.plan(log._catalog.state(1), 0, PER_SEGMENT, 10_000_000)
    fd = log._catalog.handles.acquire(segment)

    await truncate(log, 1, 2 * PER_SEGMENT)
    await until_removed(log, 1)

    assert segment.fd == fd
    batches = await log._reader.read([picks for picks in plan if picks.segment is segment])
    assert len(batches[0]) == SIZE_BYTES
    log._catalog.handles.release(segment)
    assert segment.fd == -1
    await log.close()


@pytest.mark.parametrize("flush", ["group", "never"])
async def test_reads_reach_across_segments_and_bounded_caches(
    tmp_path: Path, flush: str
) -> None:
    log = new_log(tmp_path, flush=flush, open_files_max=8, footers_max=8, extents_max=1)
    await log.open(Host())
    for number in range(60):
        await append(
            log,
            make_entry((1, number), size_bytes=SIZE_BYTES),
            make_entry((2, number)),
        )

    for partition_id in (1, 2, 1):
        batches = await read_all(log, partition_id)
        assert len(batches) == 60
    assert len(await log.read(1, 10, 60, bytes_max=5 * SIZE_BYTES)) == 5
    assert log.segments_count > 8
    await log.close()
