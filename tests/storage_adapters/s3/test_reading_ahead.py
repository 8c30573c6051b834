"""Reading in advance for those who read on and on."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from gateway.testing.storage import make_entry
from storage_adapters.s3 import read_ahead
from storage_adapters.s3.read_ahead import ReadAhead
from storage_adapters.s3.state import PartitionState, object_key
from tests.storage_adapters.s3.stored_objects import KIB, StoredObjects
from tests.support.s3_servers import S3Server
from tests.support.waiting import until

MIB = 1024 * KIB


@pytest.fixture
async def shelf(server: S3Server, tmp_path: Path) -> AsyncIterator[StoredObjects]:
    shelf = StoredObjects(server, tmp_path, read_ahead_bytes=640 * KIB)
    yield shelf
    shelf.close()


def add_log(shelf: StoredObjects, objects: int, batches: int) -> None:
    """Add objects of so many batches of 64 KiB."""
    for first in range(0, objects * batches, batches):
        shelf.add([make_entry((1, first + n), size_bytes=64 * KIB) for n in range(batches)])


async def settled(shelf: StoredObjects) -> None:
    """Wait until nothing is on its way."""
    await until(
        lambda: (
            not shelf.cache._loading
            and all(
                one.task is None or one.task.done()
                for one in shelf.reader.ahead._readers.values()
            )
        )
    )


async def test_reader_that_goes_on_finds_what_it_needs_in_memory(shelf: StoredObjects) -> None:
    add_log(shelf, 3, 16)
    await shelf.read(1, 0, bytes_max=1)
    await shelf.read(1, 1, bytes_max=1)
    await settled(shelf)

    in_memory = []
    for offset in range(2, 48):
        batches = shelf.read_cached(1, offset, bytes_max=1)
        in_memory.append(batches is not None)
        if batches is None:
            await shelf.read(1, offset, bytes_max=1)
        await settled(shelf)

    assert all(in_memory)
    assert len(shelf.bucket.gets) <= 12


async def test_single_reads_fetch_nothing_in_advance(shelf: StoredObjects) -> None:
    add_log(shelf, 1, 16)

    for offset in (0, 5, 9, 3):
        await shelf.read(1, offset, bytes_max=1)
    await settled(shelf)

    assert shelf.reader.ahead.fetches == 0


async def test_one_piece_is_ahead_and_no_more(shelf: StoredObjects) -> None:
    add_log(shelf, 4, 16)
    await shelf.read(1, 0, bytes_max=1)
    await shelf.read(1, 1, bytes_max=1)
    await settled(shelf)

    assert shelf.reader.ahead.fetches == 1
    furthest = max(end for _, _, end in shelf.bucket.gets)
    assert 8 * 64 * KIB <= furthest <= 14 * 64 * KIB
    assert {key for key, _, _ in shelf.bucket.gets} == {object_key(shelf.config.prefix, 1, 7)}


async def test_what_is_in_the_tail_is_not_fetched(shelf: StoredObjects) -> None:
    add_log(shelf, 1, 4)
    shelf.add([make_entry((1, 4 + n), size_bytes=64 * KIB) for n in range(4)], in_tail=True)

    await shelf.read(1, 0, bytes_max=1)
    await shelf.read(1, 1, bytes_max=1)
    await settled(shelf)

    assert {key for key, _, _ in shelf.bucket.gets} == {object_key(shelf.config.prefix, 1, 7)}


async def test_failure_in_advance_is_no_failure(shelf: StoredObjects) -> None:
    add_log(shelf, 2, 2)
    shelf.bucket.delete([object_key(shelf.config.prefix, 2, 7)])

    await shelf.read(1, 0, bytes_max=1)
    batches = await shelf.read(1, 1, bytes_max=1)
    await settled(shelf)

    assert len(batches) == 1
    assert shelf.reader.ahead.fetches == 1


async def test_objects_that_hold_little_are_few(shelf: StoredObjects) -> None:
    for number in range(30):
        shelf.add([make_entry((1, number))])

    await shelf.read(1, 0, bytes_max=1)
    await shelf.read(1, 1, bytes_max=1)
    await settled(shelf)

    assert len(shelf.bucket.gets) == 2 + 10  # a block of each, and 640 KiB of them


# Readers and their room.


class Fetches:
    """Recorded fetches, each of ten offsets."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, int]] = []

    async def __call__(self, state: PartitionState, offset: int) -> int:
        self.begun.append((state.partition_id, offset))
        await asyncio.sleep(0)
        return offset + 10


async def read_on(ahead: ReadAhead, partition_id: int, *offsets: int) -> None:
    state = PartitionState(partition_id)
    for start, end in pairwise(offsets):
        ahead.note(state, start, end)
        for _ in range(5):
            await asyncio.sleep(0)


async def test_next_piece_is_fetched_when_the_reader_comes_to_the_last() -> None:
    fetches = Fetches()
    await read_on(ReadAhead(fetches, 4), 1, 0, 2, 4, 8, 14, 16, 25, 40)
    # Each time that the reader has come past where the last piece began; not when it is at 14.
    assert fetches.begun == [(1, 4), (1, 14), (1, 24), (1, 34), (1, 44)]


async def test_readers_side_by_side_are_one() -> None:
    fetches = Fetches()
    ahead = ReadAhead(fetches, 4)
    for offset in range(0, 8, 2):
        await read_on(ahead, 1, offset, offset + 2)
        await read_on(ahead, 1, offset, offset + 2)

    assert fetches.begun[0] == (1, 4)
    assert len(fetches.begun) <= 3
    assert ahead._served == 1


async def test_only_so_many_readers_are_served() -> None:
    fetches = Fetches()
    ahead = ReadAhead(fetches, 2)
    for partition_id in (1, 2, 3):
        await read_on(ahead, partition_id, 0, 2, 4)
    assert fetches.begun == [(1, 4), (2, 4)]


async def test_room_of_a_reader_that_stopped_is_another_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fetches = Fetches()
    ahead = ReadAhead(fetches, 1)
    await read_on(ahead, 1, 0, 2, 4)
    await read_on(ahead, 2, 0, 2, 4)
    assert fetches.begun == [(1, 4)]

    monkeypatch.setattr(read_ahead, "IDLE_S_MAX", 0.0)
    await read_on(ahead, 2, 4, 6)

    assert fetches.begun == [(1, 4), (2, 6)]
    assert ahead._served == 1


async def test_readers_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "READERS_MAX", 3)
    ahead = ReadAhead(Fetches(), 2)
    for partition_id in range(10):
        await read_on(ahead, partition_id, 0, 2, 4)
    assert len(ahead._readers) == 3
    assert ahead._served <= 2


async def test_none_are_served_without_room() -> None:
    fetches = Fetches()
    await read_on(ReadAhead(fetches, 0), 1, 0, 2, 4)
    assert fetches.begun == []
