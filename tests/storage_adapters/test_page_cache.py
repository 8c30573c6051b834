"""A reader that lags behind finds the next pages fetched, and leaves none of its own behind."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest

from gateway.model import parse_batch_header
from storage_adapters.formats.segment import SegmentHeader
from storage_adapters.segment_log.adapter import SegmentLog
from storage_adapters.segment_log.catalog import PartitionState
from storage_adapters.segment_log.page_cache import PageCache, Span
from storage_adapters.segment_log.segments import Handles, Segment
from tests.storage_adapters.settling import SIZE_BYTES, fill, opened, settle
from tests.support.page_cache import resident_share
from tests.support.waiting import until

AHEAD_BYTES = 512 * 1024
WHOLE_BYTES = 32 << 20


async def cold_log(data_dir: Path) -> SegmentLog:
    """Return a log whose only settled file has no page in the cache."""
    log = await opened(data_dir, read_ahead_bytes=AHEAD_BYTES)
    await fill(log, 120, (1,))
    await settle(log)
    for segment in log._catalog.settled.segments.values():
        fd = log._catalog.handles.acquire(segment)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        log._catalog.handles.release(segment)
    if resident_share_of_settled(log) > 0.1:
        await log.close()
        pytest.skip("a file system that has nothing but its page cache")
    return log


def resident_share_of_settled(log: SegmentLog) -> float:
    """Return how much of the largest settled file is in the page cache."""
    files = log._catalog.settled.segments.values()
    return resident_share(
        max((one.path for one in files), key=lambda path: path.stat().st_size)
    )


async def test_pages_behind_a_cold_reader_are_dropped(tmp_path: Path) -> None:
    log = await cold_log(tmp_path)
    offset, end = 0, log.settled_offset(1)
    while offset < end:
        # The first waits in any case: the kernel may have read ahead before a second look.
        found = log.read_cached(1, offset, end, bytes_max=3 * SIZE_BYTES) if offset else None
        if found is None:
            found = await log.read(1, offset, end, bytes_max=3 * SIZE_BYTES)
        offset = parse_batch_header(found[-1]).last_offset + 1

    assert log._reader.page_cache.advised_count > 10
    # All but the last window, half of what is fetched ahead: of 6.7 MB some 0.4.
    await until(lambda: resident_share_of_settled(log) < 0.25)
    await log.close()


async def test_of_pages_that_the_kernel_keeps_together_none_stays(tmp_path: Path) -> None:
    path = tmp_path / "read in order"
    path.write_bytes(bytes(WHOLE_BYTES))
    segment = Segment(path, SegmentHeader(UUID(int=1), 1, 0, 0, 1, 0, seed=0))
    state = PartitionState(1, None)
    handles = Handles(1)
    descriptor = handles.acquire(segment)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    for start in range(0, WHOLE_BYTES, 1 << 17):  # brings them in by larger and larger folios
        os.pread(descriptor, 1 << 17, start)
    assert resident_share(path) > 0.9
    with ThreadPoolExecutor(1) as executor:
        pages = PageCache(handles, executor, AHEAD_BYTES)
        for start in range(120, WHOLE_BYTES, 300_000):
            end = min(start + 300_000, WHOLE_BYTES)
            pages.note(state, Span(segment, start, end, WHOLE_BYTES), is_cold=True)
        await asyncio.get_running_loop().run_in_executor(executor, int)
    handles.release(segment)
    handles.close()

    assert resident_share(path) < 0.1


async def test_pages_of_a_reader_at_the_tail_stay(tmp_path: Path) -> None:
    log = await opened(tmp_path, read_ahead_bytes=AHEAD_BYTES)
    await fill(log, 120, (1,))
    await settle(log)
    for offset in range(100):
        assert log.read_cached(1, offset, offset + 1, bytes_max=1) is not None
    assert log._reader.page_cache.advised_count == 0
    await log.close()
