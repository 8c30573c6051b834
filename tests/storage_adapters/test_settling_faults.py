"""Settling on a full or a failing disk, and over damage: nothing is lost."""

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.clock import ManualClock
from gateway.errors import StorageUnavailable
from gateway.model import Octets
from storage_adapters.segment_log.adapter import SegmentLog
from storage_adapters.segment_log.config import SegmentLogConfig
from storage_adapters.segment_log.files import SystemFiles
from storage_adapters.segment_log.segments import SETTLED_DIRECTORY, list_segments
from storage_adapters.segment_log.verify import Verification
from tests.contracts.storage import Host, read_all
from tests.storage_adapters.settling import fill, idle, opened, settle, until
from tests.storage_adapters.test_recovery import flip
from tests.storage_adapters.test_segment_log import MIB


class BadSettledFiles(SystemFiles):
    """Fails one kind of call on files of the settled folder, with ``number`` as errno."""

    def __init__(self, call: str, number: int) -> None:
        self.call = call
        self.number = number
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

    def write(self, fd: int, buffers: Sequence[Octets], position: int) -> int:
        if fd in self._settled:
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
    config = SegmentLogConfig(segment_bytes=MIB, reserve_bytes=0, settle_after_bytes=0)
    log = SegmentLog(config, data_dir=data_dir, clock=ManualClock(), files=files)
    await log.open(host)
    return log


async def test_full_disk_is_tried_again(tmp_path: Path) -> None:
    host, files = Host(), BadSettledFiles("write", errno.ENOSPC)
    log = await with_files(tmp_path, files, host)
    await fill(log, 60)
    log.release_scans_before(log.next_sequence)
    await until(lambda: log._settler._timer is not None)
    await idle(log)
    assert list_segments(tmp_path, SETTLED_DIRECTORY) == []
    assert not log._settler.is_halted

    files.call = ""
    log._wake_sweeper()  # What the timer does.
    await until(lambda: log.metrics.settled_rounds == 1)
    assert len(await read_all(log, 1)) == 60
    assert host.faults == []
    await log.close()
    assert list(Verification(tmp_path).run()) == []


@pytest.mark.parametrize("call", ["write", "sync"])
async def test_failing_disk_ends_settling_and_not_the_node(tmp_path: Path, call: str) -> None:
    host = Host()
    log = await with_files(tmp_path, BadSettledFiles(call, errno.EIO), host)
    await fill(log, 60)
    log.release_scans_before(log.next_sequence)
    await until(lambda: log._settler.is_halted)
    await fill(log, 1)
    assert len(await read_all(log, 1)) == 61
    assert host.faults == []
    with pytest.raises(StorageUnavailable, match="settling has stopped"):
        await log.rewrite(1, 10, lambda batch: batch)
    await log.close()
    log = await opened(tmp_path)
    assert len(await read_all(log, 1)) == 61
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


async def test_damaged_batch_is_not_copied(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    await fill(log, 60)
    flip(list_segments(tmp_path)[0][1], 30_000)
    log.release_scans_before(log.next_sequence)
    await until(lambda: log._settler.is_halted)
    assert list_segments(tmp_path)[0][0] == 1
    assert list_segments(tmp_path, SETTLED_DIRECTORY) == []
    await fill(log, 1)
    await log.close()
