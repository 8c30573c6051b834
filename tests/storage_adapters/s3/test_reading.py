"""Reads from objects in a real bucket: which batches come, from where, and what damage does."""

import asyncio

import pytest

from gateway.errors import StorageUnavailable
from gateway.testing.storage import make_batch, make_entry, offsets_of
from storage_adapters.s3.state import object_key
from tests.storage_adapters.s3.stored_objects import ALL, KIB, StoredObjects
from tests.support.waiting import until

MIB = 1024 * KIB


async def test_reads_go_on_over_objects(shelf: StoredObjects) -> None:
    first = [make_entry((1, 0), 10), make_entry((2, 0), 3), make_entry((1, 10), 5)]
    second = [make_entry((1, 15), 5), make_entry((1, 20), 5)]
    shelf.add(first)
    shelf.add(second)

    assert await shelf.offsets(1) == [0, 10, 15, 20]
    assert await shelf.read(2) == [first[1].batch]
    assert await shelf.offsets(1, 14, 20) == [10, 15]
    assert await shelf.offsets(1, 15) == [15, 20]
    assert await shelf.offsets(1, 25) == []
    assert shelf.loads == [1, 2]


async def test_limit_counts_over_objects(shelf: StoredObjects) -> None:
    for number in range(3):
        shelf.add([make_entry((1, 2 * number)), make_entry((1, 2 * number + 1))])

    counts = [len(await shelf.read(1, bytes_max=n)) for n in (1, 100, 299, 300, 599, 600)]

    assert counts == [1, 1, 2, 3, 5, 6]


async def test_tail_is_read_without_the_bucket(shelf: StoredObjects) -> None:
    entries = [make_entry([(1, 0), (2, 7)], 2, epoch=4), make_entry((2, 9))]
    shelf.add(entries, in_tail=True)

    counts = shelf.cache.counts
    assert shelf.read_cached(1) == [make_batch(0, 2, epoch=4)]
    first_bytes = counts.tail_bytes
    there = shelf.read_cached(2)
    cached_bytes = counts.tail_bytes
    assert there is not None
    assert offsets_of(there) == [7, 9]
    assert there[0][8:] == make_batch(0, 2, epoch=4)[8:]
    assert await shelf.read(2) == there
    assert shelf.bucket.gets == []
    assert 0 < first_bytes < cached_bytes < counts.tail_bytes


async def test_other_targets_get_their_own_base_offset_from_the_bucket(
    shelf: StoredObjects,
) -> None:
    shelf.add([make_entry((2, 0), 5), make_entry([(1, 0), (2, 5)], 2, epoch=4)])

    there = await shelf.read(2)

    assert offsets_of(there) == [0, 5]
    assert there[1][8:] == make_batch(0, 2, epoch=4)[8:]
    assert await shelf.read(1) == [make_batch(0, 2, epoch=4)]


async def test_extent_without_batches_at_the_offset_is_passed_over(
    shelf: StoredObjects,
) -> None:
    for base_offset in (0, 50, 90):
        shelf.add([make_entry((1, base_offset))])
    state = shelf.catalog.partition(1)
    first, second, third = state.extents
    nothing = second._replace(row_count=0, epochs=(), size_bytes=0, end=90)
    state.extents = [first._replace(end=50), nothing, third]  # as compaction leaves them

    assert await shelf.offsets(1) == [0, 90]
    assert await shelf.offsets(1, 30) == [90]
    assert await shelf.offsets(1, 30, 90) == []
    assert offsets_of(shelf.read_cached(1, 30) or []) == [90]
    assert shelf.read_cached(1, 30, 90) == []


async def test_holes_at_the_end_of_what_one_read_looks_at_do_not_end_it(
    shelf: StoredObjects,
) -> None:
    shelf.start(memory_cache_bytes=MIB)  # room for the blocks of 8 objects
    for number in range(20):
        shelf.add([make_entry((1, number))])
    state = shelf.catalog.partition(1)
    state.extents = [
        state.extents[0]._replace(end=2),
        # Batches of offset 1 in objects that answer for later offsets: nothing is at 2 to 18.
        *[state.extents[1]._replace(first=n, end=n + 1) for n in range(2, 19)],
        state.extents[19],
    ]

    assert await shelf.offsets(1, 2) == [19]


