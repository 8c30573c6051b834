"""The power goes at any moment: what was acknowledged with ``group`` is there, in order.

A killed process proves nothing of syncs, since the page cache lives on. Here all writes and syncs
are recorded, those of the thread and those of the ring, and disks are made of them on which only
what was synced is sure to be there.
"""

import asyncio
import random
from functools import partial
from pathlib import Path

import pytest

from gateway.clock import ManualClock
from gateway.errors import StorageUnavailable
from gateway.storage import StorageAdapter, Target
from gateway.testing.storage import ALL, Host, make_entry, offsets_of
from storage_adapters.segment_log import adapter
from storage_adapters.segment_log.adapter import SegmentLog
from storage_adapters.segment_log.config import SegmentLogConfig
from storage_adapters.segment_log.synced import MARK_NAME, read_mark
from storage_adapters.segment_log.wal_ring import new_ring
from tests.storage_adapters.disks import Event, RecordingFiles, RecordingRing, replay
from tests.storage_adapters.settling import settle

pytestmark = pytest.mark.heavy

APPENDS = 60
PARTITIONS = 3
LIVES = 3
MIB = 1_048_576
FOLDERS = ("wal", "settled")


def config(flush: str) -> SegmentLogConfig:
    return SegmentLogConfig.model_validate(
        {
            "segment_bytes": MIB,
            "reserve_bytes": 0,
            "flush": flush,
            "io_uring": False,  # but for what is recorded by a ring
            "flush_interval_ms": 10,
            "settle_after_bytes": 0,
            "settle_own_bytes": 700_000,
        }
    )


class RingFiles(RecordingFiles):
    """Small groups go to the disk by a ring, as they do where there are no files of a test."""

    def __init__(self) -> None:
        super().__init__()
        self.rings: list[RecordingRing] = []

    def open_ring(self) -> RecordingRing:
        self.rings.append(RecordingRing(self))
        return self.rings[-1]


def recording(by: str, monkeypatch: pytest.MonkeyPatch) -> RecordingFiles:
    """Return files for groups that are written by the thread, or by a ring where it may be."""
    if by == "thread":
        return RecordingFiles()
    if new_ring() is None:
        pytest.skip("the system lets us have no io_uring")
    files = RingFiles()
    monkeypatch.setattr(adapter, "new_ring", files.open_ring)
    return files


async def live(data_dir: Path, flush: str, files: RecordingFiles, seed: int, life: int) -> None:
    """Append to all partitions at once, in groups of several appends, then stop."""
    chance = random.Random(seed)
    log = SegmentLog(config(flush), data_dir=data_dir, clock=ManualClock(), files=files)
    log._may_ring = isinstance(files, RingFiles)
    await log.open(Host())
    log.release_scans_before(log.next_sequence)  # What earlier lives have left is settled.
    for number in range(life * APPENDS, (life + 1) * APPENDS):
        done = asyncio.get_running_loop().create_future()
        size_bytes = chance.choice([100, 3_000, 40_000])
        entries = [
            make_entry((partition_id, number), size_bytes=size_bytes, epoch=life + 1)
            for partition_id in range(1, PARTITIONS + 1)
        ]
        log.enqueue(entries, partial(_acked, files, number, done))
        if chance.random() < 0.5:
            await done
        if chance.random() < 0.2:
            log.release_scans_before(log.next_sequence)
    await settle(log)
    await log.close()


def _acked(
    files: RecordingFiles, number: int, done: asyncio.Future[None], error: object
) -> None:
    assert error is None
    files.ack(number)
    done.set_result(None)


async def check(
    data_dir: Path, flush: str, acked_upto: int, files: RecordingFiles | None = None
) -> int:
    """Open what is left and return how many appends are there; all or nothing of each."""
    log = SegmentLog(config(flush), data_dir=data_dir, clock=ManualClock(), files=files)
    await log.open(Host())
    ends = {log.bounds(partition_id).end for partition_id in range(1, PARTITIONS + 1)}
    assert len(ends) == 1, f"an append is there in part: {ends}"
    (end,) = ends
    for partition_id in range(1, PARTITIONS + 1):
        batches = await log.read(partition_id, 0, ALL, bytes_max=ALL)
        assert offsets_of(batches) == list(range(end))
    await _append_one(log, end)
    await log.close()
    assert end >= acked_upto, f"{acked_upto} appends were acknowledged, {end} are there"
    return end


async def _append_one(log: StorageAdapter, end: int) -> None:
    done = asyncio.get_running_loop().create_future()
    log.enqueue([make_entry([Target(n + 1, end) for n in range(PARTITIONS)])], done.set_result)
    assert await done is None


