"""What was read from objects, in memory: runs of blocks, which of their batches were checked."""

import asyncio
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator

from gateway.model import Buffer


class Run:
    """Bytes ``start`` to before ``end`` of an object, as one GET or one file gave them.

    ``bytes`` as a list are pieces, which are joined when they are first read. ``is_trusted``: made
    here, so that no batch of it has to be checked.
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
        # Start, end, start, end: sorted, and no two pieces touch.
        self._checked: list[int] = [start, self.end] if is_trusted else []

    @property
    def view(self) -> memoryview:
        """All of it, in one piece. In any thread: who comes second joins again, or finds it."""
        data = self._data
        if isinstance(data, list):
            data = memoryview(data[0] if len(data) == 1 else b"".join(data))
            self._data = data
        return data

    @property
    def size_bytes(self) -> int:
        """How many bytes it has."""
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
    """What a read holds of one object, whatever the cache lets go of meanwhile."""

    __slots__ = ("_runs", "_starts")

    def __init__(self, runs: Iterable[Run]) -> None:
        self._runs = sorted(runs, key=lambda run: run.start)
        self._starts = [run.start for run in self._runs]

    @property
    def size_bytes(self) -> int:
        """Bytes of the runs that it holds."""
        return sum([run.size_bytes for run in self._runs])

    def run(self, start: int, end: int) -> Run | None:
        """Return the run that holds all between two positions."""
        run = self._runs[bisect_right(self._starts, start) - 1]
        return run if end <= run.end else None

    def view(self, start: int, end: int) -> memoryview:
        """Return the bytes between two positions; copied where runs meet."""
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
    """Runs that were used last. Loop only.

    ``bytes_max`` bounds what is held together with what is on its way (``reserve``): a single
    run that is larger comes when nothing else is on its way, and is not kept.
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
        """Wait until so much more may be on its way; first come, first served."""
        async with self._turn:
            while self.coming_bytes and self.coming_bytes + size_bytes > self._bytes_max:
                self._freed.clear()
                await self._freed.wait()
            self.coming_bytes += size_bytes
        self._shrink()

    def release(self, size_bytes: int) -> None:
        """Say that what was reserved will not come."""
        self.coming_bytes -= size_bytes
        self._freed.set()

    def put(self, run: Run) -> None:
        """Keep what was on its way."""
        self.release(run.size_bytes)
        self._runs[run] = None
        self.held_bytes += run.size_bytes
        for block in self._blocks_of(run):
            self._blocks[run.number, block] = run
        self._shrink()

    def discard(self, number: int, start: int, end: int) -> None:
        """Forget the runs that hold something between two positions of an object."""
        for block in range(start // self._block_bytes, -(-end // self._block_bytes)):
            run = self._blocks.get((number, block))
            if run is not None:
                self._remove(run)

    def drop(self, number: int) -> None:
        """Forget an object."""
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
