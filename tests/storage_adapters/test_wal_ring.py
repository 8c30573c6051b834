"""Groups that go to the disk by io_uring, and those that do not; a ring that fails."""

import asyncio
import errno
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from gateway.errors import StorageUnavailable
from gateway.testing.storage import Host, append, make_entry, read_all
from storage_adapters.segment_log import adapter
from storage_adapters.segment_log.adapter import SegmentLog
from storage_adapters.segment_log.io_uring import OP_FSYNC, OP_WRITE, IoUring, Step
from storage_adapters.segment_log.synced import read_mark
from storage_adapters.segment_log.wal_ring import RING_BYTES_MAX, WalRing
from storage_adapters.segment_log.wal_thread import Job, WalThread
from tests.storage_adapters.test_segment_log import new_log

LARGE_BYTES: Final = RING_BYTES_MAX + 1
Change = Callable[[list[int]], list[int]]


class OddRing(IoUring):
    """Says of its chains what ``change`` makes of it; while it ``is_slow`` nothing but to waits."""

    def __init__(self) -> None:
        super().__init__()
        self.change: Change = list
        self.is_slow = self.refuses = False
        self.breaks = ""
        self.steps: list[str] = []

    @property
    def chains(self) -> int:
        return len(self.steps)

    def begin(self, chain: Sequence[Step]) -> bool:
        if self.breaks:
            raise MemoryError(self.breaks)
        if self.refuses:
            return False
        names = {OP_WRITE: "write", OP_FSYNC: "sync"}
        self.steps.append(" ".join([names[step.op] for step in chain]))
        return super().begin(chain)

    def results(self) -> list[int] | None:
        found = None if self.is_slow else super().results()
        return None if found is None else self.change(found)

    def wait(self) -> None:
        self.is_slow = False
        super().wait()


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> OddRing:
    try:
        ring = OddRing()
    except OSError as error:
        pytest.skip(f"the system lets us have no io_uring: {error}")
    monkeypatch.setattr(adapter, "new_ring", lambda: ring)
    return ring