async def record(
    root: Path, flush: str, seed: int, files: RecordingFiles | None = None
) -> list[Event]:
    data_dir = root / "recorded"
    files = files or RecordingFiles()
    for life in range(LIVES):
        await live(data_dir, flush, files, seed + life, life)
    return files.events


def put_disk(root: Path, disk: dict[Path, bytes], name: str) -> Path:
    data_dir = root / name
    for folder in FOLDERS:
        (data_dir / folder).mkdir(parents=True)
    for path, content in disk.items():
        (data_dir / path.parent.name / path.name).write_bytes(content)
    return data_dir


def disk_of(data_dir: Path) -> dict[Path, bytes]:
    paths = [path for folder in FOLDERS for path in (data_dir / folder).iterdir()]
    return {path: path.read_bytes() for path in paths}


def acked(events: list[Event]) -> int:
    return max((event.position + 1 for event in events if event.what == "ack"), default=0)


async def test_what_is_recorded_settles(tmp_path: Path) -> None:
    events = await record(tmp_path, "group", 0)
    names = [event.path.name for event in events if event.what == "rename"]
    assert names.count("MANIFEST.new") >= LIVES


@pytest.mark.parametrize("by", ["thread", "ring"])
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 20))]
)
async def test_acknowledged_appends_survive_a_power_loss(
    tmp_path: Path, seed: int, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = await record(tmp_path, "group", seed, recording(by, monkeypatch))
    chance = random.Random(seed)
    for attempt in range(60):
        before = events[: chance.randint(1, len(events))]
        data_dir = put_disk(tmp_path, replay(before, chance), f"{attempt}")
        await check(data_dir, "group", acked(before))


async def test_mark_of_what_is_synced_says_no_more_than_is_there_after_a_power_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the ring, whose marks are written behind its syncs without a look in between."""
    files = recording("ring", monkeypatch)
    events = await record(tmp_path, "group", 5, files)
    assert isinstance(files, RingFiles)
    assert len(files.rings) == LIVES
    chance = random.Random(5)
    marks = [
        at for at, event in enumerate(events) if event.path.name == MARK_NAME and event.data
    ]
    for at in chance.sample(marks, 60):
        data_dir = put_disk(tmp_path, replay(events[: at + 1], chance), f"{at}")
        (data_dir / "wal" / MARK_NAME).write_bytes(events[at].data)  # the last one comes first
        mark = read_mark(data_dir)
        assert mark is not None
        log = SegmentLog(config("group"), data_dir=data_dir, clock=ManualClock())
        await log.open(Host())
        assert log.next_sequence > mark.sequence
        await log.close()


@pytest.mark.parametrize("flush", ["group", "never"])
async def test_power_goes_again_during_the_recovery(tmp_path: Path, flush: str) -> None:
    events = await record(tmp_path, flush, 3)
    chance = random.Random(3)
    for attempt in range(20):
        before = events[: chance.randint(1, len(events))]
        acked_upto = acked(before) if flush == "group" else 0
        first = put_disk(tmp_path, replay(before, chance), f"{attempt}")
        held = disk_of(first)
        files = RecordingFiles()
        await check(first, flush, acked_upto, files)

        for again in range(4):
            until = files.events[: chance.randint(1, len(files.events))]
            disk = replay(until, chance, before=held)
            await check(put_disk(tmp_path, disk, f"{attempt}-{again}"), flush, acked_upto)


@pytest.mark.parametrize("flush", ["never", "interval"])
async def test_other_policies_lose_a_tail_and_nothing_else(tmp_path: Path, flush: str) -> None:
    events = await record(tmp_path, flush, 7)
    chance = random.Random(7)
    for attempt in range(60):
        before = events[: chance.randint(1, len(events))]
        data_dir = put_disk(tmp_path, replay(before, chance), f"{attempt}")
        await check(data_dir, flush, 0)


async def test_without_syncs_the_loss_is_seen(tmp_path: Path) -> None:
    """The test above can fail: a disk that pretends to sync loses what was acknowledged."""
    events = await record(tmp_path, "group", 1)
    chance = random.Random(1)
    losses = 0
    for attempt in range(20):
        before = events[: chance.randint(len(events) // 2, len(events))]
        data_dir = put_disk(tmp_path, replay(before, chance, syncs=False), f"{attempt}")
        try:
            await check(data_dir, "group", acked(before))
        except (AssertionError, StorageUnavailable):
            losses += 1
    assert losses > 0
