"""Read-ahead for sequential readers.

A reader is identified by the end of its last read. While it processes a fetched piece, the next
piece is fetched: one piece ahead, never more.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from gateway.errors import StorageUnavailable
from storage_adapters.s3.state import PartitionState

READERS_MAX: Final = 1_024
IDLE_S_MAX: Final = 10.0  # then another reader may take its place

_UNKNOWN: Final = -1

Fetch = Callable[[PartitionState, int], Awaitable[int]]


class _Reader:
    """A reader with its last read-ahead, ``begin`` to ``end``; ``end`` is -1 until known."""

    __slots__ = ("begin", "end", "task", "used_s")

    def __init__(self, used_s: float) -> None:
        self.begin = _UNKNOWN
        self.end = _UNKNOWN
        self.used_s = used_s
        self.task: asyncio.Task[None] | None = None


class ReadAhead:
    """Read-ahead. Loop only. ``fetch`` fetches from an offset on, and returns the next offset.

    ``pieces_max`` bounds the number of readers with read-ahead.
    """

    def __init__(self, fetch: Fetch, pieces_max: int) -> None:
        self._fetch = fetch
        self._pieces_max = pieces_max
        self._readers: OrderedDict[tuple[int, int], _Reader] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._served = 0
        self.fetches = 0

    def note(self, state: PartitionState, start: int, next_offset: int) -> None:
        """Note a read of [``start``, ``next_offset``) that was not at the tail."""
        if not self._pieces_max:
            return
        now_s = asyncio.get_running_loop().time()
        reader = self._readers.pop((state.partition_id, start), None)
        if reader is None:
            reader = _Reader(now_s)
        else:
            reader.used_s = now_s
            self._go_on(reader, state, next_offset)
        met = self._readers.pop((state.partition_id, next_offset), None)
        if (
            met is not None
        ):  # Two readers at the same offset count as one: the one further ahead.
            reader, other = (met, reader) if met.begin > reader.begin else (reader, met)
            self._forget(other)
        self._readers[state.partition_id, next_offset] = reader
        if len(self._readers) > READERS_MAX:
            self._forget(self._readers.popitem(last=False)[1])

    def _go_on(self, reader: _Reader, state: PartitionState, next_offset: int) -> None:
        if reader.task is not None and not reader.task.done():
            return
        if reader.begin != _UNKNOWN and next_offset <= reader.begin:
            return  # It has not reached the fetched piece.
        if reader.begin == _UNKNOWN:
            if self._served >= self._pieces_max and not self._take_room(reader.used_s):
                return
            self._served += 1
        reader.begin = max(next_offset, reader.end)
        task = asyncio.get_running_loop().create_task(self._fetch_for(reader, state))
        reader.task = task
        self._tasks.add(task)  # The loop alone would drop the task with its reader.
        task.add_done_callback(self._tasks.discard)

    async def _fetch_for(self, reader: _Reader, state: PartitionState) -> None:
        self.fetches += 1
        reader.end = reader.begin
        # A later read asks the bucket again, and gets the error.
        with suppress(StorageUnavailable):
            reader.end = await self._fetch(state, reader.begin)

    def _take_room(self, now_s: float) -> bool:
        """Drop idle readers; the longest waiting one comes first."""
        room = False
        while self._readers:
            key, oldest = next(iter(self._readers.items()))
            if now_s - oldest.used_s < IDLE_S_MAX:
                break
            del self._readers[key]
            room |= oldest.begin != _UNKNOWN
            self._forget(oldest)
        return room

    def _forget(self, reader: _Reader) -> None:
        if reader.begin != _UNKNOWN:
            self._served -= 1
