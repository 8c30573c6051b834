"""Disks that fail stop the node with nothing acknowledged; slow ones only slow it."""

import asyncio
from pathlib import Path

import pytest

from gateway.clock import ManualClock
from gateway.errors import StorageFull, StorageUnavailable
from gateway.storage import Bounds
from gateway.testing.storage import Host, append, make_entry, read_all
from storage_adapters.segment_log.adapter import SegmentLog
from storage_adapters.segment_log.config import SegmentLogConfig
from storage_adapters.segment_log.files import Files
from storage_adapters.segment_log.synced import read_mark
from tests.storage_adapters.disks import FailingFiles, SlowFiles, StingyFiles
from tests.storage_adapters.test_segment_log import new_log

MIB = 1_048_576


def log_on(files: Files, data_dir: Path, flush: str = "group") -> SegmentLog:
    options = {"segment_bytes": MIB, "reserve_bytes": 0, "flush": flush}
    config = SegmentLogConfig.model_validate(options)
    return SegmentLog(config, data_dir=data_dir, clock=ManualClock(), files=files)


@pytest.mark.parametrize(
    ("call", "flush", "size_bytes"),
    [
        ("write", "group", 100),
        ("sync", "group", 100),
        ("write", "never", 100),
        ("write", "never", 400_000),
    ],
)
async def test_error_of_the_disk_stops_the_log_with_nothing_acknowledged(
    tmp_path: Path, call: str, flush: str, size_bytes: int
) -> None:
    files, host = FailingFiles(call), Host()
    log = log_on(files, tmp_path, flush)
    await log.open(host)
    await append(log, make_entry((1, 0)))
    answers: list[StorageUnavailable | None] = []
    last = asyncio.get_running_loop().create_future()

    files.fails = True
    log.enqueue([make_entry((1, 1), size_bytes=size_bytes)], answers.append)
    log.enqueue([make_entry((1, 2))], last.set_result)

    assert isinstance(await last, StorageUnavailable)
    assert [type(answer) for answer in answers] == [StorageUnavailable]
    assert [type(fault) for fault in host.faults] == [OSError]
    assert log.queued_bytes == 0
    with pytest.raises(StorageUnavailable, match="Input/output error"):
        log.enqueue([make_entry((1, 3))], answers.append)
    with pytest.raises(StorageUnavailable):
        log.truncate_before(1, 1, answers.append)
    assert len(await read_all(log, 1)) == 1  # What was acknowledged can still be read.
    await log.close()


async def test_an_append_whose_segment_cannot_be_made_is_refused_by_the_disks_error(
    tmp_path: Path,
) -> None:
    """The disk is not full, and those who waited before are told after the call."""
    files, host = FailingFiles("create"), Host()
    log = log_on(files, tmp_path)
    await log.open(host)
    first = asyncio.get_running_loop().create_future()
    files.fail()

    log.enqueue([make_entry((1, 0), size_bytes=MIB // 3)], first.set_result)
    with pytest.raises(StorageUnavailable, match="Input/output error") as refusal:
        log.enqueue([make_entry((1, 1), size_bytes=2 * MIB // 3)], lambda _: None)

    assert not isinstance(refusal.value, StorageFull)
    assert not first.done()
    assert isinstance(await first, StorageUnavailable)
    assert [type(fault) for fault in host.faults] == [OSError]
    assert log.bounds(1).end == 1
    await log.close()


async def test_nothing_is_done_behind_a_sync_that_failed(tmp_path: Path) -> None:
    """A system tells of what it has lost once: the next sync would succeed."""
    files, host = SlowFiles(), Host()
    files.go.set()
    log = log_on(files, tmp_path)
    await log.open(host)
    await append(log, make_entry((1, 0)))
    marked = read_mark(tmp_path)
    loop = asyncio.get_running_loop()
    answers = [loop.create_future() for _ in range(2)]
    files.go.clear()
    files.waiting.clear()

    log.enqueue([make_entry((1, 1))], answers[0].set_result)
    await asyncio.to_thread(files.waiting.wait, 20)
    log.enqueue([make_entry((1, 2))], answers[1].set_result)
    await asyncio.sleep(0)  # handed over
    files.fails_once = True
    files.go.set()

    for error in await asyncio.gather(*answers):
        assert isinstance(error, StorageUnavailable)
    await log.close()
    assert read_mark(tmp_path) == marked


async def test_failed_background_sync_stops_the_log(tmp_path: Path) -> None:
    files, host = FailingFiles("sync"), Host()
    faulted = asyncio.Event()
    host.on_fault = lambda error: faulted.set()  # type: ignore[method-assign]  # noqa: ARG005
    log = log_on(files, tmp_path, "interval")
    await log.open(host)

    files.fails = True
    await append(log, make_entry((1, 0)))  # Acknowledged when written: that is the policy.
    await asyncio.wait_for(faulted.wait(), 60)

    with pytest.raises(StorageUnavailable):
        log.enqueue([make_entry((1, 1))], lambda _: None)
    await log.close()


async def test_short_writes_are_completed(tmp_path: Path) -> None:
    log = log_on(StingyFiles(), tmp_path)
    await log.open(Host())
    entries = [make_entry((1, number), size_bytes=3_000) for number in range(5)]

    await append(log, *entries)
    await log.close()

    log = new_log(tmp_path)
    await log.open(Host())
    assert await read_all(log, 1) == [entry.batch for entry in entries]
    await log.close()


async def test_slow_disk_only_slows(tmp_path: Path) -> None:
    """While a sync takes its time, appends are taken, and then share one sync."""
    files = SlowFiles()
    files.go.set()
    log = log_on(files, tmp_path)
    await log.open(Host())
    files.go.clear()
    files.waiting.clear()
    answers: list[StorageUnavailable | None] = []
    last = asyncio.get_running_loop().create_future()

    log.enqueue([make_entry((1, 0))], answers.append)
    await asyncio.to_thread(files.waiting.wait, 20)
    for number in range(1, 50):
        log.enqueue([make_entry((1, number))], answers.append)
    log.enqueue([make_entry((1, 50))], last.set_result)
    assert answers == []
    assert log.bounds(1) == Bounds(0, 51)
    assert log.queued_bytes > 51 * 100

    syncs = log.metrics.syncs
    files.go.set()
    await last

    assert answers == [None] * 50
    assert log.metrics.syncs == syncs + 2
    await log.close()


async def test_what_is_appended_while_others_are_told_goes_to_the_disk_at_once(
    tmp_path: Path,
) -> None:
    """A callback may take long: here until the disk has begun, or for ever."""
    files = SlowFiles()
    files.go.set()
    log = log_on(files, tmp_path)
    await log.open(Host())
    loop = asyncio.get_running_loop()
    first, second, third = (loop.create_future() for _ in range(3))
    has_begun: list[bool] = []

    def on_first(_error: StorageUnavailable | None) -> None:
        files.waiting.clear()
        log.enqueue([make_entry((1, 1))], second.set_result)
        has_begun.append(files.waiting.wait(20))
        log.enqueue([make_entry((1, 2))], third.set_result)
        first.set_result(None)

    log.enqueue([make_entry((1, 0))], on_first)
    assert list(await asyncio.gather(first, second, third)) == [None] * 3

    assert has_begun == [True]
    assert log.bounds(1) == Bounds(0, 3)
    await log.close()


async def test_one_callback_that_fails_leaves_the_others_their_answers(tmp_path: Path) -> None:
    log = log_on(FailingFiles("none"), tmp_path)
    await log.open(Host())
    loop = asyncio.get_running_loop()
    seen: list[object] = []
    loop.set_exception_handler(lambda _, context: seen.append(context["exception"]))
    last = loop.create_future()

    log.enqueue([make_entry((1, 0))], lambda _: 1 / 0)  # type: ignore[arg-type]
    log.enqueue([make_entry((1, 1))], last.set_result)

    assert await last is None
    assert [type(error) for error in seen] == [ZeroDivisionError]
    await log.close()
