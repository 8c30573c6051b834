"""Reads: plan, fetch, check once, return batches."""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from gateway.errors import StorageUnavailable, StoredDataDamaged, as_value
from gateway.model import ATTRIBUTES_AT, LENGTH_OVERHEAD_BYTES, MAGIC, Buffer
from storage_adapters.formats.damage import Damaged, TooNew
from storage_adapters.formats.footer import HIGH_SHIFT, LOW_32, Rows
from storage_adapters.s3.bucket import ObjectMissing
from storage_adapters.s3.caching import ObjectCache, Span
from storage_adapters.s3.config import S3Config
from storage_adapters.s3.memory_cache import Run, Window
from storage_adapters.s3.read_ahead import ReadAhead
from storage_adapters.s3.read_plan import Piece, plan_read
from storage_adapters.s3.rows import RowsCache, RowsGone
from storage_adapters.s3.state import Catalog, PartitionState, StoredObject, object_key

PLANS_MAX: Final = 5  # of one read: its objects can be merged while it waits
CHECKED_ON_LOOP_BYTES_MAX: Final = 128 * 1_024  # some 20 us; more is checked in a thread
CHECKED_ON_LOOP_MAX: Final = 64  # batches
WINDOWS_MAX: Final = 12  # of one read at once, each of which holds the blocks of an object
COPIED_BELOW: Final = 8  # times: batches below an eighth of the memory they hold are copied
_END: Final = (1 << 63) - 1

_FRONT: Final = struct.Struct(">qiiBI")  # base offset, length, leader epoch, magic, CRC
_BASE_OFFSET: Final = struct.Struct(">q")


class BatchFault(NamedTuple):
    """A batch that contradicts its row. ``at``: its index in the piece."""

    at: int
    text: str


class Reader:
    """Reader. Loop only. ``damaged`` counts batches that were fetched again because of damage."""

    def __init__(
        self,
        catalog: Catalog,
        rows: RowsCache,
        cache: ObjectCache,
        config: S3Config,
        *,
        refresh: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """``refresh``: called when an object is gone which another node may have merged."""
        self._catalog = catalog
        self._refresh = refresh
        self._rows = rows
        self._cache = cache
        self._prefix = config.prefix
        self._block_bytes = config.block_bytes
        # Half of the memory for reads, half for read-ahead.
        self._room_bytes = config.memory_cache_bytes // 2
        self._ahead_bytes = min(config.read_ahead_bytes, self._room_bytes)
        pieces_max = self._room_bytes // self._ahead_bytes if self._ahead_bytes else 0
        self.ahead = ReadAhead(self._fetch_ahead, pieces_max)
        self.damaged = 0

    def read_cached(
        self, state: PartitionState, start: int, end: int, *, bytes_max: int
    ) -> list[Buffer] | None:
        """See ``StorageAdapter``: returns checked batches in memory."""
        pieces, missing = plan_read(state, start, end, bytes_max, self._rows.peek)
        if missing:
            return None
        cache = self._cache
        batches: list[Buffer] = []
        is_cold = False
        for piece in pieces:
            run = cache.tail(piece.number)
            if run is not None:
                cache.count_tail(sum(piece.sizes))
                batches += _cut(run, piece)
                continue
            window = cache.window_now(piece.number, areas := piece.areas())
            if window is None or not all(window.is_checked(*area) for area in areas):
                return None
            is_cold = True
            cache.count_memory(areas)
            batches += batches_in(window, piece)
        if is_cold:
            self.ahead.note(state, max(start, state.start), pieces[-1].next_offset)
        return batches

    async def read(
        self, state: PartitionState, start: int, end: int, *, bytes_max: int
    ) -> list[Buffer]:
        """See ``StorageAdapter``. Errors: ``StorageUnavailable``."""
        for _ in range(PLANS_MAX):
            try:
                pieces = await self._plan(
                    state, start, end, bytes_max, room_bytes=self._room_bytes
                )
                if any(self._cache.tail(piece.number) is None for piece in pieces):
                    # Before the read, so that both are fetched in parallel.
                    self.ahead.note(state, max(start, state.start), pieces[-1].next_offset)
                return await self._batches_of(pieces)
            except (ObjectMissing, RowsGone) as error:
                # A merge has replaced the object; the catalog has its replacement now.
                gone = as_value(error)
                if self._refresh is not None:
                    await self._refresh()
        raise StorageUnavailable(f"partition {state.partition_id}, offset {start}: {gone}")

    async def _batches_of(self, pieces: list[Piece]) -> list[Buffer]:
        """Return the batches of all pieces, fetching several at once."""
        room = asyncio.Semaphore(WINDOWS_MAX)

        async def get(piece: Piece) -> list[Buffer]:
            async with room:
                return batches_in(await self._window(piece), piece)

        if len(pieces) == 1:
            return await get(pieces[0])
        tasks = [asyncio.ensure_future(get(piece)) for piece in pieces]
        try:
            found = await asyncio.gather(*tasks)
        finally:
            for task in tasks:  # After an error the rest is not needed.
                task.cancel()
        return [batch for batches in found for batch in batches]

    async def rows_of(self, number: int) -> Rows:
        """Return the rows of an object. Errors: ``RowsGone``, ``StorageUnavailable``."""
        try:
            return await self._rows.get(number)
        except (Damaged, TooNew) as error:
            raise StorageUnavailable(f"the index of object {number}: {error}") from error

    async def _plan(
        self, state: PartitionState, start: int, end: int, bytes_max: int, *, room_bytes: int
    ) -> list[Piece]:
        """Plan a read, looking up missing rows.

        ``room_bytes`` bounds the blocks that are needed: if objects hold little of the partition, a
        read returns less than allowed instead of waiting for many blocks.
        """
        held: dict[int, Rows] = {}

        def rows_of(number: int) -> Rows | None:
            rows = held.get(number)
            return self._rows.peek(number) if rows is None else rows

        start = max(start, state.start)
        end = min(end, state.committed_end)
        while start < end:
            reach = self._reach(state, (start, end), bytes_max, room_bytes)
            pieces, missing = plan_read(state, start, reach, bytes_max, rows_of)
            if missing:
                found = await asyncio.gather(*map(self.rows_of, missing))
                # Held here, since the cache may have less room than one read needs.
                held.update(zip(missing, found, strict=True))
            elif pieces:
                return pieces
            else:
                start = reach  # All batches up to there were compacted away.
        return []

    def _reach(self, state: PartitionState, span: Span, bytes_max: int, room_bytes: int) -> int:
        """Return the offset up to which objects are read, so that their blocks have room."""
        start, end = span
        for at in range(state.find(start), len(state.extents)):
            extent = state.extents[at]
            if extent.first >= end:
                break
            if self._cache.tail(extent.number) is None:
                room_bytes -= max(min(extent.size_bytes, bytes_max), self._block_bytes)
            if room_bytes <= 0:
                return min(extent.end, end)
        return end

    async def _window(self, piece: Piece, *, is_ahead: bool = False) -> Window:
        """Return a window on intact batches; damaged ones are fetched a second time."""
        stored = self._catalog.objects.get(piece.number)
        if stored is None:
            raise RowsGone(f"object {piece.number} is not there any more")
        areas = piece.areas()
        window, faults = await self._try(stored, piece, areas, is_ahead=is_ahead)
        if not faults:
            return window
        self.damaged += len(faults)
        for fault in faults:
            position = piece.positions[fault.at]
            self._cache.discard(stored.number, position, position + piece.sizes[fault.at])
        window, faults = await self._try(stored, piece, areas, is_ahead=is_ahead)
        if faults:
            raise self._damage(stored, piece, faults[0])
        return window

    async def _try(
        self, stored: StoredObject, piece: Piece, areas: list[Span], *, is_ahead: bool
    ) -> tuple[Window, list[BatchFault]]:
        """Return a window and the faults of its batches."""
        if is_ahead:
            window = await self._cache.window_ahead(stored, areas)
        else:
            window = await self._cache.window(stored, areas)
        if all(window.is_checked(*area) for area in areas):
            return window, []
        size_bytes = sum(piece.sizes)
        if size_bytes > CHECKED_ON_LOOP_BYTES_MAX or len(piece.sizes) > CHECKED_ON_LOOP_MAX:
            faults = await self._cache.check(find_faults, window, piece)
        else:
            faults = find_faults(window, piece)
        if not faults:
            for area in areas:
                window.note_checked(*area)
        return window, faults

    async def _fetch_ahead(self, state: PartitionState, offset: int) -> int:
        """Fetch and check a reader's next piece from ``offset`` on; return its end."""
        ahead_bytes = self._ahead_bytes
        pieces = await self._plan(state, offset, _END, ahead_bytes, room_bytes=ahead_bytes)
        await asyncio.gather(*[self._window(piece, is_ahead=True) for piece in pieces])
        return pieces[-1].next_offset if pieces else offset

    def _damage(
        self, stored: StoredObject, piece: Piece, fault: BatchFault
    ) -> StoredDataDamaged:
        key = object_key(self._prefix, stored.number, stored.epoch)
        position, offset = piece.positions[fault.at], piece.base_offsets[fault.at]
        msg = f"object {key}, offset {offset}, at byte {position}: {fault.text}"
        return StoredDataDamaged(msg, offset, offset + (piece.spans[fault.at] & LOW_32))


def batches_in(window: Window, piece: Piece) -> list[Buffer]:
    """Return the batches with their base offsets filled in.

    They are views of the cache's runs, or copies of small parts of large runs.
    """
    ends = map(int.__add__, piece.positions, piece.sizes)
    run = window.run(min(piece.positions), max(ends))
    if run is not None:
        return _cut(run, piece)
    is_copied = sum(piece.sizes) * COPIED_BELOW < window.size_bytes
    batches: list[Buffer] = []
    for position, size, base_offset in zip(
        piece.positions, piece.sizes, piece.base_offsets, strict=True
    ):
        batch = _with_base_offset(window.view(position, position + size), base_offset)
        batches.append(bytes(batch) if is_copied else batch)
    return batches


def _cut(run: Run, piece: Piece) -> list[Buffer]:
    """Return the batches as slices of a run that holds all of them."""
    data, start = run.view, run.start
    unpack = _BASE_OFFSET.unpack_from
    is_copied = sum(piece.sizes) * COPIED_BELOW < len(data)
    places = [position - start for position in piece.positions]
    batches: list[Buffer] = [
        data[at : at + size] for at, size in zip(places, piece.sizes, strict=True)
    ]
    if is_copied:
        batches = list(map(bytes, batches))
    if [unpack(batch)[0] for batch in batches] != list(piece.base_offsets):
        pairs = zip(batches, piece.base_offsets, strict=True)
        return [_with_base_offset(batch, base_offset) for batch, base_offset in pairs]
    return batches


def _with_base_offset(batch: Buffer, base_offset: int) -> Buffer:
    """Return the batch, or a copy with its base offset if it has that of another target."""
    if _BASE_OFFSET.unpack_from(batch)[0] == base_offset:
        return batch
    copy = bytearray(batch)
    _BASE_OFFSET.pack_into(copy, 0, base_offset)
    return copy


def find_faults(window: Window, piece: Piece) -> list[BatchFault]:
    """Return the batches that are damaged, or contradict their rows."""
    faults: list[BatchFault] = []
    rows: Sequence[tuple[int, int, int]] = list(
        zip(piece.positions, piece.sizes, piece.spans, strict=True)
    )
    for at, (position, size, span) in enumerate(rows):
        text = fault_of(window.view(position, position + size), size, span >> HIGH_SHIFT)
        if text:
            faults.append(BatchFault(at, text))
    return faults


def fault_of(batch: memoryview, size: int, leader_epoch: int) -> str:
    """Return how a batch is damaged or contradicts its row; empty when it is intact."""
    _, length, epoch, magic, crc = _FRONT.unpack_from(batch)
    if (length + LENGTH_OVERHEAD_BYTES, epoch, magic) != (size, leader_epoch, MAGIC):
        return f"no batch of {size} bytes and epoch {leader_epoch}"
    return "" if crc32c(batch[ATTRIBUTES_AT:]) == crc else "the CRC of the batch does not match"
