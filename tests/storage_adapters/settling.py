"""Helpers for tests of settled segments: logs that settle at once, and waiting for them."""

from pathlib import Path

from gateway.testing.storage import Host, append, make_entry
from storage_adapters.segment_log.adapter import SegmentLog
from tests.storage_adapters.test_segment_log import new_log
from tests.support.waiting import until

SIZE_BYTES = 60_000


async def opened(data_dir: Path, **options: object) -> SegmentLog:
    """Return an open log that settles every closed segment as soon as it may."""
    settings = {"settle_own_bytes": 400_000, **options}
    log = new_log(data_dir, **settings)
    await log.open(Host())
    return log


async def fill(log: SegmentLog, count: int, partition_ids: tuple[int, ...] = (1, 2, 3)) -> None:
    """Append ``count`` times: much to the first partition, a little to the others, shared."""
    for number in range(count):
        size_bytes = SIZE_BYTES + number
        first, *others = partition_ids
        entries = [make_entry((first, log.bounds(first).end), size_bytes=size_bytes)]
        targets = [(i, log.bounds(i).end) for i in others]
        if targets:
            entries.append(make_entry(targets, 3, size_bytes=500 + number))
        await append(log, *entries)


async def settle(log: SegmentLog) -> None:
    """Release all that is there and wait until the closed segments are settled."""
    log.release_scans_before(log.next_sequence)
    await until(lambda: not list(log._catalog.closed_segments()) or log._settler.is_halted)
    assert not log._settler.is_halted
    await idle(log)


async def idle(log: SegmentLog) -> None:
    """Wait until the background has nothing to do."""
    sweeper = log._sweeper
    async with log._settler._lock:
        pass
    await until(lambda: not sweeper._wake.is_set() and not log._settler._lock.locked())