async def test_reading_begins_at_the_log_start(shelf: StoredObjects) -> None:
    shelf.add([make_entry((1, 0), 10), make_entry((1, 10), 10)])
    state = shelf.catalog.partition(1)

    state.start = 12

    assert await shelf.offsets(1, 0) == [10]
    state.is_deleted = True
    assert await shelf.offsets(1, 0) == []


async def test_batches_longer_than_a_block_come_whole(shelf: StoredObjects) -> None:
    entries = [make_entry((1, n), size_bytes=100 * KIB + n) for n in range(9)]
    shelf.add(entries)

    one_by_one = [batch for n in range(9) for batch in await shelf.read(1, n, bytes_max=1)]

    expected = [entry.batch for entry in entries]
    assert one_by_one == expected
    assert await shelf.read(1) == expected
    assert shelf.read_cached(1) == expected


async def test_what_was_read_once_is_read_from_memory(shelf: StoredObjects) -> None:
    shelf.add([make_entry((1, n), size_bytes=10 * KIB) for n in range(4)])
    assert shelf.read_cached(1) is None

    batches = await shelf.read(1)

    gets = len(shelf.bucket.gets)
    assert shelf.read_cached(1) == batches
    assert await shelf.read(1, 2) == batches[2:]
    assert len(shelf.bucket.gets) == gets == 1
    assert shelf.cache.counts.memory_blocks == 2


async def test_unchecked_bytes_are_not_handed_out(shelf: StoredObjects) -> None:
    shelf.add([make_entry((1, 0)), make_entry((2, 0))])

    await shelf.read(1)

    assert shelf.read_cached(1) is not None
    assert shelf.read_cached(2) is None  # in memory, as its neighbour, and never looked at
    assert await shelf.offsets(2) == [0]
    assert shelf.read_cached(2) is not None


async def test_little_of_a_large_block_keeps_nothing_else_in_memory(
    shelf: StoredObjects,
) -> None:
    shelf.add([make_entry((n, 0)) for n in range(100)])

    (little,) = await shelf.reader.read(shelf.catalog.partition(1), 0, ALL, bytes_max=ALL)

    assert isinstance(little, bytes)


# Readers at the same time.


async def test_readers_at_the_same_time_share_a_get(shelf: StoredObjects) -> None:
    shelf.add([make_entry((1, 0)), make_entry((2, 0))])
    shelf.bucket.open.clear()
    tasks = [asyncio.create_task(shelf.offsets(n)) for n in (1, 2, 1)]
    await until(lambda: len(shelf.bucket.gets) > 0)

    shelf.bucket.open.set()

    assert await asyncio.gather(*tasks) == [[0], [0], [0]]
    assert len(shelf.bucket.gets) == 1


async def test_a_reader_that_is_cancelled_leaves_the_get_to_the_others(
    shelf: StoredObjects,
) -> None:
    shelf.add([make_entry((1, 0))])
    shelf.bucket.open.clear()
    first = asyncio.create_task(shelf.offsets(1))
    await until(lambda: len(shelf.bucket.gets) > 0)
    second = asyncio.create_task(shelf.offsets(1))
    await until(lambda: shelf.cache.counts.shared_blocks > 0)

    first.cancel()
    shelf.bucket.open.set()

    assert await second == [0]
    assert first.cancelled()
    assert len(shelf.bucket.gets) == 1


async def test_an_error_is_told_to_all_who_wait(shelf: StoredObjects) -> None:
    stored = shelf.add([make_entry((1, 0))])
    shelf.bucket.delete([object_key(shelf.config.prefix, stored.number, 7)])
    shelf.bucket.open.clear()
    tasks = [asyncio.create_task(shelf.offsets(1)) for _ in range(3)]
    await until(lambda: shelf.cache.counts.shared_blocks == 2)

    shelf.bucket.open.set()

    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StorageUnavailable] * 3
    assert "partition 1, offset 0" in str(answers[0])


async def test_closing_ends_what_waits(shelf: StoredObjects) -> None:
    shelf.add([make_entry((1, 0))])
    shelf.bucket.open.clear()
    reading = asyncio.create_task(shelf.offsets(1))
    await until(lambda: len(shelf.bucket.gets) > 0)

    shelf.cache.close()

    with pytest.raises(StorageUnavailable, match="closed"):
        await reading
    with pytest.raises(StorageUnavailable, match="closed"):
        await shelf.offsets(1)


# Merges meanwhile.


async def test_object_that_was_merged_away_is_looked_for_anew(shelf: StoredObjects) -> None:
    old = shelf.add([make_entry((1, 0)), make_entry((1, 1))])
    new = shelf.add([make_entry((1, 0)), make_entry((1, 1))])
    state = shelf.catalog.partition(1)
    merged = state.extents.pop()
    shelf.bucket.delete([object_key(shelf.config.prefix, old.number, 7)])
    shelf.bucket.open.clear()
    reading = asyncio.create_task(shelf.offsets(1))
    await until(lambda: len(shelf.bucket.gets) > 0)

    state.replace([old.number], [merged])
    del shelf.catalog.objects[old.number]
    shelf.bucket.open.set()

    assert await reading == [0, 1]
    assert shelf.bucket.gets[-1][0] == object_key(shelf.config.prefix, new.number, 7)


async def test_rows_that_went_with_their_object_are_looked_for_anew(
    shelf: StoredObjects,
) -> None:
    old, new = shelf.add([make_entry((1, 0))]), shelf.add([make_entry((1, 0))])
    state = shelf.catalog.partition(1)
    merged = state.extents.pop()
    del shelf.packed[old.number]
    shelf.on_load = lambda: state.replace([old.number], [merged])

    assert await shelf.offsets(1) == [0]
    assert shelf.loads == [old.number, new.number]


# Damage.


async def test_damage_on_the_way_is_fetched_once_more(shelf: StoredObjects) -> None:
    entries = [make_entry((1, n), size_bytes=500) for n in range(3)]
    shelf.add(entries)
    shelf.bucket.spoilt.append(800)

    assert await shelf.read(1) == [entry.batch for entry in entries]
    assert len(shelf.bucket.gets) == 2
    assert shelf.reader.damaged == 1


@pytest.mark.parametrize("at", [8, 13, 16, 18, 40, 120])
async def test_damage_that_stays_names_object_and_offset(shelf: StoredObjects, at: int) -> None:
    entries = [make_entry((1, 5), size_bytes=500), make_entry((1, 6), size_bytes=500)]
    stored = shelf.add(entries)
    data = bytearray(shelf.built[stored.number].data)
    data[data.index(entries[1].batch) + at] ^= 0x10
    shelf.replace(stored.number, data)

    with pytest.raises(StorageUnavailable, match=r"0000001-7\.seg, offset 6, at byte"):
        await shelf.read(1)
    assert await shelf.read(1, 5, bytes_max=1) == [entries[0].batch]


async def test_large_reads_are_checked_too(shelf: StoredObjects) -> None:
    entries = [make_entry((1, n), size_bytes=200 * KIB) for n in range(3)]
    stored = shelf.add(entries)
    data = bytearray(shelf.built[stored.number].data)
    data[data.index(entries[2].batch) + 150 * KIB] ^= 1
    shelf.replace(stored.number, data)

    assert await shelf.read(1, 0, 2) == [entry.batch for entry in entries[:2]]
    with pytest.raises(StorageUnavailable, match="offset 2"):
        await shelf.read(1)


async def test_damaged_index_says_so(shelf: StoredObjects) -> None:
    shelf.add([make_entry((1, 0))])
    shelf.packed[1] = shelf.packed[1][:-3]

    with pytest.raises(StorageUnavailable, match="index of object 1"):
        await shelf.read(1)


# Bounds of one read.


async def test_a_read_of_many_objects_returns_a_part_of_them_soon(shelf: StoredObjects) -> None:
    shelf.start(memory_cache_bytes=MIB)  # half of it is 8 blocks
    for number in range(20):
        shelf.add([make_entry((1, number))])

    assert await shelf.offsets(1) == list(range(8))
    assert await shelf.offsets(1, 8) == list(range(8, 16))
    assert await shelf.offsets(1, 16) == list(range(16, 20))


async def test_rows_may_be_more_than_their_cache(shelf: StoredObjects) -> None:
    for number in range(3):
        shelf.add([make_entry((1, 2 * number)), make_entry((1, 2 * number + 1))])
    shelf.rows._bytes_max = 1

    assert await shelf.offsets(1) == list(range(6))
