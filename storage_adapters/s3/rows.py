"""Cache of objects' rows, which give the positions of batches."""

import asyncio
from array import array
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from gateway.errors import StorageUnavailable
from storage_adapters.formats.damage import Damaged, TooNew
from storage_adapters.formats.footer import ROW_BYTES, Rows
from storage_adapters.formats.object_index import ROWS_MAX, unpack_rows
from storage_adapters.s3.index_thread import IndexThread
from storage_adapters.s3.state import Catalog

ENTRY_BYTES: Final = 256  # memory of an object beside its rows
OBJECT_BYTES_PER_ROW_MIN: Final = ROW_BYTES
"""Bytes of an object for each of its rows: a batch for several targets is there once."""


class RowsGone(StorageUnavailable):
    """The index has no object of that number any more: a merge has replaced it."""


class RowsCache:
    """Cache of rows. Loop only. ``load`` returns an object's packed rows, None for no object.

    ``rows_max`` returns the most rows an object can have: damaged rows must not take more memory.
    ``bytes_max`` bounds the cache; the most recent object is kept even above it.
    ``hits`` and ``misses`` count objects.
    """

    def __init__(
        self,
        load: Callable[[int], Awaitable[bytes | None]],
        *,
        bytes_max: int,
        rows_max: Callable[[int], int] = lambda _number: ROWS_MAX,
    ) -> None:
        self._load = load
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._kept: OrderedDict[int, array[int]] = OrderedDict()
        self._loading: dict[int, asyncio.Task[Rows]] = {}
        self.held_bytes = 0
        self.hits = 0
        self.misses = 0

    def put(self, number: int, rows: "array[int]") -> None:
        """Keep the rows of an object, uncopied: they must not change any more."""
        self.drop(number)
        self._kept[number] = rows
        self.held_bytes += _size_of(rows)
        while self.held_bytes > self._bytes_max and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            self.held_bytes -= _size_of(oldest)

    def peek(self, number: int) -> Rows | None:
        """Return the rows of an object if they are cached."""
        rows = self._kept.get(number)
        if rows is not None:
            self.hits += 1
            self._kept.move_to_end(number)
        return rows

    async def get(self, number: int) -> Rows:
        """Return the rows of an object; simultaneous callers share one query.

        Errors: ``RowsGone``, ``StorageUnavailable``, ``Damaged``.
        """
        rows = self.peek(number)
        if rows is not None:
            return rows
        task = self._loading.get(number)
        if task is None:
            self.misses += 1
            task = asyncio.get_running_loop().create_task(self._get(number))
            self._loading[number] = task
            task.add_done_callback(lambda done: self._loaded(number, done))
        await asyncio.wait([task])  # a cancelled caller leaves the query to the others
        return task.result()

    def drop(self, number: int) -> None:
        """Drop a dead object."""
        rows = self._kept.pop(number, None)
        if rows is not None:
            self.held_bytes -= _size_of(rows)

    async def _get(self, number: int) -> Rows:
        rows_max = self._rows_max(number)
        packed = await self._load(number)
        if packed is None:
            raise RowsGone(f"the index has no object {number} any more")
        unpack = partial(unpack_rows, packed, rows_max=rows_max)
        rows = await asyncio.get_running_loop().run_in_executor(None, unpack)
        self.put(number, rows)
        return rows

    def _loaded(self, number: int, task: "asyncio.Task[Rows]") -> None:
        del self._loading[number]
        if not task.cancelled():
            task.exception()  # marked as retrieved, even when all callers were cancelled


async def load_rows(look_ups: IndexThread, number: int) -> bytes | None:
    """Return an object's packed rows from the index, None for no object."""
    return await look_ups.run(lambda index: index.rows(number))


async def read_rows(catalog: Catalog, look_ups: IndexThread, number: int) -> Rows:
    """Return an object's rows past the cache. Errors: ``RowsGone``, ``StorageUnavailable``."""
    rows_max = rows_max_of(catalog, number)
    packed = await load_rows(look_ups, number)
    if packed is None:
        raise RowsGone(f"the index has no object {number} any more")
    try:
        return await asyncio.to_thread(unpack_rows, packed, rows_max=rows_max)
    except (Damaged, TooNew) as error:
        raise StorageUnavailable(f"the index of object {number}: {error}") from error


def rows_max_of(catalog: Catalog, number: int) -> int:
    """Return the most rows that a live object can have. Errors: ``RowsGone``."""
    stored = catalog.objects.get(number)
    if stored is None:
        raise RowsGone(f"object {number} is not live any more")
    return stored.size_bytes // OBJECT_BYTES_PER_ROW_MIN


def _size_of(rows: "array[int]") -> int:
    return len(rows) * rows.itemsize + ENTRY_BYTES
