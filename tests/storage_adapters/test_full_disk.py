"""A full disk: refused before an offset exists; what frees space still works."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.clock import ManualClock
from gateway.errors import StorageFull, StorageUnavailable
from gateway.storage import Bounds, StorageAdapter
from gateway.testing.storage import Host, append, delete, make_entry, read_all, truncate
from storage_adapters.segment_log.adapter import SegmentLog
from storage_adapters.segment_log.config import SegmentLogConfig
from storage_adapters.segment_log.files import Files
from storage_adapters.segment_log.segment_files import RETRY_MS, SHORT_BYTES_MIN
from tests.storage_adapters.disks import SmallDisk
from tests.support.waiting import wait_until

MIB = 1_048_576
SEGMENTS = 4


def new_log(
    data_dir: Path, clock: ManualClock, files: Files | None, reserve_bytes: int = 200_000
) -> SegmentLog:
    options = {"segment_bytes": MIB, "reserve_bytes": reserve_bytes}
    config = SegmentLogConfig.model_validate(options)
    return SegmentLog(config, data_dir=data_dir, clock=clock, files=files)


async def fill(log: StorageAdapter, partition_id: int, *, reserved: bool = False) -> int:
    """Append until the disk is full; return how many batches there are."""
    number = log.bounds(partition_id).end
    while True:
        done = asyncio.get_running_loop().create_future()
        entry = make_entry((partition_id, number), size_bytes=20_000)
        try:
            log.enqueue([entry], done.set_result, reserved=reserved)
        except StorageFull:
            assert log.bounds(partition_id).end == number
            return number
        assert await done is None
        number += 1


@pytest.fixture(params=["bounded", "tmpfs"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, Files | None]]:
    """A data directory on a disk with room for a few segments."""
    if request.param == "bounded":
        yield tmp_path, SmallDisk(SEGMENTS * MIB)
        return
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    size = f"size={SEGMENTS * MIB + 200_000}"
    mount = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(tmp_path)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this machine does not let us mount a tmpfs")
    try:
        yield tmp_path, None
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


async def test_full_disk_refuses_and_goes_on_when_there_is_space(
    disk: tuple[Path, Files | None],
) -> None:
    data_dir, files = disk
    clock, host = ManualClock(), Host()
    log = new_log(data_dir, clock, files)
    await log.open(host)

    count = await fill(log, 1)
    assert count * 20_000 > (SEGMENTS - 1) * 0.8 * MIB
    clock.advance(RETRY_MS)
    assert await fill(log, 1) == count

    # Internal streams have what is kept back for them, and deletes have more.
    assert await fill(log, 2, reserved=True) * 20_000 > 100_000
    await truncate(log, 1, count)
    await delete(log, 3)
    assert log.bounds(1) == Bounds(count, count)

    await until_segments_are_removed(log)
    clock.advance(RETRY_MS)
    await append(log, make_entry((1, count)))
    assert await fill(log, 1) > count + 10
    assert host.faults == []
    await log.close()


async def until_segments_are_removed(log: SegmentLog) -> None:
    await asyncio.to_thread(
        wait_until,
        lambda: log.metrics.segments_removed > 0,
        within_s=20,
        what="segments are removed",
    )


async def test_a_start_on_a_full_disk_reads_and_lets_room_be_made(
    disk: tuple[Path, Files | None],
) -> None:
    data_dir, files = disk
    log = new_log(data_dir, ManualClock(), files)
    await log.open(Host())
    count = await fill(log, 1)
    await log.close()

    clock = ManualClock()
    log = new_log(data_dir, clock, files)
    # A stop gives back what the last segment did not use, which is too little for a whole one.
    await log.open(Host())

    assert len(await read_all(log, 1)) == count
    assert await fill(log, 1) == count
    await truncate(log, 1, count)
    await until_segments_are_removed(log)
    clock.advance(RETRY_MS)
    assert await fill(log, 1) > count + 10
    await log.close()


async def test_a_start_without_room_for_a_short_segment_names_the_file(tmp_path: Path) -> None:
    log = new_log(tmp_path, ManualClock(), SmallDisk(SHORT_BYTES_MIN))

    with pytest.raises(StorageUnavailable, match=r"No space left on device: .*1\.seg"):
        await log.open(Host())


async def test_append_above_what_is_kept_back_takes_the_next_segment(tmp_path: Path) -> None:
    log = new_log(tmp_path, ManualClock(), SmallDisk(3 * MIB), reserve_bytes=500_000)
    await log.open(Host())

    await append(log, make_entry((1, 0), size_bytes=800_000))
    await append(log, make_entry((1, 1), size_bytes=800_000))

    assert len(await read_all(log, 1)) == 2
    await log.close()
