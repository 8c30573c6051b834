"""Bytes of objects: which tier they come from, how they are fetched, what is held."""

import asyncio

import pytest

from gateway.errors import StorageUnavailable
from gateway.testing.storage import make_entry
from storage_adapters.s3.state import StoredObject
from tests.storage_adapters.s3.stored_objects import KIB, StoredObjects
from tests.support.waiting import until

BLOCK = 64 * KIB
MIB = 1024 * KIB


def add(shelf: StoredObjects, kib: int) -> StoredObject:
    """Add an object of a little more than so many KiB, all of a partition of its own."""
    partition_id = len(shelf.catalog.objects) + 1
    return shelf.add([make_entry((partition_id, n), size_bytes=KIB) for n in range(kib)])


async def check(shelf: StoredObjects, stored: StoredObject, *spans: tuple[int, int]) -> None:
    """Fetch spans and compare them with what was put."""
    data = shelf.built[stored.number].data
    views = await shelf.cache.fetch(stored, spans)
    assert [bytes(view) for view in views] == [data[start:end] for start, end in spans]


def gets(shelf: StoredObjects) -> list[tuple[int, int]]:
    """Return which bytes were asked of the bucket since the last call, in blocks."""
    found = sorted((start // BLOCK, -(-end // BLOCK)) for _, start, end in shelf.bucket.gets)
    shelf.bucket.gets.clear()
    return found


async def test_blocks_are_fetched_and_kept(shelf: StoredObjects) -> None:
    stored = add(shelf, 300)

    await check(shelf, stored, (70 * KIB, 71 * KIB))
    assert gets(shelf) == [(1, 2)]
    await check(shelf, stored, (64 * KIB, 128 * KIB))
    assert gets(shelf) == []
    assert shelf.cache.counts.memory_blocks == 1
    assert shelf.cache.counts.bucket_bytes == shelf.cache.memory_bytes == BLOCK


async def test_missing_neighbours_come_in_one_get(shelf: StoredObjects) -> None:
    stored = add(shelf, 600)
    await check(shelf, stored, (2 * BLOCK, 3 * BLOCK))
    gets(shelf)

    await check(shelf, stored, (10, 6 * BLOCK))

    assert gets(shelf) == [(0, 2), (3, 6)]
    assert shelf.cache.counts.gets == 3


async def test_spans_that_lie_close_come_in_one_get(shelf: StoredObjects) -> None:
    stored = add(shelf, 700)

    spans = [(6 * BLOCK, 6 * BLOCK + 5), (BLOCK - 5, BLOCK), (2 * BLOCK - 9, 2 * BLOCK)]
    await check(shelf, stored, *spans)

    assert gets(shelf) == [(0, 2), (6, 7)]


async def test_one_get_is_bounded(shelf: StoredObjects) -> None:
    shelf.start(memory_cache_bytes=MIB)  # a quarter of it, and a block
    stored = add(shelf, 800)

    await check(shelf, stored, (0, 800 * KIB))

    assert gets(shelf) == [(0, 5), (5, 10), (10, 13)]


async def test_the_last_block_ends_with_the_object(shelf: StoredObjects) -> None:
    stored = add(shelf, 70)
    await check(shelf, stored, (stored.size_bytes - 96, stored.size_bytes))
    assert shelf.bucket.gets[0][2] == stored.size_bytes


async def test_tail_is_whole_objects_and_bounded(shelf: StoredObjects) -> None:
    shelf.start(tail_cache_bytes=MIB)
    for _ in range(3):
        stored = add(shelf, 400)
        shelf.cache.put_tail(stored.number, shelf.built[stored.number].body)

    assert [shelf.cache.peek(number, 5, 9) is None for number in (1, 2, 3)] == [
        True,
        False,
        False,
    ]
    assert shelf.cache.tail_bytes <= MIB
    assert bytes(shelf.cache.peek(3, 5, 9) or b"") == shelf.built[3].data[5:9]
    await check(shelf, shelf.catalog.objects[2], (0, 300 * KIB))
    assert gets(shelf) == []


async def test_object_larger_than_the_tail_is_not_kept_there(shelf: StoredObjects) -> None:
    shelf.start(tail_cache_bytes=MIB)
    stored = add(shelf, 1_000)
    shelf.cache.put_tail(stored.number, shelf.built[stored.number].body)
    assert shelf.cache.tail_bytes == 0


async def test_memory_is_bounded_while_much_is_fetched(shelf: StoredObjects) -> None:
    shelf.start(memory_cache_bytes=MIB)
    objects = [add(shelf, 500) for _ in range(4)]
    shelf.bucket.open.clear()
    reading = [
        asyncio.create_task(check(shelf, stored, (0, stored.size_bytes))) for stored in objects
    ]
    await until(lambda: len(shelf.bucket.gets) >= 3)

    coming = sum(end - start for _, start, end in shelf.bucket.gets)
    assert coming <= shelf.cache.memory_bytes <= MIB
    shelf.bucket.open.set()
    await asyncio.gather(*reading)

    assert shelf.cache.memory_bytes <= MIB
    assert shelf.cache.counts.bucket_bytes == sum(stored.size_bytes for stored in objects)


async def test_failed_gets_take_no_room(shelf: StoredObjects) -> None:
    stored = add(shelf, 100)
    gone = stored._replace(number=99)

    with pytest.raises(StorageUnavailable):
        await shelf.cache.fetch(gone, [(0, 100)])

    assert shelf.cache.memory_bytes == 0
    await check(shelf, stored, (0, 100))


async def test_dropped_object_is_forgotten(shelf: StoredObjects) -> None:
    stored = add(shelf, 100)
    await check(shelf, stored, (0, 100))
    shelf.cache.put_tail(stored.number, shelf.built[stored.number].body)

    shelf.cache.drop(stored.number)

    assert shelf.cache.peek(stored.number, 0, 100) is None
    assert shelf.cache.memory_bytes == shelf.cache.tail_bytes == 0


# With a disk.


async def test_what_memory_forgot_comes_from_the_disk(shelf: StoredObjects) -> None:
    shelf.start(disk_cache_bytes=100 * MIB)
    stored = add(shelf, 300)
    await check(shelf, stored, (0, stored.size_bytes))
    await until(lambda: shelf.cache.disk_bytes > stored.size_bytes)
    gets(shelf)

    shelf.start()  # the process was started again
    await until(lambda: shelf.cache.disk_bytes > 0)
    await check(shelf, stored, (0, stored.size_bytes))
    await check(shelf, stored, (BLOCK, 2 * BLOCK))

    assert gets(shelf) == []
    assert shelf.cache.counts.disk_bytes == stored.size_bytes


async def test_torn_files_are_fetched_again(shelf: StoredObjects) -> None:
    shelf.start(disk_cache_bytes=100 * MIB)
    stored = add(shelf, 300)
    await check(shelf, stored, (0, stored.size_bytes))
    await until(lambda: shelf.cache.disk_bytes > stored.size_bytes)
    gets(shelf)
    torn = sorted((shelf.data_dir / "cache").glob("*/*.blk"))[2]
    torn.write_bytes(torn.read_bytes()[:-1])

    shelf.start()
    await until(lambda: shelf.cache.disk_bytes > 0)
    await check(shelf, stored, (0, stored.size_bytes))

    assert gets(shelf) == [(0, 6)]


async def test_what_is_on_the_disk_is_not_fetched_with_its_neighbours(
    shelf: StoredObjects,
) -> None:
    shelf.start(disk_cache_bytes=100 * MIB)
    stored = add(shelf, 300)
    await check(shelf, stored, (BLOCK, 3 * BLOCK))
    await until(lambda: shelf.cache.disk_bytes > 2 * BLOCK)
    gets(shelf)

    shelf.start()
    await until(lambda: shelf.cache.disk_bytes > 0)
    await check(shelf, stored, (0, stored.size_bytes))

    assert gets(shelf) == [(0, 1), (3, 6)]


async def test_reads_go_on_when_the_disk_does_not(shelf: StoredObjects) -> None:
    shelf.start(disk_cache_bytes=100 * MIB)
    stored = add(shelf, 300)
    await check(shelf, stored, (0, BLOCK))
    await until(lambda: shelf.cache.disk_bytes > 0)
    (path,) = (shelf.data_dir / "cache").glob("*/*.blk")
    path.unlink()
    path.mkdir()  # an I/O error for who reads it

    shelf.start()
    await until(lambda: shelf.cache.disk_bytes > 0)
    await check(shelf, stored, (0, 2 * BLOCK))

    assert shelf.cache.disk_bytes == 0


async def test_dropped_object_leaves_the_disk(shelf: StoredObjects) -> None:
    shelf.start(disk_cache_bytes=100 * MIB)
    stored = add(shelf, 100)
    await check(shelf, stored, (0, 100))
    await until(lambda: shelf.cache.disk_bytes > 0)

    shelf.cache.drop(stored.number)

    await until(lambda: shelf.cache.disk_bytes == 0)
    await until(lambda: not list((shelf.data_dir / "cache").glob("*/*.blk")))


# In advance.


async def test_read_ahead_is_found_in_memory(shelf: StoredObjects) -> None:
    stored = add(shelf, 300)

    await shelf.cache.read_ahead(stored, 0, 2 * BLOCK)

    assert gets(shelf) == [(0, 2)]
    await check(shelf, stored, (0, 2 * BLOCK))
    assert gets(shelf) == []


async def test_reads_do_not_wait_behind_what_is_fetched_in_advance(
    shelf: StoredObjects,
) -> None:
    objects = [add(shelf, 70) for _ in range(8)]
    shelf.bucket.open.clear()
    ahead = [asyncio.create_task(shelf.cache.read_ahead(one, 0, 9)) for one in objects[:6]]
    await until(lambda: len(shelf.bucket.gets) == 4)  # and two that wait for their turn

    reading = [asyncio.create_task(check(shelf, one, (0, 9))) for one in objects]
    await until(lambda: len(shelf.bucket.gets) == 8)  # all of them are asked of the bucket

    shelf.bucket.open.set()
    await asyncio.gather(*reading, *ahead)
    assert len(gets(shelf)) == 8
