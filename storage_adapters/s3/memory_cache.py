"""Memory cache of objects: runs of blocks, with the ranges whose batches were checked."""

import asyncio
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator

from gateway.model import Buffer


class Run:
    """Bytes [``start``, ``end``) of an object, as read by one GET or from one file.

    ``bytes`` as a list are pieces, which are joined at the first read. ``is_trusted``: built by
    this process, so that no batch of it has to be checked.
    """

    __slots__ = ("_checked", "_data", "end", "number", "start")

    def __init__(
        self,
        number: int,
        start: int,
        data: Buffer | list[Buffer],
        *,
        is_trusted: bool = False,
    ) -> None:
        pieces = data if isinstance(data, list) else [data]
        self.number = number
        self.start = start
        self._data: memoryview | list[Buffer] = pieces
        self.end = start + sum(map(len, pieces))
        # Start, end, start, end: sorted, and no two ranges touch.
        self._checked: list[int] = [start, self.end] if is_trusted else []

    @property
    def view(self) -> memoryview:
        """The whole run in one piece. In any thread; two first reads may both join the pieces."""
        data = self._data
        if isinstance(data, list):
            data = memoryview(data[0] if len(data) == 1 else b"".join(data))
            self._data = data
        return data

    @property
    def size_bytes(self) -> int:
        """Size of the run."""
        return self.end - self.start

    def is_checked(self, start: int, end: int) -> bool:
        """Say whether the batches between two positions were found intact."""
        at = bisect_right(self._checked, start)
        return at % 2 == 1 and end <= self._checked[at]

    def note_checked(self, start: int, end: int) -> None:
        """Remember that the batches between two positions are intact."""
        first, last = bisect_left(self._checked, start), bisect_right(self._checked, end)
        self._checked[first:last] = [
            *([] if first % 2 else [start]),
            *([] if last % 2 else [end]),
        ]


class Window:
    """Runs of one object that a read holds, independent of evictions from the cache."""

    __slots__ = ("_runs", "_starts")

    def __init__(self, runs: Iterable[Run]) -> None:
        self._runs = sorted(runs, key=lambda run: run.start)
        self._starts = [run.start for run in self._runs]

    @property
    def size_bytes(self) -> int:
        """Size of its runs."""
        return sum([run.size_bytes for run in self._runs])

    def run(self, start: int, end: int) -> Run | None:
        """Return the run that holds the whole range."""
        run = self._runs[bisect_right(self._starts, start) - 1]
        return run if end <= run.end else None

    def view(self, start: int, end: int) -> memoryview:
        """Return the bytes of a range; a range over several runs is copied."""
        run = self._runs[bisect_right(self._starts, start) - 1]
        if end <= run.end:
            return run.view[start - run.start : end - run.start]
        joined = bytearray()
        for piece, low, high in self._pieces(start, end):
            joined += piece.view[low - piece.start : high - piece.start]
        return memoryview(joined)

    def is_checked(self, start: int, end: int) -> bool:
        """Say whether the batches between two positions were found intact."""
        return all(run.is_checked(low, high) for run, low, high in self._pieces(start, end))

    def note_checked(self, start: int, end: int) -> None:
        """Remember that the batches between two positions are intact."""
        for run, low, high in self._pieces(start, end):
            run.note_checked(low, high)

    def _pieces(self, start: int, end: int) -> Iterator[tuple[Run, int, int]]:
        at = bisect_right(self._starts, start) - 1
        while at < len(self._runs) and self._starts[at] < end:
            run = self._runs[at]
            yield run, max(start, run.start), min(end, run.end)
            at += 1


class MemoryCache:
    """Least recently used cache of runs. Loop only.

    ``bytes_max`` bounds held and requested (``reserve``) runs together: a single larger run is
    requested when no other request is under way, and is not kept.
    """

    def __init__(self, bytes_max: int, block_bytes: int) -> None:
        self._bytes_max = bytes_max
        self._block_bytes = block_bytes
        self._runs: OrderedDict[Run, None] = OrderedDict()
        self._blocks: dict[tuple[int, int], Run] = {}
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()
        self.held_bytes = 0
        self.coming_bytes = 0

    def get(self, number: int, block: int) -> Run | None:
        """Return the run that holds a block of an object."""
        run = self._blocks.get((number, block))
        if run is not None:
            self._runs.move_to_end(run)
        return run

    async def reserve(self, size_bytes: int) -> None:
        """Wait for room for a request; first come, first served."""
        async with self._turn:
            while self.coming_bytes and self.coming_bytes + size_bytes > self._bytes_max:
                self._freed.clear()
                await self._freed.wait()
            self.coming_bytes += size_bytes
        self._shrink()

    def release(self, size_bytes: int) -> None:
        """Release a reservation that is not used."""
        self.coming_bytes -= size_bytes
        self._freed.set()

    def put(self, run: Run) -> None:
        """Keep a run that was reserved."""
        self.release(run.size_bytes)
        self._runs[run] = None
        self.held_bytes += run.size_bytes
        for block in self._blocks_of(run):
            self._blocks[run.number, block] = run
        self._shrink()

    def discard(self, number: int, start: int, end: int) -> None:
        """Drop the runs that overlap a range of an object."""
        for block in range(start // self._block_bytes, -(-end // self._block_bytes)):
            run = self._blocks.get((number, block))
            if run is not None:
                self._remove(run)

    def drop(self, number: int) -> None:
        """Drop an object."""
        for run in [run for run in self._runs if run.number == number]:
            self._remove(run)

    def _shrink(self) -> None:
        while self._runs and self.held_bytes + self.coming_bytes > self._bytes_max:
            self._remove(next(iter(self._runs)))

    def _remove(self, run: Run) -> None:
        del self._runs[run]
        self.held_bytes -= run.size_bytes
        for block in self._blocks_of(run):
            if self._blocks.get((run.number, block)) is run:
                del self._blocks[run.number, block]

    def _blocks_of(self, run: Run) -> range:
        return range(run.start // self._block_bytes, -(-run.end // self._block_bytes))
