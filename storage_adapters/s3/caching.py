"""Reads of objects through four tiers: tail, memory, disk, bucket.

Data is cached in blocks of ``block_bytes``. Adjacent missing blocks come in one GET, and all reads
that need a block at the same time share it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar, TypeVarTuple

from gateway.errors import StorageUnavailable
from gateway.model import Buffer
from storage_adapters.s3.bucket import Bucket
from storage_adapters.s3.config import S3Config
from storage_adapters.s3.disk_cache import DiskCache
from storage_adapters.s3.memory_cache import MemoryCache, Run, Window
from storage_adapters.s3.state import StoredObject, object_key

GETS_MAX: Final = 12  # at once, read-ahead included
AHEAD_MAX: Final = 4  # of them for read-ahead
GET_BYTES_MAX: Final = 8 * 1_048_576  # in one GET
GAP_BYTES_MAX: Final = 64 * 1_024  # largest gap between spans read as one
UNWRITTEN_BYTES_MAX: Final = (
    32 * 1_048_576
)  # waiting for the disk cache; it misses further blocks

_CLOSED: Final = "the storage is closed"
_T = TypeVar("_T")
_Args = TypeVarTuple("_Args")
Span = tuple[int, int]  # positions [start, end)


class CacheCounts:
    """Hits of each tier in blocks, and their bytes; only bytes for the tail.

    ``bucket_blocks`` and ``bucket_bytes`` are the misses; ``gets`` the requests for them.
    """

    def __init__(self) -> None:
        self.tail_bytes = 0
        self.memory_blocks = 0
        self.memory_bytes = 0
        self.disk_blocks = 0
        self.disk_bytes = 0
        self.bucket_blocks = 0
        self.bucket_bytes = 0
        self.gets = 0
        self.shared_blocks = 0  # already requested by another read


class ObjectCache:
    """Cache over all tiers. Loop only; threads wait for disk and bucket.

    Bounds: ``tail_cache_bytes``; ``memory_cache_bytes``, requested
    blocks included; ``disk_cache_bytes``, and ``UNWRITTEN_BYTES_MAX`` of pending writes.
    """

    def __init__(
        self, bucket: Bucket, config: S3Config, *, data_dir: Path, prefix: str
    ) -> None:
        self._bucket = bucket
        self._prefix = prefix
        self._block_bytes = config.block_bytes
        # A quarter of the memory, so that a few GETs fit even a small cache.
        get_bytes = min(GET_BYTES_MAX, config.memory_cache_bytes // 4)
        # One more, since a span rarely begins at the start of a block.
        self._get_blocks = get_bytes // config.block_bytes + 1
        self._tail_bytes_max = config.tail_cache_bytes
        self._tail: OrderedDict[int, Run] = OrderedDict()
        self._memory = MemoryCache(config.memory_cache_bytes, config.block_bytes)
        self._disk = DiskCache(config, data_dir)
        self._loading: dict[tuple[int, int], asyncio.Task[Run]] = {}
        self._gets = ThreadPoolExecutor(GETS_MAX, "headgate-get")
        self._reads = ThreadPoolExecutor(2, "headgate-cache-read")
        self._writes = ThreadPoolExecutor(1, "headgate-cache-write")
        self._checks = ThreadPoolExecutor(1, "headgate-check")
        self._ahead = asyncio.Semaphore(AHEAD_MAX)
        self._unwritten_bytes = 0
        self.is_closed = False
        self.tail_bytes = 0
        self.counts = CacheCounts()
        self._writes.submit(self._disk.open)

    @property
    def memory_bytes(self) -> int:
        """Bytes held or requested, without the tail."""
        return self._memory.held_bytes + self._memory.coming_bytes

    @property
    def disk_bytes(self) -> int:
        """Size of the files."""
        return self._disk.held_bytes

    def put_tail(self, number: int, body: list[Buffer]) -> None:
        """Keep a newly written object, in pieces, until newer ones need its room."""
        run = Run(number, 0, body, is_trusted=True)
        if number in self._tail or run.size_bytes > self._tail_bytes_max:
            return
        self._tail[number] = run
        self.tail_bytes += run.size_bytes
        while self.tail_bytes > self._tail_bytes_max:
            _, oldest = self._tail.popitem(last=False)
            self.tail_bytes -= oldest.size_bytes

    def tail(self, number: int) -> Run | None:
        """Return a whole object of the tail."""
        return self._tail.get(number)

    def peek(self, number: int, start: int, end: int) -> memoryview | None:
        """Return bytes that are in memory, checked or not."""
        window = self.window_now(number, [(start, end)])
        return None if window is None else window.view(start, end)

    def window_now(self, number: int, spans: Sequence[Span]) -> Window | None:
        """Return a window on spans of an object if all are in memory; does not count the read."""
        run = self._tail.get(number)
        if run is not None:
            return Window([run])
        runs: set[Run] = set()
        for block in self._blocks_of(spans):
            run = self._memory.get(number, block)
            if run is None:
                return None
            runs.add(run)
        return Window(runs)

    def count_tail(self, size_bytes: int) -> None:
        """Count a read of the tail."""
        self.counts.tail_bytes += size_bytes

    def count_memory(self, areas: Sequence[Span]) -> None:
        """Count a read of a window of ``window_now``."""
        blocks = len(self._blocks_of(areas))
        self.counts.memory_blocks += blocks
        self.counts.memory_bytes += blocks * self._block_bytes

    async def fetch(self, stored: StoredObject, spans: Sequence[Span]) -> list[memoryview]:
        """Return the bytes of spans, unchecked. Errors: those of ``Bucket.get``."""
        window = await self.window(stored, spans)
        return [window.view(start, end) for start, end in spans]

    async def window(self, stored: StoredObject, spans: Sequence[Span]) -> Window:
        """Return a window on spans of an object. Errors: those of ``Bucket.get``."""
        run = self._tail.get(stored.number)
        if run is not None:
            self.count_tail(sum([end - start for start, end in spans]))
            return Window([run])
        runs: set[Run] = set()
        loads: set[asyncio.Task[Run]] = set()
        missing: list[int] = []
        for block in self._blocks_of(spans):
            run = self._memory.get(stored.number, block)
            load = self._loading.get((stored.number, block))
            if run is not None:
                runs.add(run)
                self.counts.memory_blocks += 1
                self.counts.memory_bytes += self._block_bytes
            elif load is not None:
                loads.add(load)
                self.counts.shared_blocks += 1
            else:
                missing.append(block)
        for first, last in self._groups(stored.number, missing):
            loads.add(self._begin(stored, first, last))
        if loads:
            # A cancelled read leaves the loads to the others.
            await asyncio.wait(loads)
            if any(load.cancelled() for load in loads):
                raise StorageUnavailable(_CLOSED)
            runs |= {load.result() for load in loads}
        return Window(runs)

    async def window_ahead(self, stored: StoredObject, spans: Sequence[Span]) -> Window:
        """Return such a window for read-ahead, with lower priority than other reads."""
        async with self._ahead:
            return await self.window(stored, spans)

    async def read_ahead(self, stored: StoredObject, start: int, end: int) -> None:
        """Fetch bytes that a reader will need soon. Errors: those of ``Bucket.get``."""
        await self.window_ahead(stored, [(start, end)])

    async def check(self, work: Callable[[*_Args], _T], *args: *_Args) -> _T:
        """Run ``work(*args)`` in a thread for computations."""
        self._check_open()
        return await asyncio.get_running_loop().run_in_executor(self._checks, work, *args)

    def discard(self, number: int, start: int, end: int) -> None:
        """Drop damaged bytes."""
        self._memory.discard(number, start, end)
        for block in self._blocks_of([(start, end)]):
            self._disk.remove((number, block))

    def drop(self, number: int) -> None:
        """Drop a dead object."""
        run = self._tail.pop(number, None)
        if run is not None:
            self.tail_bytes -= run.size_bytes
        self._memory.drop(number)
        if not self.is_closed:
            self._writes.submit(self._disk.drop, number)

    def close(self) -> None:
        """Refuse further reads; waiting ones get ``StorageUnavailable``. Waits for no thread."""
        self.is_closed = True
        for task in set(self._loading.values()):
            task.cancel()
        for executor in (self._gets, self._reads, self._writes, self._checks):
            executor.shutdown(wait=False, cancel_futures=True)

    # Blocks.

    def _blocks_of(self, spans: Sequence[Span]) -> Sequence[int]:
        size = self._block_bytes
        if len(spans) == 1:
            return range(spans[0][0] // size, -(-spans[0][1] // size))
        blocks: set[int] = set()
        for start, end in join(spans, GAP_BYTES_MAX):
            blocks.update(range(start // size, -(-end // size)))
        return sorted(blocks)

    def _groups(self, number: int, missing: list[int]) -> list[Span]:
        """Return the first and last block of each GET."""
        groups: list[Span] = []
        was_on_disk = False
        for block in missing:
            on_disk = self._disk.has((number, block))
            if groups:
                first, last = groups[-1]
                is_next = block == last + 1 and on_disk == was_on_disk
                if is_next and block - first < self._get_blocks:
                    groups[-1] = first, block
                    continue
            groups.append((block, block))
            was_on_disk = on_disk
        return groups

    def _begin(self, stored: StoredObject, first: int, last: int) -> "asyncio.Task[Run]":
        """Begin to load blocks; a cancelled reader does not cancel the load."""
        task = asyncio.get_running_loop().create_task(self._load(stored, first, last))
        blocks = [(stored.number, block) for block in range(first, last + 1)]
        for block in blocks:
            self._loading[block] = task

        def end(task: "asyncio.Task[Run]") -> None:
            for block in blocks:
                del self._loading[block]
            if not task.cancelled():
                task.exception()  # marked as retrieved, even when all readers were cancelled

        task.add_done_callback(end)
        return task

    async def _load(self, stored: StoredObject, first: int, last: int) -> Run:
        start = first * self._block_bytes
        end = min((last + 1) * self._block_bytes, stored.size_bytes)
        try:
            self._check_open()
            await self._memory.reserve(end - start)
            try:
                data = await self._data(stored, start, end)
                run = Run(stored.number, start, data)
            except BaseException:
                self._memory.release(end - start)
                raise
            self._memory.put(run)
        except asyncio.CancelledError:
            raise StorageUnavailable(_CLOSED) from None
        return run

    async def _data(self, stored: StoredObject, start: int, end: int) -> Buffer:
        key = object_key(self._prefix, stored.number, stored.epoch)
        identity = f"{key}\n{stored.etag}"
        loop = asyncio.get_running_loop()
        if self._disk.has((stored.number, start // self._block_bytes)):
            kept = await loop.run_in_executor(
                self._reads, self._from_disk, stored.number, identity, (start, end)
            )
            if kept is not None:
                self.counts.disk_blocks += -(-(end - start) // self._block_bytes)
                self.counts.disk_bytes += end - start
                return kept
        data = await loop.run_in_executor(self._gets, self._bucket.get, key, start, end)
        self.counts.gets += 1
        self.counts.bucket_blocks += -(-(end - start) // self._block_bytes)
        self.counts.bucket_bytes += end - start
        self._write(stored.number, identity, start, data)
        return data

    def _from_disk(self, number: int, identity: str, span: Span) -> Buffer | None:
        pieces = []
        for block in self._blocks_of([span]):
            piece = self._disk.read((number, block), identity)
            if piece is None:
                return None
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _write(self, number: int, identity: str, start: int, data: bytes) -> None:
        """Write blocks to the disk cache, if it keeps up."""
        if self.is_closed or self._unwritten_bytes + len(data) > UNWRITTEN_BYTES_MAX:
            return
        self._unwritten_bytes += len(data)
        loop = asyncio.get_running_loop()
        loop.run_in_executor(
            self._writes, self._to_disk, number, identity, start, data
        ).add_done_callback(lambda _: self._written(len(data)))

    def _written(self, size_bytes: int) -> None:
        self._unwritten_bytes -= size_bytes

    def _to_disk(self, number: int, identity: str, start: int, data: bytes) -> None:
        view, size = memoryview(data), self._block_bytes
        for at in range(0, len(view), size):
            self._disk.write((number, (start + at) // size), identity, view[at : at + size])

    def _check_open(self) -> None:
        if self.is_closed:
            raise StorageUnavailable(_CLOSED)


def join(spans: Iterable[Span], gap_bytes_max: int) -> list[Span]:
    """Sort spans, and join those with a gap of at most so many bytes.

    >>> join([(70, 80), (0, 10), (15, 20)], 5)
    [(0, 20), (70, 80)]
    """
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start - joined[-1][1] <= gap_bytes_max:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined
