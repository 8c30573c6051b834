"""Rows of objects: kept for those asked last, looked up once for all who ask."""

import asyncio
from array import array

import pytest

from gateway.errors import StorageUnavailable
from gateway.testing.storage import make_entry
from storage_adapters.formats.damage import Damaged
from storage_adapters.formats.object_index import pack_rows
from storage_adapters.s3.objects import Appends, ObjectHeader, Part, build_log_object
from storage_adapters.s3.rows import ENTRY_BYTES, RowsCache, RowsGone, rows_max_of
from storage_adapters.s3.state import Catalog
from tests.storage_adapters.s3.merge_catalog import DATA_UUID, make_stored

ROW_BYTES = 32


def rows_of(number: int, count: int = 1) -> "array[int]":
    return array("q", [number, 1_000, 64 + (100 << 32), 1] * count)


class Database:
    """Database of rows that answers only when ``open`` is set."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.open = asyncio.Event()
        self.open.set()
        self.error: StorageUnavailable | None = None

    async def load(self, number: int) -> bytes | None:
        self.asked.append(number)
        await self.open.wait()
        if self.error is not None:
            raise self.error
        if number == 99:
            return b"no rows"
        return pack_rows(rows_of(number)) if number < 50 else None


async def test_rows_are_looked_up_once() -> None:
    database = Database()
    cache = RowsCache(database.load, bytes_max=10_000)
    assert cache.peek(3) is None

    assert list(await cache.get(3)) == list(rows_of(3))
    assert list(await cache.get(3)) == list(rows_of(3))

    assert cache.peek(3) is not None
    assert database.asked == [3]
    assert (cache.hits, cache.misses) == (2, 1)


async def test_all_who_ask_at_once_share_one_query() -> None:
    database = Database()
    cache = RowsCache(database.load, bytes_max=10_000)
    database.open.clear()
    tasks = [asyncio.create_task(cache.get(3)) for _ in range(3)]
    while not database.asked:  # noqa: ASYNC110
        await asyncio.sleep(0)

    tasks[0].cancel()
    database.open.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)

    assert isinstance(answers[0], asyncio.CancelledError)
    assert [list(one) for one in answers[1:]] == [list(rows_of(3))] * 2  # type: ignore[arg-type]
    assert database.asked == [3]


async def test_error_is_told_to_all_and_the_next_asks_again() -> None:
    database = Database()
    cache = RowsCache(database.load, bytes_max=10_000)
    database.error = StorageUnavailable("away")

    answers = await asyncio.gather(cache.get(3), cache.get(3), return_exceptions=True)

    assert [str(answer) for answer in answers] == ["away", "away"]
    database.error = None
    assert list(await cache.get(3)) == list(rows_of(3))


async def test_object_that_is_gone_says_so() -> None:
    with pytest.raises(RowsGone, match="object 77"):
        await RowsCache(Database().load, bytes_max=10_000).get(77)


async def test_damage_is_told() -> None:
    async def load(_: int) -> bytes:
        return pack_rows(rows_of(1, 50))[:-2]

    with pytest.raises(Damaged):
        await RowsCache(load, bytes_max=10_000).get(1)


async def test_used_rows_outlive_others() -> None:
    cache = RowsCache(Database().load, bytes_max=3 * (ENTRY_BYTES + ROW_BYTES))
    for number in (1, 2, 3):
        cache.put(number, rows_of(number))

    cache.peek(1)
    cache.put(4, rows_of(4))

    assert [cache.peek(n) is not None for n in (1, 2, 3, 4)] == [True, False, True, True]
    assert cache.held_bytes == 3 * (ENTRY_BYTES + ROW_BYTES)


async def test_rows_above_the_bound_are_kept_until_others_come() -> None:
    cache = RowsCache(Database().load, bytes_max=ENTRY_BYTES)
    cache.put(1, rows_of(1, 1_000))
    assert cache.peek(1) is not None
    cache.put(2, rows_of(2))
    assert cache.peek(1) is None
    assert cache.held_bytes == ENTRY_BYTES + ROW_BYTES


async def test_dropped_rows_are_gone() -> None:
    cache = RowsCache(Database().load, bytes_max=10_000)
    cache.put(1, rows_of(1))
    cache.drop(1)
    cache.drop(1)
    assert cache.peek(1) is None
    assert cache.held_bytes == 0


async def test_rows_that_are_put_again_count_once() -> None:
    cache = RowsCache(Database().load, bytes_max=10_000)
    cache.put(1, rows_of(1, 5))
    cache.put(1, rows_of(1))
    assert cache.held_bytes == ENTRY_BYTES + ROW_BYTES


async def test_damaged_rows_get_no_more_memory_than_the_object_can_have_rows() -> None:
    async def load(_number: int) -> bytes:
        return pack_rows(rows_of(3, count=11))

    enough = RowsCache(load, bytes_max=10_000, rows_max=lambda _: 11)
    assert len(await enough.get(3)) == 11 * 4

    with pytest.raises(Damaged):
        await RowsCache(load, bytes_max=10_000, rows_max=lambda _: 10).get(3)


def test_no_object_has_more_rows_than_its_bytes_allow() -> None:
    """The smallest batch for as many partitions as there may be is the worst of all."""
    entry = make_entry([(partition_id, 0) for partition_id in range(10_000)])
    parts = dict.fromkeys(range(10_000), Part(0, 1, is_deleted=False, introduction=None))
    built = build_log_object(
        ObjectHeader(DATA_UUID, 1, 1, 1), Appends([entry], frozenset([0]), 1), parts
    )
    catalog = Catalog()
    catalog.objects[1] = make_stored(1, (1, 2))._replace(size_bytes=len(built.data))

    assert len(built.rows) // 4 <= rows_max_of(catalog, 1) < 4 * len(built.rows) // 4
    with pytest.raises(RowsGone):
        rows_max_of(catalog, 2)
