"""Construction of a merged object: the batches of each partition in a row, then a footer.

Pure: bytes in, bytes out; runs in a thread. Large batches are not copied: the body of a new
object has slices of its inputs, with eight bytes between them where a base offset is filled in. So
a round holds its inputs in memory, and only rows and small batches of an output. Every batch's CRC
is compared on the way, and the fields outside of it with the row, which the footer's CRC covers.
docs/formats.md, section 11.
"""

import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from gateway.model import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_BYTES,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
    Buffer,
)
from storage_adapters.formats.bodies import with_bounds
from storage_adapters.formats.damage import Damaged
from storage_adapters.formats.footer import (
    HIGH_SHIFT,
    LOW_32,
    NO_TIMESTAMP,
    ROW_STRIDE,
    TRAILER_BYTES,
    Footer,
    FooterPart,
    decode_trailer,
    encode_footer,
)
from storage_adapters.formats.segment import (
    SEGMENT_HEADER_BYTES,
    decode_segment_header,
    encode_segment_header,
)
from storage_adapters.s3.change import ObjectPart
from storage_adapters.s3.merge_plan import PartRun
from storage_adapters.s3.objects import ObjectHeader, Part
from storage_adapters.s3.pieces import Pieces
from storage_adapters.s3.state import KIND_SETTLED, Catalog, Extent, StoredObject

PACE_BYTES: Final = 262_144

_BASE_OFFSET: Final = struct.Struct(">q")
_BASE_OFFSET_BYTES: Final = 8
_FRONT: Final = struct.Struct(">qiiBI")  # base offset, length, leader epoch, magic, CRC
_OFFSET_AND_TIMESTAMP: Final = struct.Struct(">q27xq")  # the base and the highest

Pace = Callable[[], None]
"""Called after every ``PACE_BYTES`` or so; may wait, and raises to stop."""


class DamagedObject(Damaged):
    """The content of an object differs from what was put."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.number = number


class Source(NamedTuple):
    """An input object in memory."""

    number: int
    data: memoryview
    footer: Footer


class MergedObject(NamedTuple):
    """A built object. ``stored`` has no ETag yet; ``rows`` are its footer's."""

    body: list[Buffer]
    stored: StoredObject
    parts: list[ObjectPart]
    rows: "array[int]"


class StoredBatch(NamedTuple):
    """A stored batch: ``bytes``, with ``base_offset`` as its base offset."""

    data: memoryview
    base_offset: int
    span: int  # offsets + epoch << 32, as in a row


def open_source(stored: StoredObject, data: Buffer) -> Source:
    """Return an input with its checked footer. Errors: ``DamagedObject``, ``TooNew``."""
    view = memoryview(data).toreadonly()
    try:
        header, trailer = decode_segment_header(view), decode_trailer(view)
        footer = Footer(view[trailer.footer_at : len(view) - TRAILER_BYTES], trailer)
        footer.check()
    except Damaged as error:
        raise DamagedObject(stored.number, str(error)) from error
    said = (header.kind, header.number, header.incarnation, trailer.number)
    if said != (stored.kind, stored.number, stored.epoch, stored.number):
        text = f"it says of itself that it is object {header.number}"
        raise DamagedObject(stored.number, text)
    return Source(stored.number, view, footer)


def ids_in_footers(sources: Iterable[Source]) -> set[int]:
    """Return the partitions in any source's footer."""
    return {part.partition_id for source in sources for part in source.footer}


def told_parts(catalog: Catalog, partition_ids: Iterable[int]) -> dict[int, Part]:
    """Return the state of partitions for a footer; forgotten ones are left out."""
    told = {}
    for partition_id in partition_ids:
        state = catalog.partitions.get(partition_id)
        if state is not None:
            end = max(state.start, state.committed_end)
            told[partition_id] = Part(state.start, end, state.is_deleted, None)
    return told


