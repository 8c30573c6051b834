"""Log object: appends to many partitions, as entries sorted by partition and a footer.

Pure: bytes in, bytes out; runs in a thread. docs/formats.md, section 11.
"""

from array import array
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple
from uuid import UUID

from gateway.model import CONTROL_MASK, HEADER_BYTES, LEADER_EPOCH_AT, Buffer
from gateway.storage import Entry, StoredHeader, Target
from storage_adapters.formats.damage import Damaged
from storage_adapters.formats.entry import (
    BATCH_PEEK,
    FLAG_LAST,
    KIND_BATCH,
    control_flags,
    decode_entry_header,
    decode_targets,
    encode_batch_front,
)
from storage_adapters.formats.footer import (
    HIGH_SHIFT,
    LOW_32,
    NO_TIMESTAMP,
    ROW_STRIDE,
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
from storage_adapters.s3.pieces import Pieces
from storage_adapters.s3.state import KIND_LOG, Extent

PREVIOUS_MAX: Final = (1 << 32) - 1

_PARTITION: Final = itemgetter(0)


class ObjectHeader(NamedTuple):
    """Header fields of an object to be built.

    ``previous``: of a log object, how many sequences its owner has given before it; at most
    ``PREVIOUS_MAX``.
    """

    data_uuid: UUID
    number: int
    epoch: int
    created_unix_ms: int
    previous: int = 0


class Part(NamedTuple):
    """A partition's footer part: its bounds after the object's appends."""

    start: int
    end: int
    is_deleted: bool
    introduction: bytes | None


class Appends(NamedTuple):
    """Entries in order of sequence. ``last``: the indexes of the appends' last entries."""

    entries: Sequence[Entry]
    last: frozenset[int]
    first_sequence: int

    @property
    def next_sequence(self) -> int:
        """One past the last entry's sequence."""
        return self.first_sequence + len(self.entries)


class LogObject(NamedTuple):
    """A built object: its body, the extent of each partition, and its footer's rows.

    ``body`` refers to the appends' large batches without copying them.
    """

    body: list[Buffer]
    parts: list[ObjectPart]
    rows: "array[int]"

    @property
    def size_bytes(self) -> int:
        """Size of the object."""
        return sum(map(len, self.body))

    @property
    def data(self) -> bytes:
        """Return the object in one piece."""
        return b"".join(self.body)


_Row = tuple[int, int, int, int, int]  # partition id, base offset, timestamp, place, span


def build_log_object(
    place: ObjectHeader, appends: Appends, parts: Mapping[int, Part]
) -> LogObject:
    """Build the object that holds ``appends``.

    ``parts`` has all partitions of the entries, and others whose bounds alone are recorded.
    """
    header = encode_segment_header(
        data_uuid=place.data_uuid,
        number=place.number,
        previous=place.previous,
        first_sequence=appends.first_sequence,
        incarnation=place.epoch,
        created_unix_ms=place.created_unix_ms,
        kind=KIND_LOG,
    )
    pieces = Pieces()
    pieces.add(header)
    seed = decode_segment_header(header).seed
    found: list[_Row] = []
    entries_end = _add_entries(appends, pieces, found, seed=seed, epoch=place.epoch)
    found.sort()
    footer_parts, held, rows = _parts_of(found, parts, place.number)
    for data in encode_footer(
        footer_parts,
        number=place.number,
        entries_end=entries_end,
        first_sequence=appends.first_sequence,
        next_sequence=appends.next_sequence,
        incarnation=place.epoch,
        repeated_bytes=_repeated_bytes(appends.entries),
    ):
        pieces.add(data)
    return LogObject(pieces.finish(), held, rows)


def _repeated_bytes(entries: Sequence[Entry]) -> int:
    return sum([(len(one.targets) - 1) * len(one.batch) for one in entries])


def _add_entries(
    appends: Appends, pieces: Pieces, rows: list[_Row], *, seed: int, epoch: int
) -> int:
    """Add the entries, sorted by partition, and a row for each target; return their end."""
    entries, last, first_sequence = appends
    position = SEGMENT_HEADER_BYTES
    durable_sequence = first_sequence - 1  # earlier sequences are committed before
    for index in sorted(range(len(entries)), key=lambda i: entries[i].targets[0]):
        targets, batch, record_count, timestamp_unix_ms = entries[index]
        leader_epoch, _, batch_crc, attributes = BATCH_PEEK.unpack_from(batch, LEADER_EPOCH_AT)
        flags = FLAG_LAST if index in last else 0
        if attributes & CONTROL_MASK:
            flags |= control_flags(batch)
        front = encode_batch_front(
            targets,
            len(batch),
            batch_crc,
            leader_epoch,
            record_count,
            timestamp_unix_ms,
            first_sequence + index,
            epoch,
            durable_sequence,
            flags,
            seed,
        )
        pieces.add(front)
        pieces.add(batch)
        position += len(front)
        at = position + (len(batch) << HIGH_SHIFT)
        position += len(batch)
        span = record_count + (leader_epoch << HIGH_SHIFT)
        for partition_id, base_offset in targets:
            rows.append((partition_id, base_offset, timestamp_unix_ms, at, span))
    return position


def _parts_of(
    found: Sequence[_Row], parts: Mapping[int, Part], number: int
) -> tuple[list[FooterPart], list[ObjectPart], "array[int]"]:
    """Return the footer's parts, their extents for the index, and all rows."""
    rows = array("q")
    held: list[ObjectPart] = []
    footer_parts: dict[int, FooterPart] = {}
    for partition_id, of_partition in groupby(found, key=_PARTITION):
        own = array("q")
        size_bytes, highest = 0, NO_TIMESTAMP
        epochs: list[tuple[int, int]] = []
        for _, base_offset, timestamp_unix_ms, at, span in of_partition:
            highest = max(highest, timestamp_unix_ms)
            own.extend((base_offset, highest, at, span))
            size_bytes += at >> HIGH_SHIFT
            if not epochs or epochs[-1][0] != span >> HIGH_SHIFT:
                epochs.append((span >> HIGH_SHIFT, base_offset))
        first_row, row_count = len(rows) // ROW_STRIDE, len(own) // ROW_STRIDE
        end = own[-ROW_STRIDE] + (own[-1] & LOW_32)
        extent = Extent(
            own[0], end, number, first_row, row_count, size_bytes, highest, tuple(epochs)
        )
        held.append(ObjectPart(partition_id, extent))
        footer_parts[partition_id] = _footer_part(
            partition_id, parts[partition_id], own, size_bytes
        )
        rows += own
    for partition_id, part in parts.items():
        if partition_id not in footer_parts:
            footer_parts[partition_id] = _footer_part(partition_id, part, array("q"), 0)
    return list(footer_parts.values()), held, rows


def _footer_part(
    partition_id: int, part: Part, rows: "array[int]", size_bytes: int
) -> FooterPart:
    return FooterPart(
        partition_id,
        part.start,
        part.end,
        part.is_deleted,
        part.introduction,
        size_bytes,
        rows,
    )


def headers_of(data: Buffer, from_sequence: int) -> list[StoredHeader]:
    """Return the headers of a log object for ``StorageAdapter.scan``. Errors: ``Damaged``."""
    view = memoryview(data)
    header, trailer = decode_segment_header(view), decode_trailer(view)
    if header.kind != KIND_LOG:
        raise Damaged("this object holds no entries")
    found: list[StoredHeader] = []
    at = SEGMENT_HEADER_BYTES
    while at < trailer.entries_end:
        entry = decode_entry_header(view, at, trailer.entries_end, header.seed)
        if entry.kind == KIND_BATCH and entry.sequence >= from_sequence:
            body_at = at + entry.body_at
            targets = tuple(map(Target._make, decode_targets(view, at, entry.target_count)))
            stored = bytes(view[body_at : body_at + HEADER_BYTES])
            found.append(StoredHeader(entry.sequence, targets, stored, entry.is_abort))
        at += entry.size_bytes
    return sorted(found)
