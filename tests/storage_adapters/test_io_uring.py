"""The kernel's io_uring, through our interface to it: chains of writes and a sync."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_adapters.segment_log.io_uring import IoUring
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
    ring.write(fd, bytearray(b"first, "), 0)
    ring.write(fd, memoryview(bytearray(b"--second--"))[2:8], 7)
    ring.sync(fd)
    ring.write(fd, bytearray(b"F"), 0)

    assert ring.begin()

    assert done(ring) == [7, 6, 0, 1]
    assert os.pread(fd, 100, 0) == b"First, second"


def test_rings_go_round(ring: IoUring, fd: int) -> None:
    for number in range(100):
        octets = bytearray(b"%08d" % number)
        for part in range(1 + number % 7):
            ring.write(fd, octets, 64 * number + 8 * part)
        ring.sync(fd)
        assert ring.begin()
        assert done(ring) == [8] * (1 + number % 7) + [0]
    for number in range(100):
        count = 1 + number % 7
        assert os.pread(fd, 8 * count, 64 * number) == b"%08d" % number * count


def test_nothing_is_done_behind_a_step_that_failed(ring: IoUring, fd: int) -> None:
    with Path("/dev/full").open("r+b", buffering=0) as full:
        ring.write(full.fileno(), bytearray(b"no room"), 0)
        ring.sync(fd)
        ring.write(fd, bytearray(b"never"), 0)
        assert ring.begin()

        results = done(ring)

    assert results == [-errno.ENOSPC, -errno.ECANCELED, -errno.ECANCELED]
    assert os.pread(fd, 100, 0) == b""
    ring.write(fd, bytearray(b"again"), 0)  # the ring goes on
    assert ring.begin()
    assert done(ring) == [5]


def test_a_chain_that_the_kernel_does_not_take_is_none(
    ring: IoUring, fd: int, tmp_path: Path
) -> None:
    kept = os.dup(ring.fd)
    with (tmp_path / "other").open("wb") as other:
        os.dup2(other.fileno(), ring.fd)
        ring.write(fd, bytearray(b"lost"), 0)
        assert not ring.begin()
    os.dup2(kept, ring.fd)
    os.close(kept)

    ring.write(fd, bytearray(b"kept"), 4)
    assert ring.begin()
    assert done(ring) == [4]
    assert os.pread(fd, 100, 0) == b"\0\0\0\0kept"


def test_who_waits_waits_for_all(ring: IoUring, fd: int) -> None:
    octets = bytearray(4_000_000)
    for number in range(7):
        ring.write(fd, octets, number * len(octets))
    ring.sync(fd)
    assert ring.begin()

    ring.wait()

    assert ring.results() == [len(octets)] * 7 + [0]
