"""Headers and footers of objects, as a recovery evaluates them."""

from typing import Final, NamedTuple

from gateway.model import PartitionIdentity
from storage_adapters.formats.damage import Damaged
from storage_adapters.formats.footer import (
    HIGH_SHIFT,
    LOW_32,
    NO_TIMESTAMP,
    ROW_STRIDE,
    TRAILER_BYTES,
    Footer,
    Part,
    decode_trailer,
)
from storage_adapters.formats.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
)
from storage_adapters.s3.bucket import Bucket, ObjectStat
from storage_adapters.s3.change import ObjectPart
from storage_adapters.s3.recovery_chains import SeenObject
from storage_adapters.s3.recovery_plan import FooterFacts
from storage_adapters.s3.state import KIND_LOG, Extent, StoredObject

END_BYTES: Final = 262_144  # first read at the end of an object; most footers fit it


class _PartitionRecord(NamedTuple):
    """One footer's record of a partition, without batches."""

    partition_id: int
    start: int
    is_deleted: bool
    identity: PartitionIdentity | None


class ObjectEnds(NamedTuple):
    """An object's header and footer."""

    header: SegmentHeader
    footer: Footer


class EvaluatedObject(NamedTuple):
    """Header and footer of one object, evaluated."""

    header: SegmentHeader
    seen: SeenObject
    records: list[_PartitionRecord]


def read_ends(bucket: Bucket, key: str) -> ObjectEnds:
    """Return the checked header and footer of an object. Errors: ``Damaged``, ``TooNew``."""
    data, size_bytes = bucket.get_end(key, END_BYTES)
    trailer = decode_trailer(data)
    at = trailer.footer_at
    if not SEGMENT_HEADER_BYTES <= at <= size_bytes - TRAILER_BYTES:
        raise Damaged("its footer begins where none can be")
    start = size_bytes - len(data)
    if at < start:
        data, start = bucket.get(key, at, size_bytes), at
    footer = Footer(memoryview(data)[at - start : -TRAILER_BYTES], trailer)
    footer.check()
    head = data if not start else bucket.get(key, 0, SEGMENT_HEADER_BYTES)
    return ObjectEnds(decode_segment_header(head), footer)


def evaluate(header: SegmentHeader, footer: Footer, stat: ObjectStat) -> EvaluatedObject:
    """Return the extents that an object covers, and its records of partitions."""
    is_log = header.kind == KIND_LOG
    parts: list[ObjectPart] = []
    records: list[_PartitionRecord] = []
    for part in footer:
        extent = _extent_of(footer, part, header.number, is_log=is_log)
        if extent is not None:
            parts.append(ObjectPart(part.partition_id, extent))
        introduction = footer.introduction(part)
        identity = None if introduction is None else introduction.identity
        start = part.start
        if extent is not None and not is_log:  # there it is the beginning of the extent
            start = 0 if introduction is None else introduction.start
        records.append(_PartitionRecord(part.partition_id, start, part.is_deleted, identity))
    stored = StoredObject(
        header.number,
        header.kind,
        header.incarnation,
        footer.trailer.first_sequence,
        footer.trailer.next_sequence,
        stat.size_bytes,
        stat.etag,
        header.created_unix_ms,
        frozenset([part.partition_id for part in parts]),
    )
    return EvaluatedObject(header, SeenObject(stored, parts), records)


def _extent_of(footer: Footer, part: Part, number: int, *, is_log: bool) -> Extent | None:
    """Return the offsets that an object covers; None when it only records bounds."""
    rows, first_row, row_count = footer.rows, part.first_row, part.row_count
    last = (first_row + row_count - 1) * ROW_STRIDE
    first, end = part.start, part.end
    if is_log and row_count:
        first, end = part.first_offset, rows[last] + (rows[last + 3] & LOW_32)
    elif is_log or first == end:
        return None
    return Extent(
        first,
        end,
        number,
        first_row,
        row_count,
        part.size_bytes,
        part.max_timestamp_unix_ms if row_count else NO_TIMESTAMP,
        _epochs_of(footer, part),
    )


def _epochs_of(footer: Footer, part: Part) -> tuple[tuple[int, int], ...]:
    """Return each leader epoch with the base offset of its first batch."""
    rows = footer.rows
    if not part.row_count:
        return ()
    if part.first_epoch == part.last_epoch:  # the common case: no row is read
        return ((part.first_epoch, part.first_offset),)
    epochs: list[tuple[int, int]] = []
    for row in range(part.first_row, part.first_row + part.row_count):
        epoch = rows[row * ROW_STRIDE + 3] >> HIGH_SHIFT
        if not epochs or epochs[-1][0] != epoch:
            epochs.append((epoch, rows[row * ROW_STRIDE]))
    return tuple(epochs)


def add_facts(facts: FooterFacts, found: EvaluatedObject) -> None:
    """Add the records of an object."""
    if (header := found.header).kind == KIND_LOG:
        facts.note_owner(header.incarnation, header.first_sequence - header.previous)
    for partition_id, start, is_deleted, identity in found.records:
        facts.note(partition_id, start)
        if is_deleted:
            facts.deleted.add(partition_id)
        if identity is not None:
            facts.identities.setdefault(partition_id, identity)