class Builder:
    """Builder of one object. Partitions come in order of their ids, batches in order of offset.

    ``sequences``: the log objects that a shared object replaces (``merge_plan``).
    """

    def __init__(self, place: ObjectHeader, sequences: tuple[int, int]) -> None:
        self._place = place
        self._sequences = sequences
        header = encode_segment_header(
            data_uuid=place.data_uuid,
            number=place.number,
            previous=0,
            first_sequence=sequences[0],
            incarnation=place.epoch,
            created_unix_ms=place.created_unix_ms,
            kind=KIND_SETTLED,
        )
        self._pieces = Pieces()
        self._pieces.add(header)
        self._rows = array("q")
        self._parts: list[ObjectPart] = []
        self._placed: dict[tuple[int, int], int] = {}  # of batches that may have more rows
        self._repeated_bytes = 0
        self._footer_parts: list[FooterPart] = []
        self._begin()
        self.position = SEGMENT_HEADER_BYTES

    def _begin(self) -> None:
        self._new_rows: list[int] = []
        self._highest = NO_TIMESTAMP
        self._epochs: list[tuple[int, int]] = []
        self._size_bytes = 0

    def add(self, batch: StoredBatch, place: tuple[int, int] | None = None) -> None:
        """Add an intact batch of the partition that ``end_part`` ends next.

        ``place``: object and position that it comes from, where others may have it, too. It is
        there once, with the base offset of the first; readers fill in the others'.
        """
        data, base_offset, span = batch
        stored_offset, timestamp_unix_ms = _OFFSET_AND_TIMESTAMP.unpack_from(data)
        if timestamp_unix_ms > self._highest:  # noqa: PLR1730  # Half of max().
            self._highest = timestamp_unix_ms
        if not self._epochs or self._epochs[-1][0] != span >> HIGH_SHIFT:
            self._epochs.append((span >> HIGH_SHIFT, base_offset))
        size_bytes = len(data)
        self._size_bytes += size_bytes
        position = self.position if place is None else self._placed.get(place, self.position)
        at = position + (size_bytes << HIGH_SHIFT)
        self._new_rows += (base_offset, self._highest, at, span)
        if position != self.position:
            self._repeated_bytes += size_bytes
            return
        if place is not None:
            self._placed[place] = position
        self.position += size_bytes
        if stored_offset != base_offset:
            self._pieces.add(_BASE_OFFSET.pack(base_offset))
            data = data[_BASE_OFFSET_BYTES:]
        self._pieces.add(data)

    @property
    def first_offset(self) -> int | None:
        """Base offset of the open partition's first batch, or None."""
        return self._new_rows[0] if self._new_rows else None

    def end_part(
        self, partition_id: int, bounds: tuple[int, int], told: Part, known: bytes | None
    ) -> None:
        """End a partition, whose offsets within ``bounds`` the object covers.

        ``known`` is its introduction if ``told`` has none.
        """
        first, end = bounds
        rows, first_row = array("q", self._new_rows), len(self._rows) // ROW_STRIDE
        self._rows += rows
        extent = Extent(
            first,
            end,
            self._place.number,
            first_row,
            len(rows) // ROW_STRIDE,
            self._size_bytes,
            self._highest,
            tuple(self._epochs),
        )
        self._parts.append(ObjectPart(partition_id, extent))
        self._add_footer_part(partition_id, bounds, told, known, rows)

    def note(self, partition_id: int, told: Part, known: bytes | None) -> None:
        """Record a partition's log start ``told.start``, or its deletion."""
        bounds = (told.start, told.start)
        self._add_footer_part(partition_id, bounds, told, known, array("q"))

    def _add_footer_part(  # The fields of the part, except two.
        self,
        partition_id: int,
        bounds: tuple[int, int],
        told: Part,
        known: bytes | None,
        rows: "array[int]",
    ) -> None:
        introduction = None if told.is_deleted else told.introduction or known
        if introduction is not None:
            introduction = with_bounds(introduction, told.start, told.end)
        size_bytes = self._size_bytes if rows else 0
        self._footer_parts.append(
            FooterPart(partition_id, *bounds, told.is_deleted, introduction, size_bytes, rows)
        )
        self._begin()

    def finish(self) -> MergedObject:
        """Return the object with its footer."""
        place, (first_sequence, next_sequence) = self._place, self._sequences
        for data in encode_footer(
            self._footer_parts,
            number=place.number,
            entries_end=self.position,
            first_sequence=first_sequence,
            next_sequence=next_sequence,
            incarnation=place.epoch,
            repeated_bytes=self._repeated_bytes,
        ):
            self._pieces.add(data)
        body = self._pieces.finish()
        stored = StoredObject(
            place.number,
            KIND_SETTLED,
            place.epoch,
            first_sequence,
            next_sequence,
            sum(map(len, body)),
            "",
            place.created_unix_ms,
            frozenset([part.partition_id for part in self._parts]),
        )
        return MergedObject(body, stored, self._parts, self._rows)


