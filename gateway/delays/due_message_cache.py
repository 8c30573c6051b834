"""Cache of delayed messages due soon: kept from their put, or read from ``__delays``.

Their memory is bounded in bytes. Bodies are read back in log order, for many messages at once,
some seconds before they are due; bodies still missing shortly before are read at once. Both
work in small pieces, so that the loop is not blocked.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Final

import structlog

from features.delay.entries import is_waiting
from features.delay.state import DelayState
from features.delay.wheel import WINDOW_MS
from gateway.broker import Broker
from gateway.delays.batches import pick_values
from gateway.errors import CorruptBatch, GatewayError
from gateway.model import Buffer, parse_batch_header
from gateway.partition import Partition

KEEP_MS: Final = 60_000  # what is due sooner keeps its body from the put
AHEAD_MS: Final = 10_000  # what is due sooner is read back
READ_BYTES: Final = 1 << 17  # 1 ms of the loop for small messages
LOOKED_AT_MAX: Final = 1_000  # numbers of a window in one go: 1 ms of the loop

_BODY_OVERHEAD_BYTES: Final = 200  # of the dictionary and the objects in it, measured
_NEAR_COUNT: Final = 8  # as many within _NEAR_OFFSETS are worth a large read
_NEAR_OFFSETS: Final = 2_048

OnFetched = Callable[[Sequence[int], GatewayError | None], None]
"""Called with the numbers that were asked for to the end and have no body, and the error."""

log = structlog.get_logger()


class DueMessageCache:
    """Entries of messages due soon, by message number."""

    def __init__(
        self, state: DelayState, broker: Broker, partition: Partition, *, bytes_max: int
    ) -> None:
        self._state = state
        self._broker = broker
        self._partition = partition
        self._bytes_max = bytes_max
        self._bodies: dict[int, bytes] = {}
        self._bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._ahead: asyncio.Task[None] | None = None
        self._asked: set[int] = set()  # of ``fetch``
        self._next_window = 0
        self.get = self._bodies.get

    @property
    def size_bytes(self) -> int:
        """Memory of the entries in bytes, overhead included."""
        return self._bytes

    @property
    def is_fetching(self) -> bool:
        """Whether a requested read is running; there is at most one."""
        return self._task is not None

    def keep(self, numbers: Sequence[int], values: Sequence[bytes]) -> None:
        """Keep the entries of put messages while there is room."""
        for number, value in zip(numbers, values, strict=True):
            if self._bytes >= self._bytes_max:
                return
            self._set(number, value)

    def pop_many(self, numbers: Sequence[int]) -> list[bytes | None]:
        """Remove and return entries; None for each one that is not cached."""
        values = list(map(self._bodies.pop, numbers, repeat(None)))
        sizes = [len(value) for value in values if value is not None]
        self._bytes -= sum(sizes) + len(sizes) * _BODY_OVERHEAD_BYTES
        return values

    def drop(self, number: int) -> None:
        """Drop an entry, and the result of a running read of it."""
        self._asked.discard(number)
        self.pop_many([number])

    def _set(self, number: int, value: bytes) -> None:
        if number not in self._bodies:
            self._bodies[number] = value
            self._bytes += len(value) + _BODY_OVERHEAD_BYTES

    def close(self) -> None:
        """Stop reading."""
        for task in (self._task, self._ahead):
            if task is not None:
                task.cancel()

    def prefetch(self, now_unix_ms: int) -> None:
        """Start to read uncached entries that are due soon, as far as there is room."""
        if self._ahead is not None or self._bytes >= self._bytes_max // 2:
            return
        self._next_window = max(self._next_window, now_unix_ms // WINDOW_MS)
        end = (now_unix_ms + AHEAD_MS) // WINDOW_MS
        if self._next_window < end:
            self._ahead = asyncio.get_running_loop().create_task(self._read_ahead(end))
            self._ahead.add_done_callback(self._read_ahead_done)

    def _read_ahead_done(self, task: asyncio.Task[None]) -> None:
        self._ahead = None
        error = None if task.cancelled() else task.exception()
        if isinstance(error, GatewayError):  # what is without is read when it is due
            log.warning("delayed messages not read ahead", error=str(error))
        elif error is not None:
            raise error

    async def _read_ahead(self, end: int) -> None:
        """Read the entries due in the windows up to ``end``. Error: ``StorageUnavailable``."""
        while self._next_window < end and self._bytes < self._bytes_max // 2:
            numbers = self._state.wheel.peek(self._next_window)
            self._next_window += 1
            wanted: list[tuple[int, int]] = []
            size_bytes = 0
            # What is too many to look at, or too much to keep, is read when it is due.
            for start in range(0, len(numbers or ()), LOOKED_AT_MAX):
                assert numbers is not None
                missing, missing_bytes = self._missing(numbers[start : start + LOOKED_AT_MAX])
                wanted += missing
                size_bytes += missing_bytes
                if size_bytes > self._bytes_max - self._bytes:
                    break
                await asyncio.sleep(0)
            wanted.sort()
            await self._fetch(wanted)

    def _missing(self, numbers: list[int]) -> tuple[list[tuple[int, int]], int]:
        missing = []
        size_bytes = 0
        for number in numbers:
            if number in self._bodies:
                continue
            location = self._state.find(number)
            if location is not None:
                missing.append((location[0], number))
                size_bytes += location[1] + _BODY_OVERHEAD_BYTES
        return missing, size_bytes

    def fetch(self, wanted: list[tuple[int, int]], on_fetched: OnFetched) -> None:
        """Read the entries at (offset, number), whether there is room or not.

        Those that cannot be decoded stay without; ``on_fetched`` runs later, with the error
        when the storage could not be read.
        """
        assert self._task is None
        wanted.sort()
        self._asked.update([number for _, number in wanted])
        self._task = asyncio.get_running_loop().create_task(self._fetch(wanted))

        def done(task: asyncio.Task[None]) -> None:
            self._task = None
            missing = [number for number in self._asked if number not in self._bodies]
            self._asked.clear()
            if task.cancelled():
                return
            error = task.exception()
            if error is not None and not isinstance(error, GatewayError):
                raise error
            on_fetched(missing, error)

        self._task.add_done_callback(done)

    async def _fetch(self, wanted: list[tuple[int, int]]) -> None:
        at = 0
        while at < len(wanted):
            offset = wanted[at][0]
            near = wanted[min(at + _NEAR_COUNT, len(wanted)) - 1][0]
            is_dense = near - offset < _NEAR_OFFSETS
            bytes_max = READ_BYTES if is_dense else 1
            batches = self._broker.read(self._partition, offset, bytes_max=bytes_max)
            if batches is None:
                batches = await self._broker.read_disk(
                    self._partition, offset, bytes_max=bytes_max
                )
            at = self._take_from(batches, wanted, at)
            await asyncio.sleep(0)  # The loop serves others while much is read.

    def _take_from(
        self, batches: Sequence[Buffer], wanted: list[tuple[int, int]], at: int
    ) -> int:
        """Cache the wanted entries found in batches, from index ``at``; return the next index."""
        begin = at
        for batch in batches:
            header = parse_batch_header(batch)
            start = at
            while at < len(wanted) and wanted[at][0] <= header.last_offset:
                at += 1
            if at == start:
                continue
            offsets = [offset for offset, _ in wanted[start:at]]
            try:
                self._broker.stored.check(self._partition, batch)
                found = pick_values(batch, header, offsets)
            except CorruptBatch as error:
                log.warning("delayed messages cannot be read", error=str(error))
                continue
            asked, find = self._asked, self._state.find
            for (_, value), (_, number) in zip(found, wanted[start:at], strict=True):
                is_needed = number in asked or find(number) is not None
                if is_needed and is_waiting(value):  # else it went while it was being read
                    self._set(number, value)
        return max(at, begin + 1)
