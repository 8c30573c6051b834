"""A copy of the log beside a node at work: all that was acknowledged before it is in it."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event

import pytest

from gateway.clock import ManualClock
from gateway.errors import StorageUnavailable
from gateway.testing.storage import Host, append, delete, make_entry, read_all, truncate
from storage_adapters.segment_log import backup
from storage_adapters.segment_log.adapter import SegmentLog
from storage_adapters.segment_log.backup import HoldingFiles, link_or_copy
from storage_adapters.segment_log.config import SegmentLogConfig
from storage_adapters.segment_log.files import SystemFiles
from storage_adapters.segment_log.segments import WAL_DIRECTORY, list_segments
from tests.support.waiting import until

MIB = 1_048_576
PARTITIONS = (1, 2, 3)


def refuse(*_: object) -> None:
    """Be ``os.link`` between two file systems."""
    raise OSError(errno.EXDEV, "Invalid cross-device link")


class Log:
    """A log whose removals can be held, and what was acknowledged of it."""

    def __init__(self, data_dir: Path, **options: object) -> None:
        config = SegmentLogConfig.model_validate(
            {"segment_bytes": MIB, "reserve_bytes": 0, **options}
        )
        self.data_dir = data_dir
        self.storage = SegmentLog(config, data_dir=data_dir, clock=ManualClock())
        self.files = self.storage._files
        self.acknowledged = 0
        self._ends = dict.fromkeys(PARTITIONS, 0)
        self._is_writing = True

    async def fill(self, appends: int) -> None:
        for _ in range(appends):
            entries = []
            for partition_id in PARTITIONS:
                entries.append(
                    make_entry((partition_id, self._ends[partition_id]), 2, size_bytes=9_000)
                )
                self._ends[partition_id] += 2
            await append(self.storage, *entries)
            self.acknowledged += 1

    async def write_until_stopped(self) -> None:
        while self._is_writing:
            await self.fill(1)

    def stop_writing(self) -> None:
        self._is_writing = False

    @asynccontextmanager
    async def written(self) -> AsyncIterator[None]:
        """Append meanwhile, as fast as the log takes it."""
        self._is_writing = True
        writing = asyncio.create_task(self.write_until_stopped())
        before = self.acknowledged
        yield
        await until(lambda: self.acknowledged > before or writing.done())
        self.stop_writing()
        await writing

    async def wait_settled(self, rounds: int) -> None:
        """Return while the round after that many is at work, or may be."""

        def is_settled() -> bool:
            self.storage.release_scans_before(self.storage.next_sequence)
            return self.storage.metrics.settled_rounds >= rounds

        await until(is_settled)

    async def back_up(self, target: Path) -> None:
        make_folder(target)
        await self.storage.copier.copy(target)


def make_folder(path: Path) -> None:
    path.mkdir(exist_ok=True)


async def opened(data_dir: Path) -> SegmentLog:
    storage = Log(data_dir).storage
    await storage.open(Host())
    return storage


@pytest.mark.parametrize("flush", ["group", "never"])
async def test_a_copy_under_load_has_all_that_was_acknowledged(
    tmp_path: Path, flush: str
) -> None:
    log = Log(tmp_path / "data", flush=flush)
    log.data_dir.mkdir()
    await log.storage.open(Host())
    await log.fill(60)  # a segment is full after 39

    for number in range(5):
        before = log.acknowledged
        async with log.written():
            await log.back_up(tmp_path / f"copy-{number}")

        copy = await opened(tmp_path / f"copy-{number}")
        for partition_id in PARTITIONS:
            batches = await read_all(copy, partition_id)
            assert len(batches) >= before
            end = copy.bounds(partition_id).end
            assert batches == await read_all(log.storage, partition_id, 0, end)
        assert copy.data_uuid == log.storage.data_uuid
        await append(copy, make_entry((9, 0)))
        await copy.close()
    await log.storage.close()


async def test_a_copy_while_segments_are_settled_has_all_too(tmp_path: Path) -> None:
    log = Log(tmp_path / "data", settle_after_bytes=0, settle_own_bytes=100_000)
    log.data_dir.mkdir()
    await log.storage.open(Host())
    await log.fill(60)
    writing = asyncio.create_task(log.write_until_stopped())

    for number in range(8):
        log.storage.release_scans_before(log.storage.next_sequence)
        await log.wait_settled(number)
        before = log.acknowledged
        await log.back_up(tmp_path / f"copy-{number}")

        copy = await opened(tmp_path / f"copy-{number}")
        for partition_id in PARTITIONS:
            batches = await read_all(copy, partition_id)
            assert len(batches) >= before
            end = copy.bounds(partition_id).end
            assert batches == await read_all(log.storage, partition_id, 0, end)
        await copy.close()
    assert log.storage.metrics.settled_rounds >= 7
    log.stop_writing()
    await writing
    await log.storage.close()


async def test_nothing_is_removed_while_a_copy_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(tmp_path / "data")
    log.data_dir.mkdir()
    await log.storage.open(Host())
    await log.fill(100)
    numbers = [number for number, _ in list_segments(log.data_dir)]
    loop = asyncio.get_running_loop()
    held: list[list[int]] = []

    def remove_first(path: Path, target: Path, stop: Event) -> None:
        if not held:
            remove = asyncio.run_coroutine_threadsafe(remove_all(), loop)
            remove.result(30)
            held.append([number for number, _ in list_segments(log.data_dir)][:2])
        link_or_copy(path, target, stop)

    async def remove_all() -> None:
        await truncate(log.storage, 1, 200)
        await delete(log.storage, 2, 3)
        await until(lambda: log.storage.metrics.segments_removed == 2)

    monkeypatch.setattr(backup, "link_or_copy", remove_first)
    await log.back_up(tmp_path / "copy")

    assert held == [numbers[:2]]
    copied = [number for number, _ in list_segments(tmp_path / "copy")]
    assert copied[:2] == numbers[:2]
    assert [number for number, _ in list_segments(log.data_dir)][:2] != numbers[:2]
    copy = await opened(tmp_path / "copy")
    assert len(await read_all(copy, 2)) == 100
    await copy.close()
    await log.storage.close()


async def test_on_another_file_system_closed_files_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(tmp_path / "data")
    log.data_dir.mkdir()
    await log.storage.open(Host())
    await log.fill(100)
    monkeypatch.setattr(os, "link", refuse)
    await log.back_up(tmp_path / "copy")

    monkeypatch.undo()
    copies = list((tmp_path / "copy" / WAL_DIRECTORY).iterdir())
    assert copies
    assert {path.stat().st_nlink for path in copies} == {1}
    copy = await opened(tmp_path / "copy")
    assert len(await read_all(copy, 3)) == 100
    await copy.close()
    await log.storage.close()


async def test_a_target_that_takes_nothing_fails_and_releases(tmp_path: Path) -> None:
    log = Log(tmp_path / "data")
    log.data_dir.mkdir()
    await log.storage.open(Host())
    await log.fill(50)
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / WAL_DIRECTORY).write_text("in the way")

    with pytest.raises(StorageUnavailable, match="copy"):
        await log.back_up(tmp_path / "copy")

    path = tmp_path / "file"
    path.touch()
    log.files.unlink(path)
    assert not path.exists()
    await log.storage.close()


def test_copying_ends_when_the_node_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, stop = made(tmp_path / "a"), Event()
    monkeypatch.setattr(os, "link", refuse)
    stop.set()
    with pytest.raises(InterruptedError, match="stops"):
        link_or_copy(path, tmp_path / "b", stop)


# Holding.


def made(path: Path) -> Path:
    path.write_text("old")
    return path


def test_removals_are_put_aside_until_the_last_release(tmp_path: Path) -> None:
    files, path = HoldingFiles(SystemFiles()), made(tmp_path / "a")
    files.hold()
    files.hold()
    files.unlink(path)
    files.release()
    assert path.exists()
    files.release()
    assert not path.exists()


def test_a_name_that_was_put_aside_can_be_made_anew(tmp_path: Path) -> None:
    files, path = HoldingFiles(SystemFiles()), made(tmp_path / "a")
    files.hold()
    files.unlink(path)
    os.close(files.create(path))
    files.release()
    assert path.read_text() == ""


def test_a_name_that_was_put_aside_can_be_renamed_to(tmp_path: Path) -> None:
    files, path = HoldingFiles(SystemFiles()), made(tmp_path / "a")
    files.hold()
    files.unlink(path)
    new = tmp_path / "b"
    new.write_text("new")
    files.rename(new, path)
    files.release()
    assert path.read_text() == "new"
