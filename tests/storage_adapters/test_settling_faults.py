"""Settling on a full or a failing disk, and over damage: nothing is lost."""

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.clock import ManualClock
from gateway.model import Buffer, parse_batch_header
from gateway.testing.storage import Host, read_all, truncate
from storage_adapters.segment_log.adapter import SegmentLog
from storage_adapters.segment_log.config import SegmentLogConfig
from storage_adapters.segment_log.copying import DAMAGE_TRIES, is_intact
from storage_adapters.segment_log.files import SystemFiles
from storage_adapters.segment_log.retries import RETRY_MS_MAX, RETRY_MS_MIN
from storage_adapters.segment_log.segments import SETTLED_DIRECTORY, list_segments
from storage_adapters.segment_log.verify import Verification
from tests.storage_adapters.disks import FullDisk
from tests.storage_adapters.settling import fill, idle, opened, settle
from tests.storage_adapters.test_recovery import flip
from tests.storage_adapters.test_segment_log import MIB
from tests.support.waiting import until


class BadSettledFiles(SystemFiles):
    """Fails one kind of call on files of the settled folder, with ``number`` as errno."""

    def __init__(self, call: str, number: int) -> None:
        self.call = call
        self.number = number
        self.bytes_min = 0  # a smaller write does not fail
        self._settled: set[int] = set()

    def _check(self, call: str) -> None:
        if call == self.call:
            raise OSError(self.number, "as the test has it")

    def create(self, path: Path) -> int:
        fd = super().create(path)
        self._settled.discard(fd)
        if path.parent.name == SETTLED_DIRECTORY:
            self._settled.add(fd)
        return fd

    def write(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        if fd in self._settled and sum(map(len, buffers)) >= self.bytes_min:
            self._check("write")
        return super().write(fd, buffers, position)

    def sync(self, fd: int) -> None:
        if fd in self._settled:
            self._check("sync")
        super().sync(fd)

    def rename(self, path: Path, new_path: Path) -> None:
        self._check("rename")
        super().rename(path, new_path)


async def with_files(data_dir: Path, files: SystemFiles, host: Host) -> SegmentLog:
    config = SegmentLogConfig(
        segment_bytes=MIB, reserve_bytes=0, settle_after_bytes=0, settle_own_bytes=400_000
    )
    log = SegmentLog(config, data_dir=data_dir, clock=ManualClock(), files=files)
    await log.open(host)
    return log


async def tried_again(log: SegmentLog, after_ms: int = RETRY_MS_MAX) -> None:
    """Let the next try happen."""
    assert isinstance(log._clock, ManualClock)
    log._clock.advance(after_ms)
    log._wake_sweeper()  # What the timer does.
    await until(lambda: not log._sweeper._wake.is_set())
    await idle(log)


async def failed(log: SegmentLog, count: int = 1) -> None:
    await until(lambda: log.metrics.settling_failures >= count)
    await idle(log)


async def test_full_disk_is_tried_again(tmp_path: Path) -> None:
    host, files = Host(), BadSettledFiles("write", errno.ENOSPC)
    log = await with_files(tmp_path, files, host)
    await fill(log, 60)
    log.release_scans_before(log.next_sequence)
    await failed(log)
    assert list_segments(tmp_path, SETTLED_DIRECTORY) == []
    assert log._settler._timer is not None

    files.call = ""
    await tried_again(log, RETRY_MS_MIN - 1)
    assert log.metrics.settled_rounds == 0
    await tried_again(log, 1)
    assert log.metrics.settled_rounds == 1
    assert len(await read_all(log, 1)) == 60
    assert host.faults == []
    await log.close()
    assert list(Verification(tmp_path).run()) == []


@pytest.mark.parametrize("call", ["write", "sync"])
async def test_failing_disk_is_tried_again_ever_later(tmp_path: Path, call: str) -> None:
    host, files = Host(), BadSettledFiles(call, errno.EIO)
    log = await with_files(tmp_path, files, host)
    await fill(log, 60)
    log.release_scans_before(log.next_sequence)
    await failed(log)
    await tried_again(log, RETRY_MS_MIN)
    await failed(log, 2)
    await tried_again(log, RETRY_MS_MIN)
    assert log.metrics.settling_failures == 2  # twice as long this time
    await tried_again(log, RETRY_MS_MIN)
    await failed(log, 3)
    await fill(log, 1)
    assert len(await read_all(log, 1)) == 61
    assert host.faults == []

    files.call = ""
    await tried_again(log)
    assert log.metrics.settled_rounds == 1
    assert len(await read_all(log, 1)) == 61
    await log.close()
    assert list(Verification(tmp_path).run()) == []


async def test_what_retention_let_go_goes_while_settling_fails(tmp_path: Path) -> None:
    files = BadSettledFiles("", errno.EIO)
    log = await with_files(tmp_path, files, Host())
    await fill(log, 60)
    await settle(log)
    own = log._catalog.settled.owned(1)
    assert own
    rounds = log.metrics.settled_rounds
    files.call, files.bytes_min = "write", 100_000  # batches, not the manifest
    await fill(log, 60)
    log.release_scans_before(log.next_sequence)
    await failed(log)

    await truncate(log, 1, 60)
    await until(lambda: all(segment.is_gone for segment in own))
    await idle(log)
    assert log.metrics.settled_rounds == rounds
    assert len(await read_all(log, 1)) == 60
    await log.close()


async def test_what_could_not_be_removed_is_removed_later(tmp_path: Path) -> None:
    files = BadSettledFiles("", errno.EIO)
    log = await with_files(tmp_path, files, Host())
    await fill(log, 60)
    await settle(log)
    own = log._catalog.settled.owned(1)
    assert own
    files.call = "write"
    await truncate(log, 1, 60)
    await failed(log)
    assert not any(segment.is_gone for segment in own)

    files.call = ""
    await tried_again(log)
    assert all(segment.is_gone for segment in own)
    await log.close()


async def test_settling_takes_what_fits_on_the_disk(tmp_path: Path) -> None:
    """And what it takes frees space for more."""
    disk = FullDisk(12 * MIB)
    log = await with_files(tmp_path, disk, Host())
    await fill(log, 120)  # seven segments
    disk.free_bytes = 2 * MIB + 100_000
    log.release_scans_before(log.next_sequence)
    await until(lambda: not list(log._catalog.closed_segments()))
    await idle(log)

    assert log.metrics.settling_failures == 0
    assert log.metrics.settled_rounds > 3
    assert len(await read_all(log, 1)) == 120
    await log.close()
    assert list(Verification(tmp_path).run()) == []


async def test_settling_resumes_when_there_is_room_for_a_segment(tmp_path: Path) -> None:
    disk = FullDisk(12 * MIB)
    log = await with_files(tmp_path, disk, Host())
    await fill(log, 60)
    disk.free_bytes = MIB // 2
    log.release_scans_before(log.next_sequence)
    await failed(log)
    assert not (tmp_path / SETTLED_DIRECTORY).exists()  # nothing was begun that cannot end

    await truncate(log, 1, 55)  # what is dead needs no room
    await tried_again(log, RETRY_MS_MIN)
    assert log.metrics.settled_rounds >= 1
    assert len(await read_all(log, 1)) == 5
    await log.close()


async def test_manifest_of_which_nobody_knows_stops_the_node(tmp_path: Path) -> None:
    host, files = Host(), BadSettledFiles("", errno.EIO)
    log = await with_files(tmp_path, files, host)
    await fill(log, 60)
    await settle(log)
    await fill(log, 60)
    files.call = "rename"
    log.release_scans_before(log.next_sequence)
    await until(lambda: bool(host.faults))
    await log.close()
    log = await opened(tmp_path)
    assert len(await read_all(log, 1)) == 120
    await log.close()


async def with_damage(tmp_path: Path, position: int) -> SegmentLog:
    """A log that has tried to settle a damaged segment, once less than it takes."""
    log = await opened(tmp_path)
    await fill(log, 60)
    flip(list_segments(tmp_path)[0][1], position)
    log.release_scans_before(log.next_sequence)
    await failed(log)
    for count in range(2, DAMAGE_TRIES + 1):
        assert list_segments(tmp_path)[0][0] == 1
        assert log.metrics.settled_rounds == 0
        assert len(list(log._catalog.closed_segments())) > 2
        await tried_again(log)
        if count < DAMAGE_TRIES:
            await failed(log, count)
    return log


async def test_damaged_batch_goes_along_when_it_does_not_get_better(tmp_path: Path) -> None:
    log = await with_damage(tmp_path, 30_000)
    await failed(log, DAMAGE_TRIES)
    await tried_again(log)
    assert list(log._catalog.closed_segments()) == []
    assert log.metrics.settled_damaged == 1
    batches = await read_all(log, 1)
    assert [is_intact(batch) for batch in batches] == [False, *[True] * 59]
    assert len(await read_all(log, 2)) == 60

    seen: list[int] = []

    def keep(batch: Buffer) -> Buffer | None:
        seen.append(parse_batch_header(batch).base_offset)
        return None

    await log.rewrite(1, log.settled_offset(1), keep)
    assert seen == list(range(1, log.settled_offset(1)))
    assert (await read_all(log, 1))[0] == batches[0]
    await fill(log, 1)
    await log.close()
    found = [finding.text for finding in Verification(tmp_path).run()]
    assert len(found) == 1
    assert "the CRC of the batch does not match" in found[0]


async def test_damage_that_was_the_disks_mood_leaves_no_trace(tmp_path: Path) -> None:
    log = await with_damage(tmp_path, 30_000)
    flip(list_segments(tmp_path)[0][1], 30_000)  # As it was.
    await tried_again(log)
    assert list(log._catalog.closed_segments()) == []
    assert log.metrics.settled_damaged == 0
    await log.close()
    assert list(Verification(tmp_path).run()) == []


async def test_a_wrong_length_is_mended_by_the_row(tmp_path: Path) -> None:
    """The batch's CRC, which does not cover it, says that all the rest is right."""
    log = await opened(tmp_path)
    await fill(log, 60)
    before = await read_all(log, 1)
    first = log._catalog.footers.get(next(log._catalog.closed_segments()))
    flip(list_segments(tmp_path)[0][1], (first.rows[2] & 0xFFFF_FFFF) + 9)
    await settle(log)

    assert log.metrics.settling_failures == 0
    assert await read_all(log, 1) == before
    await log.close()
    assert list(Verification(tmp_path).run()) == []


TURNS_MAX = 20


async def test_damage_of_one_partition_does_not_keep_others_from_merging(
    tmp_path: Path,
) -> None:
    log = await opened(tmp_path)
    damaged: set[Path] = set()
    turn = 0
    while not log.metrics.settling_failures:
        await fill(log, 20, (1,))
        await fill(log, 20, (2,))
        # A round may take the segments of two turns: its file is then too large for a merge.
        for path in {one.path for one in log._catalog.settled.owned(1)} - damaged:
            damaged.add(path)
            flip(path, 30_000)
        await settle(log)
        turn += 1
        assert turn < TURNS_MAX
    owned = log._catalog.settled.owned
    await until(lambda: len(owned(2)) < len(owned(1)))

    assert len(owned(1)) > 3
    await log.close()