@pytest.fixture
def threads_jobs(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """The jobs that the thread is given."""
    jobs: list[Job] = []
    put = WalThread.put

    def noting(thread: WalThread, job: Job) -> None:
        jobs.append(job)
        put(thread, job)

    monkeypatch.setattr(WalThread, "put", noting)
    return jobs


async def groups_of_one(
    log: SegmentLog, start: int, stop: int
) -> list[asyncio.Future[StorageUnavailable | None]]:
    """Append entries at these offsets, a group each, and return the answers to come."""
    loop = asyncio.get_running_loop()
    answers: list[asyncio.Future[StorageUnavailable | None]] = []
    for offset in range(start, stop):
        answers.append(loop.create_future())
        log.enqueue([make_entry((1, offset))], answers[-1].set_result)
        await asyncio.sleep(0)  # at the end of the loop's turn it is handed over
    return answers


async def reopened(data_dir: Path, count: int) -> None:
    """See that a log has that many batches when it is opened again."""
    log = new_log(data_dir, io_uring=False)
    await log.open(Host())
    assert len(await read_all(log, 1)) == count
    await log.close()


async def test_small_groups_need_no_thread(
    tmp_path: Path, ring: OddRing, threads_jobs: list[Job]
) -> None:
    log = new_log(tmp_path)
    await log.open(Host())

    for number in range(20):
        await append(log, make_entry((1, number)))

    zeros_too, *others = ring.steps
    assert zeros_too == "write write sync write"  # entries, zeros; the mark
    assert others == ["write sync write"] * 19
    assert threads_jobs == []
    assert log.metrics.syncs == 20
    assert read_mark(tmp_path) == (log.data_uuid, log.next_sequence - 1)
    await log.close()
    await reopened(tmp_path, 20)


def _note(
    told: list[int],
    number: int,
    answer: asyncio.Future[StorageUnavailable | None],
    error: StorageUnavailable | None,
) -> None:
    told.append(number)
    answer.set_result(error)


async def test_large_groups_and_what_follows_them_go_to_the_thread(
    tmp_path: Path, ring: OddRing, threads_jobs: list[Job]
) -> None:
    log = new_log(tmp_path)
    await log.open(Host())
    loop = asyncio.get_running_loop()
    told: list[int] = []
    answers = []
    for number, size_bytes in enumerate([100, LARGE_BYTES, 100]):
        answers.append(loop.create_future())
        on_done = partial(_note, told, number, answers[-1])
        log.enqueue([make_entry((1, number), size_bytes=size_bytes)], on_done)
        await asyncio.sleep(0)  # a group each

    assert await asyncio.gather(*answers) == [None] * 3

    assert told == [0, 1, 2]
    assert (ring.chains, len(threads_jobs)) == (1, 2)
    await append(log, make_entry((1, 3)))  # the thread is through
    assert (ring.chains, len(threads_jobs)) == (2, 2)
    await log.close()
    await reopened(tmp_path, 4)


async def test_what_comes_during_a_sync_shares_the_next_one(
    tmp_path: Path, ring: OddRing, threads_jobs: list[Job]
) -> None:
    log = new_log(tmp_path)
    await log.open(Host())
    ring.is_slow = True
    answers = await groups_of_one(log, 0, 10)
    assert not any(answer.done() for answer in answers)

    ring.is_slow = False

    assert await asyncio.gather(*answers) == [None] * 10
    assert (ring.chains, threads_jobs) == (2, [])
    await log.close()
    await reopened(tmp_path, 10)


async def test_a_failed_sync_stops_the_log_with_nothing_acknowledged(
    tmp_path: Path, ring: OddRing
) -> None:
    host = Host()
    log = new_log(tmp_path)
    await log.open(host)
    await append(log, make_entry((1, 0)))

    ring.change = lambda found: [*found[:-2], -errno.EIO, -errno.ECANCELED]
    ring.is_slow = True
    answers = await groups_of_one(log, 1, 3)
    ring.is_slow = False

    for error in await asyncio.gather(*answers):
        assert isinstance(error, StorageUnavailable)
        assert "Input/output error" in str(error)
    assert [type(fault) for fault in host.faults] == [OSError]
    assert log.queued_bytes == 0
    chains = ring.chains
    with pytest.raises(StorageUnavailable, match="Input/output error"):
        log.enqueue([make_entry((1, 3))], print)
    await log.close()
    assert ring.chains == chains  # nothing was written after the fault


@pytest.mark.parametrize(
    "change",
    [
        lambda found: [found[0] - 1, *[-errno.ECANCELED] * (len(found) - 1)],
        lambda found: [-errno.EAGAIN, *[-errno.ECANCELED] * (len(found) - 1)],
    ],
    ids=["short", "refused"],
)
async def test_the_thread_does_what_was_not_written_in_full(
    tmp_path: Path, ring: OddRing, threads_jobs: list[Job], change: Change
) -> None:
    log = new_log(tmp_path)
    await log.open(Host())
    ring.change = change

    await append(log, make_entry((1, 0)))
    await append(log, make_entry((1, 1)), make_entry((1, 2)))

    assert (ring.chains, len(threads_jobs)) == (2, 2)
    assert read_mark(tmp_path) == (log.data_uuid, log.next_sequence - 1)
    ring.change = list
    await append(log, make_entry((1, 3)))
    assert (ring.chains, len(threads_jobs)) == (3, 2)
    await log.close()
    await reopened(tmp_path, 4)


async def test_the_thread_does_what_the_kernel_does_not_take(
    tmp_path: Path, ring: OddRing, threads_jobs: list[Job]
) -> None:
    log = new_log(tmp_path)
    await log.open(Host())
    ring.refuses = True

    await append(log, make_entry((1, 0)))
    assert read_mark(tmp_path) == (log.data_uuid, log.next_sequence - 1)
    ring.refuses = False
    await append(log, make_entry((1, 1)))

    assert (ring.chains, len(threads_jobs)) == (1, 1)
    await log.close()
    await reopened(tmp_path, 2)


async def test_a_mark_that_cannot_be_written_ends_the_marking(
    tmp_path: Path, ring: OddRing
) -> None:
    log = new_log(tmp_path)
    await log.open(Host())
    await append(log, make_entry((1, 0)))
    marked = read_mark(tmp_path)

    ring.change = lambda found: [*found[:-1], -errno.ENOSPC]
    await append(log, make_entry((1, 1)))
    known = read_mark(tmp_path)
    ring.change = list
    await append(log, make_entry((1, 2)))

    assert read_mark(tmp_path) == known
    assert known != marked  # the real write was done: only its answer was changed
    await log.close()
    await reopened(tmp_path, 3)


async def test_a_fault_elsewhere_leaves_nothing_on_its_way(
    tmp_path: Path, ring: OddRing
) -> None:
    log = new_log(tmp_path)
    await log.open(Host())
    active = log._appender.active
    holders = active.holders
    ring.is_slow = True
    answers = await groups_of_one(log, 0, 3)
    assert active.holders > holders

    log._writer.fail(OSError(errno.EIO, "another disk"))
    await log.close()

    for error in await asyncio.gather(*answers):
        assert isinstance(error, StorageUnavailable)
    assert ring.chains == 1  # what waited was not begun
    assert active.holders == holders


async def test_an_exception_on_the_way_to_the_ring_stops_the_log(
    tmp_path: Path, ring: OddRing
) -> None:
    host = Host()
    log = new_log(tmp_path)
    await log.open(host)
    ring.is_slow = True
    answers = await groups_of_one(log, 0, 2)
    ring.breaks = "no memory for the next chain"
    ring.is_slow = False

    first, second = await asyncio.gather(*answers)

    assert first is None  # it was synced
    assert isinstance(second, StorageUnavailable)
    assert [str(fault) for fault in host.faults] == ["no memory for the next chain"]
    with pytest.raises(StorageUnavailable, match="no memory"):
        log.enqueue([make_entry((1, 2))], print)
    await log.close()
    await reopened(tmp_path, 1)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, WalRing),
        ({"io_uring": False}, WalThread),
        ({"flush": "never"}, WalThread),
        ({"flush": "interval"}, WalThread),
    ],
)
@pytest.mark.usefixtures("ring")
async def test_a_ring_is_for_groups_that_are_synced(
    tmp_path: Path, options: dict[str, object], expected: type
) -> None:
    log = new_log(tmp_path, **options)
    await log.open(Host())
    assert type(log._writer._hands) is expected
    assert log.metrics.has_ring is (expected is WalRing)
    await append(log, make_entry((1, 0)))
    await log.close()
    await reopened(tmp_path, 1)


async def test_a_system_without_it_has_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads_jobs: list[Job]
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    log = new_log(tmp_path)
    await log.open(Host())
    await append(log, make_entry((1, 0)))
    assert len(threads_jobs) == 1
    await log.close()