def build_merged_object(
    place: ObjectHeader,
    runs: Sequence[PartRun],
    sources: Mapping[int, Source],
    told: Mapping[int, Part],
    *,
    sequences: tuple[int, int],
    pace: Pace,
) -> MergedObject:
    """Build a new object from ``runs``. Errors: ``DamagedObject``, those of ``pace``.

    ``told`` is the state of partitions: of all in ``runs``, and of others that the footer is to
    record. Batches that end at or before their log start are left out.
    """
    builder = Builder(place, sequences)
    by_id = {run.partition_id: run for run in runs}
    for partition_id in sorted(by_id.keys() | told.keys()):
        run = by_id.get(partition_id)
        known = introduction_of(partition_id, sources)
        if run is None:
            builder.note(partition_id, told[partition_id], known)
        else:
            _add_run(builder, run, sources, told[partition_id], known, pace)
    return builder.finish()


def introduction_of(partition_id: int, sources: Mapping[int, Source]) -> bytes | None:
    """Return a partition's introduction from any of the sources, or None."""
    for source in sources.values():
        part = source.footer.find(partition_id)
        found = None if part is None else source.footer.introduction_bytes(part)
        if found is not None:
            return found
    return None


def _add_run(  # noqa: PLR0917  # One call per partition.
    builder: Builder,
    run: PartRun,
    sources: Mapping[int, Source],
    told: Part,
    known: bytes | None,
    pace: Pace,
) -> None:
    floor = told.start
    first, end = run.extents[0].first, run.extents[-1].end
    if end <= floor:  # its log start has moved past all of it since the round was planned
        builder.note(run.partition_id, told, known)
        return
    paced_at = builder.position
    for extent in run.extents:
        source = sources[extent.number]
        is_sharing = bool(source.footer.trailer.repeated_bytes)
        for base_offset, place, span in _rows_of(source, run.partition_id, extent):
            if base_offset + (span & LOW_32) > floor:
                origin = (source.number, place & LOW_32) if is_sharing else None
                builder.add(read_batch(source, base_offset, place, span), origin)
                if builder.position - paced_at >= PACE_BYTES:
                    paced_at = builder.position
                    pace()
    if first < floor:
        # Offsets below the log start are not covered; the first batch may begin before it.
        lowest = builder.first_offset
        first = floor if lowest is None else min(floor, lowest)
    builder.end_part(run.partition_id, (first, end), told, known)


def _rows_of(
    source: Source, partition_id: int, extent: Extent
) -> Iterator[tuple[int, int, int]]:
    """Yield (base offset, place, span) of an extent's batches. Errors: ``DamagedObject``."""
    part = source.footer.find(partition_id)
    if part is None or (part.first_row, part.row_count) != (extent.first_row, extent.row_count):
        text = f"footer and index disagree about partition {partition_id}"
        raise DamagedObject(source.number, text)
    start, end = part.first_row * ROW_STRIDE, (part.first_row + part.row_count) * ROW_STRIDE
    rows = array("q", source.footer.rows[start:end])
    return zip(rows[0::ROW_STRIDE], rows[2::ROW_STRIDE], rows[3::ROW_STRIDE], strict=True)


def read_batch(source: Source, base_offset: int, place: int, span: int) -> StoredBatch:
    """Return the intact batch of a row. Errors: ``DamagedObject``."""
    position, size_bytes = place & LOW_32, place >> HIGH_SHIFT
    data = source.data[position : position + size_bytes]
    if not is_intact(data, size_bytes, span >> HIGH_SHIFT):
        text = f"the batch at position {position} (offset {base_offset}) is damaged"
        raise DamagedObject(source.number, text)
    return StoredBatch(data, base_offset, span)


def is_intact(data: Buffer, size_bytes: int, leader_epoch: int) -> bool:
    """Return whether a batch matches its row (length, epoch, magic) and its CRC."""
    if len(data) != size_bytes or size_bytes < HEADER_BYTES:
        return False
    _, length, epoch, magic, crc = _FRONT.unpack_from(data)
    return (
        length + LENGTH_OVERHEAD_BYTES == size_bytes
        and (epoch, magic) == (leader_epoch, MAGIC)
        and bool(crc32c(data[ATTRIBUTES_AT:]) == crc)
    )


assert _FRONT.size == ATTRIBUTES_AT
assert CRC_AT + 4 == ATTRIBUTES_AT
