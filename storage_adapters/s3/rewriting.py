"""Compaction of merged objects: a partition is rewritten object by object.

The rest of a partition in an object is put as an own object; the old object dies, or loses that
part when it holds others. Objects without changes stay as they are.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from gateway.errors import StorageUnavailable
from gateway.model import LEADER_EPOCH_AT, Buffer
from gateway.storage import Drops, Keep, Rewritten
from storage_adapters.formats.damage import Damaged
from storage_adapters.formats.footer import HIGH_SHIFT, LOW_32, ROW_STRIDE, Rows, span_of
from storage_adapters.s3.merge_pace import Stopped
from storage_adapters.s3.merge_plan import is_shared
from storage_adapters.s3.merged_change import READ_BYTES, Changer, Replacement
from storage_adapters.s3.merged_object import (
    Builder,
    DamagedObject,
    MergedObject,
    StoredBatch,
    is_intact,
)
from storage_adapters.s3.merging import Merger
from storage_adapters.s3.objects import ObjectHeader, Part
from storage_adapters.s3.rows import RowsCache
from storage_adapters.s3.state import (
    KIND_SETTLED,
    Catalog,
    Extent,
    PartitionState,
    StoredObject,
)

_INT32: Final = struct.Struct(">i")
_BASE_OFFSET: Final = struct.Struct(">q")
_CLOSED: Final = "the storage is being closed"


class Row(NamedTuple):
    """A batch's row in the index; ``span`` = offsets + epoch << 32."""

    base_offset: int
    position: int
    size_bytes: int
    span: int

    @property
    def end(self) -> int:
        """One past the batch's last offset."""
        return self.base_offset + (self.span & LOW_32)


class Rewrite(NamedTuple):
    """Rewriting of a partition's batches within [``from_offset``, ``upto_offset``)."""

    from_offset: int
    upto_offset: int
    keep: Keep
    drops: Drops | None

    def concerns(self, row: Row) -> bool:
        """Return whether a batch lies within."""
        return self.from_offset <= row.base_offset and row.end <= self.upto_offset


class _Work(NamedTuple):
    """Input of a thread for rewriting one object."""

    partition_id: int
    stored: StoredObject
    extent: Extent
    rows: Rows
    told: Part
    rewrite: Rewrite


class Rewriter:
    """Rewriter, between the merger's rounds. Loop only; other work runs between objects."""

    def __init__(
        self, catalog: Catalog, changer: Changer, merger: Merger, rows: RowsCache
    ) -> None:
        self._catalog = catalog
        self._changer = changer
        self._merger = merger
        self._rows = rows

    def settled_offset(self, partition_id: int) -> int:
        """See ``CompactingStorage``: the end of a partition's merged objects of this log."""
        state = self._catalog.partitions.get(partition_id)
        if state is None or state.is_deleted:
            return 0
        end = state.start
        for extent in state.extents:
            stored = self._catalog.objects[extent.number]
            if stored.kind != KIND_SETTLED or stored.log != self._catalog.log:
                break
            end = max(end, extent.end)
        return end

    async def rewrite(
        self, partition_id: int, upto_offset: int, keep: Keep, drops: Drops | None = None
    ) -> Rewritten:
        """See ``CompactingStorage``. Damaged objects are left as they are."""
        state = self._catalog.partitions.get(partition_id)
        done = Rewritten(0 if state is None else state.start, 0, 0)
        while state is not None and done.upto_offset < upto_offset:
            async with self._merger.lock:
                extent = self._next(state, done.upto_offset, upto_offset)
                if extent is None:
                    break
                rewrite = Rewrite(done.upto_offset, upto_offset, keep, drops)
                after_bytes = await self._rewrite(state, extent, rewrite)
            done = Rewritten(
                min(upto_offset, extent.end),
                done.before_bytes + extent.size_bytes,
                done.after_bytes + after_bytes,
            )
        self._merger.touch(partition_id)  # There may be small objects to merge.
        return done

    def _next(self, state: PartitionState, from_offset: int, upto: int) -> Extent | None:
        """Return the first extent after ``from_offset`` that can be rewritten."""
        if self._merger.is_halted:
            raise StorageUnavailable(_CLOSED)
        settled = self.settled_offset(state.partition_id)
        index = state.find(max(from_offset, state.start))
        if state.is_deleted or index == len(state.extents):
            return None
        extent = state.extents[index]
        return extent if extent.end <= settled and extent.first < upto else None

    async def _rewrite(self, state: PartitionState, extent: Extent, rewrite: Rewrite) -> int:
        """Rewrite one object's part; return its new size."""
        stored = self._catalog.objects[extent.number]
        told = self._merger.introduce(state.partition_id)
        if stored.number in self._merger.damaged or told.is_deleted:
            return extent.size_bytes
        try:
            rows = await self._rows.get(stored.number)
            work = _Work(state.partition_id, stored, extent, rows, told, rewrite)
            place = await self._merger.place()
            made = await self._changer.in_thread(self._make, place, work)
            if made is None:
                return extent.size_bytes
            await self._changer.commit(_replacement(work, made))
            return sum([part.extent.size_bytes for part in made.parts])
        except DamagedObject as error:
            self._merger.note_damage(error)
            raise StorageUnavailable(self._text(state, rewrite, str(error))) from error
        except Damaged as error:  # the object's rows in the index
            raise StorageUnavailable(self._text(state, rewrite, str(error))) from error
        except Stopped as error:
            raise StorageUnavailable(self._text(state, rewrite, _CLOSED)) from error
        finally:
            self._changer.give_up()

    @staticmethod
    def _text(state: PartitionState, rewrite: Rewrite, why: str) -> str:
        upto = rewrite.from_offset
        return f"partition {state.partition_id} is rewritten up to {upto} only: {why}"

    def _make(self, place: ObjectHeader, work: _Work) -> MergedObject | None:
        """Build and put the rest of a part; None when nothing changes. In a thread."""
        builder = Builder(place, (work.stored.next_sequence, work.stored.next_sequence))
        rewrite = work.rewrite
        alive = [row for row in _rows_of(work) if row.end > work.told.start]
        wanted = [row for row in alive if not _is_dropped(rewrite, row)]
        is_changed = len(wanted) < work.extent.row_count
        for row, batch in self._batches(work.stored, wanted):
            kept: Buffer | None = batch
            if rewrite.concerns(row):
                kept = rewrite.keep(batch)
            if kept is batch:
                builder.add(StoredBatch(batch, row.base_offset, row.span))
                continue
            is_changed = True
            if kept is not None:
                builder.add(_stored(kept))
        if not is_changed:
            return None
        first = work.extent.first
        if len(alive) < work.extent.row_count:  # as in ``merged_object``: the front is gone
            start = work.told.start
            first = max(first, min([start, *[row.base_offset for row in alive[:1]]]))
        builder.end_part(
            work.partition_id, (min(first, work.extent.end), work.extent.end), work.told, None
        )
        self._merger.pace()
        return self._changer.put_object(builder.finish())

    def _batches(
        self, stored: StoredObject, wanted: Sequence[Row]
    ) -> Iterator[tuple[Row, memoryview]]:
        """Yield the intact batches of some rows, read in few pieces."""
        for rows in _pieces(wanted):
            self._merger.pace()
            start, end = rows[0].position, rows[-1].position + rows[-1].size_bytes
            data = memoryview(self._changer.read_range(stored, start, end))
            for row in rows:
                at = row.position - start
                batch = data[at : at + row.size_bytes]
                if not is_intact(batch, row.size_bytes, row.span >> HIGH_SHIFT):
                    text = f"the batch at position {row.position} is damaged"
                    raise DamagedObject(stored.number, text)
                if _BASE_OFFSET.unpack_from(batch) != (
                    row.base_offset,
                ):  # of several partitions
                    batch = memoryview(_BASE_OFFSET.pack(row.base_offset) + batch[8:])
                yield row, batch


def _replacement(work: _Work, made: MergedObject) -> Replacement:
    number = work.stored.number
    if is_shared(work.stored) or len(work.stored.partition_ids) > 1:
        return Replacement([made], lost={number: frozenset([work.partition_id])})
    return Replacement([made], gone=[number])


def _rows_of(work: _Work) -> Iterator[Row]:
    rows, extent = work.rows, work.extent
    for row in range(extent.first_row, extent.first_row + extent.row_count):
        base_offset, _, place, span = rows[row * ROW_STRIDE : (row + 1) * ROW_STRIDE]
        yield Row(base_offset, place & LOW_32, place >> HIGH_SHIFT, span)


def _is_dropped(rewrite: Rewrite, row: Row) -> bool:
    if rewrite.drops is None or not rewrite.concerns(row):
        return False
    return rewrite.drops(row.base_offset, row.size_bytes)


def _pieces(wanted: Sequence[Row]) -> Iterator[list[Row]]:
    """Yield adjacent rows of about ``READ_BYTES`` at a time."""
    piece: list[Row] = []
    size_bytes = 0
    for row in wanted:
        follows = not piece or row.position == piece[-1].position + piece[-1].size_bytes
        if not follows or size_bytes >= READ_BYTES:
            yield piece
            piece, size_bytes = [], 0
        piece.append(row)
        size_bytes += row.size_bytes
    if piece:
        yield piece


def _stored(batch: Buffer) -> StoredBatch:
    """Return a batch that ``keep`` made, for the offsets in its header."""
    view = memoryview(batch)
    (leader_epoch,) = _INT32.unpack_from(view, LEADER_EPOCH_AT)
    if not is_intact(view, len(view), leader_epoch):
        raise StorageUnavailable("a batch that compaction made has a wrong CRC")
    (base_offset,) = _BASE_OFFSET.unpack_from(view)
    return StoredBatch(view, base_offset, span_of(view))
