"""The kernel's io_uring, through our interface to it: chains of writes and a sync."""

import errno
import fcntl
import gc
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from storage_adapters.segment_log.io_uring import IoUring, sync, write
from tests.support.waiting import wait_until


@pytest.fixture
def ring() -> Iterator[IoUring]:
    try:
        ring = IoUring()
    except OSError as error:
        pytest.skip(f"the system lets us have no io_uring: {error}")
    yield ring
    ring.wait()
    ring.close()


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


def done(ring: IoUring) -> list[int]:
    """Return the results of the chain that is on its way."""
    wait_until(lambda: ring.results() is not None, within_s=20, what="the chain's end")
    found = ring.results()
    assert found is not None
    return list(found)


def test_writes_are_done_one_after_the_other_and_synced(ring: IoUring, fd: int) -> None:
    first, second = bytearray(b"first, "), memoryview(bytearray(b"--second--"))[2:8]
    chain = [write(fd, first, 0), write(fd, second, 7), sync(fd), write(fd, bytearray(b"F"), 0)]

    assert ring.begin(chain)

    assert done(ring) == [7, 6, 0, 1]
    assert os.pread(fd, 100, 0) == b"First, second"


def test_rings_go_round(ring: IoUring, fd: int) -> None:
    for number in range(100):
        data = bytearray(b"%08d" % number)
        places = [64 * number + 8 * part for part in range(1 + number % 7)]
        assert ring.begin([*[write(fd, data, place) for place in places], sync(fd)])
        assert done(ring) == [8] * (1 + number % 7) + [0]
    for number in range(100):
        count = 1 + number % 7
        assert os.pread(fd, 8 * count, 64 * number) == b"%08d" % number * count


def test_nothing_is_done_behind_a_step_that_failed(ring: IoUring, fd: int) -> None:
    with Path("/dev/full").open("r+b", buffering=0) as full:
        refused = write(full.fileno(), bytearray(b"no room"), 0)
        assert ring.begin([refused, sync(fd), write(fd, bytearray(b"never"), 0)])

        results = done(ring)

    assert results == [-errno.ENOSPC, -errno.ECANCELED, -errno.ECANCELED]
    assert os.pread(fd, 100, 0) == b""
    assert ring.begin([write(fd, bytearray(b"again"), 0)])  # the ring goes on
    assert done(ring) == [5]


def test_a_chain_that_the_kernel_does_not_take_is_none(
    ring: IoUring, fd: int, tmp_path: Path
) -> None:
    kept = os.dup(ring.fd)
    with (tmp_path / "other").open("wb") as other:
        os.dup2(other.fileno(), ring.fd)
        assert not ring.begin([write(fd, bytearray(b"lost"), 0)])
    os.dup2(kept, ring.fd)
    os.close(kept)

    assert ring.begin([write(fd, bytearray(b"kept"), 4)])
    assert done(ring) == [4]
    assert os.pread(fd, 100, 0) == b"\0\0\0\0kept"


def test_who_waits_waits_for_all(ring: IoUring, fd: int) -> None:
    data = bytearray(4_000_000)
    writes = [write(fd, data, number * len(data)) for number in range(7)]
    assert ring.begin([*writes, sync(fd)])

    ring.wait()

    assert ring.results() == [len(data)] * 7 + [0]


def test_what_the_kernel_reads_outlives_a_ring_that_is_dropped(ring: IoUring) -> None:
    del ring  # there is one to be had
    receiver, sender = os.pipe()
    os.set_blocking(receiver, False)
    size_bytes = fcntl.fcntl(sender, fcntl.F_GETPIPE_SZ)
    os.write(sender, bytes(size_bytes))  # it is full: the next write has to wait
    data = bytearray(b"good" * 50_000)
    dropped = IoUring()
    assert dropped.begin([write(sender, data, 0)])

    expected = bytes(data)
    del dropped, data
    gc.collect()
    others = [bytearray(b"evil" * 50_000) for _ in range(20)]

    received = b""

    def is_received() -> bool:
        nonlocal received
        with suppress(BlockingIOError):
            received += os.read(receiver, size_bytes)
        return len(received) > size_bytes  # a pipe takes a part of it

    wait_until(is_received, within_s=20, what="bytes of the write")
    assert expected.startswith(received[size_bytes:])
    assert len(others) == 20
    os.close(receiver)
    os.close(sender)
