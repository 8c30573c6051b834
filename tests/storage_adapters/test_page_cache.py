"""A reader that lags behind finds the next pages fetched, and leaves none of its own behind."""

import os
from pathlib import Path

import pytest

from gateway.model import parse_batch_header
from storage_adapters.segment_log.adapter import SegmentLog
from tests.storage_adapters.settling import SIZE_BYTES, fill, opened, settle

AHEAD_BYTES = 512 * 1024


async def cold_log(data_dir: Path) -> SegmentLog:
    """Return a log whose only settled file has no page in the cache."""
    log = await opened(data_dir, read_ahead_bytes=AHEAD_BYTES)
    await fill(log, 120, (1,))
    await settle(log)
    for segment in log._catalog.settled.segments.values():
        fd = log._catalog.handles.acquire(segment)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        log._catalog.handles.release(segment)
    if log.read_cached(1, 0, 1, bytes_max=1) is not None:
        await log.close()
        pytest.skip("a file system that has nothing but its page cache")
    return log


async def test_pages_behind_a_cold_reader_are_dropped(tmp_path: Path) -> None:
    log = await cold_log(tmp_path)
    offset, end = 0, log.settled_offset(1)
    while offset < end:
        found = log.read_cached(1, offset, end, bytes_max=3 * SIZE_BYTES)
        if found is None:
            found = await log.read(1, offset, end, bytes_max=3 * SIZE_BYTES)
        offset = parse_batch_header(found[-1]).last_offset + 1

    assert log._reader.page_cache.advised_count > 10
    log._reader._executor.submit(int).result()  # Advice that was given has been taken.
    assert log.read_cached(1, 0, 1, bytes_max=1) is None
    await log.close()


async def test_pages_of_a_reader_at_the_tail_stay(tmp_path: Path) -> None:
    log = await opened(tmp_path, read_ahead_bytes=AHEAD_BYTES)
    await fill(log, 120, (1,))
    await settle(log)
    for offset in range(100):
        assert log.read_cached(1, offset, offset + 1, bytes_max=1) is not None
    assert log._reader.page_cache.advised_count == 0
    await log.close()
