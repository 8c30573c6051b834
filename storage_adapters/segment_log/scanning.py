"""Scan of a segment entry by entry: at a start, without a footer, and for ``log dump``."""

from collections.abc import Iterator
from mmap import mmap
from typing import NamedTuple, cast

from storage_adapters.formats.bodies import (
    decode_bounds,
    decode_deletion,
    decode_introductions,
)
from storage_adapters.formats.damage import Damaged
from storage_adapters.formats.entry import (
    ENTRY_MAGIC,
    KIND_BATCH,
    KIND_BOUNDS,
    KIND_CLOSE,
    KIND_DELETE,
    KIND_PARTITION,
    EntryHeader,
    check_body,
    decode_entry_header,
    decode_targets,
)
from storage_adapters.formats.segment import (
    FORMAT_VERSION,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
)
from storage_adapters.segment_log.index import LiveIndex, LivePart


class Scan(NamedTuple):
    """Result of a scan: whole appends up to ``entries_end``, and the reason of its end.

    ``first_sequence`` and ``next_sequence`` are equal when there is no whole append.
    ``durable_sequence`` is the highest in an entry of the intact part. ``damage_at`` is the
    position of the bytes that are no valid entry; it is after ``entries_end`` when the last append
    is incomplete.
    """

    live: LiveIndex
    entries_end: int
    first_sequence: int
    next_sequence: int
    durable_sequence: int
    damage_at: int
    damage: str


def valid_entry(
    view: memoryview, at: int, header: SegmentHeader, expected_sequence: int | None
) -> EntryHeader:
    """Return the header of the entry at ``at``. Errors: ``Damaged`` unless all of it is valid."""
    entry = decode_entry_header(view, at, len(view), header.seed)
    if entry.incarnation != header.incarnation:
        raise Damaged(f"incarnation {entry.incarnation} in a segment of {header.incarnation}")
    if expected_sequence is None:
        if entry.sequence < header.first_sequence:
            raise Damaged(f"sequence {entry.sequence} is below the segment's first")
    elif entry.sequence != expected_sequence:
        raise Damaged(f"sequence {entry.sequence} where {expected_sequence} is due")
    check_body(view, at, entry)
    return entry


def scan_segment(
    view: memoryview,
    header: SegmentHeader,
    expected_sequence: int | None,
    *,
    upto_sequence: int | None = None,
) -> Scan:
    """Read all whole appends and index them. ``expected_sequence``: None when not known.

    With ``upto_sequence`` only those that end at that sequence or before it.
    """
    index = LiveIndex()
    at = entries_end = SEGMENT_HEADER_BYTES
    first = header.first_sequence if expected_sequence is None else expected_sequence
    next_sequence, durable = first, 0
    staged: list[tuple[int, EntryHeader]] = []
    while True:
        try:
            entry = valid_entry(view, at, header, expected_sequence)
            if entries_end == SEGMENT_HEADER_BYTES and not staged:
                first = next_sequence = entry.sequence
            if upto_sequence is not None and entry.sequence > upto_sequence:
                why = f"sequence {upto_sequence} was to be the last"
                return Scan(index, entries_end, first, next_sequence, durable, at, why)
            staged.append((at, entry))
            if entry.is_last:
                for position, part in staged:
                    apply_entry(index, view, position, part)
        except Damaged as error:
            return Scan(index, entries_end, first, next_sequence, durable, at, str(error))
        at += entry.size_bytes
        expected_sequence = entry.sequence + 1
        if entry.is_last:
            durable = max(durable, entry.durable_sequence)
            if entry.kind == KIND_CLOSE:
                durable = max(durable, entry.sequence - 1)  # all before it is synced
            entries_end, next_sequence = at, expected_sequence
            staged.clear()


def apply_entry(index: LiveIndex, view: memoryview, at: int, entry: EntryHeader) -> None:
    """Apply an entry to ``index``. Errors: ``Damaged`` when it contradicts the index."""
    body_at = at + entry.body_at
    body = view[body_at : body_at + entry.body_bytes]
    if entry.kind == KIND_BATCH:
        place = body_at + (entry.body_bytes << 32)
        span = entry.record_count + (entry.leader_epoch << 32)
        index.repeated_bytes += (entry.target_count - 1) * entry.body_bytes
        for partition_id, base_offset in decode_targets(view, at, entry.target_count):
            part = _known(index, partition_id)
            part.add(base_offset, entry.max_timestamp_unix_ms, place, span)
    elif entry.kind == KIND_PARTITION:
        for identity, start, end in decode_introductions(body):
            part = LivePart(identity.partition_id, start, end, identity)
            index.parts[identity.partition_id] = part
    elif entry.kind == KIND_BOUNDS:
        for partition_id, start, end in decode_bounds(body):
            part = _known(index, partition_id)
            part.start, part.end = max(part.start, start), max(part.end, end)
    elif entry.kind == KIND_DELETE:
        for partition_id in decode_deletion(body):
            part = index.parts.setdefault(partition_id, LivePart(partition_id, 0, 0, None))
            part.is_deleted = True
    elif entry.kind != KIND_CLOSE:
        raise Damaged(f"an entry of kind {entry.kind}, which format {FORMAT_VERSION} lacks")


def _known(index: LiveIndex, partition_id: int) -> LivePart:
    part = index.parts.get(partition_id)
    if part is None:
        raise Damaged(f"partition {partition_id} was not introduced in this segment")
    return part


def later_entries(
    view: memoryview, header: SegmentHeader, start: int
) -> Iterator[tuple[int, EntryHeader]]:
    """Yield position and header of all that looks like an entry of this segment from ``start`` on.

    Searches by magic and header CRC, so that it passes a bad length.
    """
    data = cast("mmap", view.obj)  # Made by ``loading.mapped``; searching needs no copy.
    at = data.find(ENTRY_MAGIC, start)
    while at >= 0:
        try:
            entry = decode_entry_header(view, at, len(view), header.seed)
        except Damaged:
            at = data.find(ENTRY_MAGIC, at + 1)
            continue
        yield at, entry
        at = data.find(ENTRY_MAGIC, at + entry.size_bytes)
