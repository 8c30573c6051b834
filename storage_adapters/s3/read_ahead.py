"""Fetching in advance for those who read on and on.

A reader is known by where its last read ended. While it works on what was fetched for it, the next
piece is on its way: one piece ahead, never more.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from gateway.errors import StorageUnavailable
from storage_adapters.s3.state import PartitionState

READERS_MAX: Final = 1_024
IDLE_S_MAX: Final = 10.0  # after so long a reader's room is another's

_UNKNOWN: Final = -1

Fetch = Callable[[PartitionState, int], Awaitable[int]]


class _Reader:
    """``begin`` to ``end``: the offsets fetched in advance last; ``end`` is -1 until known."""

    __slots__ = ("begin", "end", "task", "used_s")

    def __init__(self, used_s: float) -> None:
        self.begin = _UNKNOWN
        self.end = _UNKNOWN
        self.used_s = used_s
        self.task: asyncio.Task[None] | None = None


class ReadAhead:
    """Loop only. ``fetch`` gets ``read_ahead_bytes`` from an offset on, and returns the next one.

    ``pieces_max`` bounds how many readers have a piece fetched in advance.
    """

    def __init__(self, fetch: Fetch, pieces_max: int) -> None:
        self._fetch = fetch
        self._pieces_max = pieces_max
        self._readers: OrderedDict[tuple[int, int], _Reader] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._served = 0
        self.fetches = 0

    def note(self, state: PartitionState, start: int, next_offset: int) -> None:
        """Note a read that was not of the tail: from ``start`` to before ``next_offset``."""
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
        if met is not None:  # Two that go side by side are one: the one that is further ahead.
            reader, other = (met, reader) if met.begin > reader.begin else (reader, met)
            self._forget(other)
        self._readers[state.partition_id, next_offset] = reader
        if len(self._readers) > READERS_MAX:
            self._forget(self._readers.popitem(last=False)[1])

    def _go_on(self, reader: _Reader, state: PartitionState, next_offset: int) -> None:
        if reader.task is not None and not reader.task.done():
            return
        if reader.begin != _UNKNOWN and next_offset <= reader.begin:
            return  # It has not come to what was fetched for it.
        if reader.begin == _UNKNOWN:
            if self._served >= self._pieces_max and not self._take_room(reader.used_s):
                return
            self._served += 1
        reader.begin = max(next_offset, reader.end)
        task = asyncio.get_running_loop().create_task(self._fetch_for(reader, state))
        reader.task = task
        self._tasks.add(task)  # The loop alone would let go of it with its reader.
        task.add_done_callback(self._tasks.discard)

    async def _fetch_for(self, reader: _Reader, state: PartitionState) -> None:
        self.fetches += 1
        reader.end = reader.begin
        # Whoever needs it will ask the bucket again, and be told what is wrong.
        with suppress(StorageUnavailable):
            reader.end = await self._fetch(state, reader.begin)

    def _take_room(self, now_s: float) -> bool:
        """Forget the readers that have stopped; the one that waited longest comes first."""
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
