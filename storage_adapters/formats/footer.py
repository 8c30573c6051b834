"""Footer of a closed segment: the positions of its batches (docs/formats.md, section 5).

Rows of batches sorted by partition and offset, a table of partitions sorted by id, their
identities, and a trailer with CRCs, which is the last thing in the file. Made to be mapped: a
reader bisects in place and decodes only what it looks at. WAL segment, settled segment and S3
object share it.
"""

import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from gateway.model import LAST_OFFSET_DELTA_AT, LEADER_EPOCH_AT, Buffer
from storage_adapters.formats.bodies import (
    Introduction,
    decode_introduction,
    introduction_end,
)
from storage_adapters.formats.damage import Damaged, TooNew

FORMAT_VERSION: Final = 2  # of what is written; 1 is read too
FOOTER_MAGIC: Final = b"HGFT"
TRAILER_BYTES: Final = 96
ROW_BYTES: Final = 32
TABLE_ROW_BYTES: Final = 64
ID_BYTES: Final = 4
ALIGNMENT_BYTES: Final = 8

# A row is four signed 64-bit integers, the same in memory and on disk:
#   base offset | highest timestamp so far in this partition and segment |
#   position + size << 32 | record count + leader epoch << 32
ROW_STRIDE: Final = 4
LOW_32: Final = 0xFFFF_FFFF
HIGH_SHIFT: Final = 32  # shift of the high half

FLAG_DELETED: Final = 0x0001
NO_IDENTITY: Final = 0xFFFF_FFFF
NO_TIMESTAMP: Final = -(1 << 63)
NO_EPOCH: Final = -1

_INT32: Final = struct.Struct(">i")  # of a batch, which is big-endian
_TABLE_ROW: Final = struct.Struct("<IIqqqqqiiII")
_TRAILER_PREFIX: Final = struct.Struct("<4sI")
_TRAILER_FIELDS: Final = struct.Struct("<IIQQQIIQQQIHHqQ")

Rows = Sequence[int]  # array('q') of a live segment, or a memoryview of a footer


class FooterPart(NamedTuple):
    """Input of ``encode_footer`` for one partition. ``identity`` is None after a bare deletion."""

    partition_id: int
    start: int
    end: int
    is_deleted: bool
    introduction: bytes | None
    size_bytes: int
    rows: "array[int]"


class Part(NamedTuple):
    """One row of a footer's table: a partition's bounds and rows in the segment.

    ``start`` and ``end`` are the partition's bounds when the segment ended; in a settled
    segment they are the offsets that it covers, those that were compacted away included.
    ``first_offset`` is that of the first batch here, ``end`` without batches.
    """

    partition_id: int
    first_row: int
    row_count: int
    start: int
    end: int
    first_offset: int
    max_timestamp_unix_ms: int
    size_bytes: int
    first_epoch: int
    last_epoch: int
    is_deleted: bool
    identity_at: int


class Trailer(NamedTuple):
    """The last 96 bytes of a segment. Positions count from the segment's first byte.

    ``repeated_bytes``: bytes of batches in all rows that point to a batch of an earlier row.
    """

    footer_crc: int
    entries_end: int
    footer_at: int
    row_count: int
    partition_count: int
    identities_bytes: int
    number: int
    first_sequence: int
    next_sequence: int
    incarnation: int
    max_timestamp_unix_ms: int
    repeated_bytes: int

    @property
    def footer_bytes(self) -> int:
        """Return the size of a footer without its trailer."""
        return (
            self.row_count * ROW_BYTES
            + self.partition_count * TABLE_ROW_BYTES
            + aligned(self.partition_count * ID_BYTES)
            + aligned(self.identities_bytes)
        )


def span_of(batch: Buffer) -> int:
    """Return a batch row's last field: offset count, holes included, + leader epoch << 32."""
    (leader_epoch,) = _INT32.unpack_from(batch, LEADER_EPOCH_AT)
    (last_delta,) = _INT32.unpack_from(batch, LAST_OFFSET_DELTA_AT)
    span: int = last_delta + 1 + (leader_epoch << HIGH_SHIFT)
    return span


def aligned(position: int) -> int:
    """Round ``position`` up to the next multiple of eight."""
    return -(-position // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def encode_footer(  # noqa: PLR0913  # What the trailer says, once per segment.
    parts: Iterable[FooterPart],
    *,
    number: int,
    entries_end: int,
    first_sequence: int,
    next_sequence: int,
    incarnation: int,
    repeated_bytes: int = 0,
) -> list[bytes]:
    """Encode footer and trailer as buffers to be written from ``entries_end`` on.

    The rows of each part are in order of offset. ``next_sequence`` is one past the last
    entry's. ``repeated_bytes``: see ``Trailer``.
    """
    rows, table, ids, identities = [], [], array("I"), bytearray()
    first_row, max_timestamp = 0, NO_TIMESTAMP
    for part in sorted(parts):
        row_count = len(part.rows) // ROW_STRIDE
        rows.append(_little_endian(part.rows))
        table.append(_encode_part(part, first_row, len(identities)))
        ids.append(part.partition_id)
        identities += part.introduction or b""
        if row_count:
            max_timestamp = max(max_timestamp, part.rows[-3])
        first_row += row_count
    padding = bytes(aligned(entries_end) - entries_end)
    body = [*rows, *table, _padded(_little_endian(ids)), _padded(bytes(identities))]
    crc = 0
    for piece in body:
        crc = crc32c(piece, crc)
    fields = _TRAILER_FIELDS.pack(
        crc,
        0,
        entries_end,
        aligned(entries_end),
        first_row,
        len(ids),
        len(identities),
        number,
        first_sequence,
        next_sequence,
        incarnation,
        FORMAT_VERSION,
        0,
        max_timestamp,
        repeated_bytes,
    )
    return [padding, *body, _TRAILER_PREFIX.pack(FOOTER_MAGIC, crc32c(fields)) + fields]


def _encode_part(part: FooterPart, first_row: int, identity_at: int) -> bytes:
    rows = part.rows
    return _TABLE_ROW.pack(
        first_row,
        len(rows) // ROW_STRIDE,
        part.start,
        part.end,
        rows[0] if rows else part.end,
        rows[-3] if rows else NO_TIMESTAMP,
        part.size_bytes,
        rows[3] >> 32 if rows else NO_EPOCH,
        rows[-1] >> 32 if rows else NO_EPOCH,
        FLAG_DELETED if part.is_deleted else 0,
        NO_IDENTITY if part.introduction is None else identity_at,
    )


def _padded(data: bytes) -> bytes:
    return data + bytes(aligned(len(data)) - len(data))


def _little_endian(numbers: "array[int]") -> bytes:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


def decode_trailer(data: Buffer) -> Trailer:
    """Decode the last 96 bytes of a segment. Errors: ``Damaged``, ``TooNew``."""
    if len(data) < TRAILER_BYTES:
        raise Damaged("too short for a trailer")
    at = len(data) - TRAILER_BYTES
    magic, crc = _TRAILER_PREFIX.unpack_from(data, at)
    if magic != FOOTER_MAGIC:
        raise Damaged("no footer at the end of the file")
    fields = bytes(data[at + _TRAILER_PREFIX.size :])
    if crc32c(fields) != crc:
        raise Damaged("the CRC of the footer's trailer does not match")
    (footer_crc, _, *numbers, incarnation, version, _, max_timestamp, repeated_bytes) = (
        _TRAILER_FIELDS.unpack(fields)
    )
    if version > FORMAT_VERSION:
        raise TooNew(f"footer of format {version}; this is format {FORMAT_VERSION}")
    return Trailer._make((footer_crc, *numbers, incarnation, max_timestamp, repeated_bytes))


class Footer:
    """View of an encoded footer: ``view`` is its bytes without the trailer, often mapped."""

    __slots__ = ("_identities_at", "_ids", "_table_at", "_view", "rows", "trailer")

    def __init__(self, view: memoryview, trailer: Trailer) -> None:
        if len(view) != trailer.footer_bytes:
            raise Damaged(f"footer of {len(view)} bytes, not {trailer.footer_bytes}")
        self.trailer = trailer
        self._view = view
        self._table_at = trailer.row_count * ROW_BYTES
        ids_at = self._table_at + trailer.partition_count * TABLE_ROW_BYTES
        ids_end = ids_at + trailer.partition_count * ID_BYTES
        self._identities_at = ids_at + aligned(trailer.partition_count * ID_BYTES)
        self.rows: Rows = view[: self._table_at].cast("q")
        self._ids = view[ids_at:ids_end].cast("I")

    def check(self) -> None:
        """Compare the CRC over the whole footer. Errors: ``Damaged``."""
        if crc32c(self._view) != self.trailer.footer_crc:
            raise Damaged("the CRC of the footer does not match")

    def find(self, partition_id: int) -> Part | None:
        """Return the partition's row of the table, or None."""
        index = bisect_left(self._ids, partition_id)
        if index == len(self._ids) or self._ids[index] != partition_id:
            return None
        return self.part(index)

    def part(self, index: int) -> Part:
        """Return row ``index`` of the table, which is sorted by partition id."""
        at = self._table_at + index * TABLE_ROW_BYTES
        first_row, row_count, *numbers, flags, identity_at = _TABLE_ROW.unpack_from(
            self._view, at
        )
        deleted = bool(flags & FLAG_DELETED)
        partition_id = self._ids[index]
        return Part._make((partition_id, first_row, row_count, *numbers, deleted, identity_at))

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[Part]:
        return map(self.part, range(len(self._ids)))

    def introduction(self, part: Part) -> Introduction | None:
        """Return the partition's introduction, or None when only its deletion is known here."""
        if part.identity_at == NO_IDENTITY:
            return None
        identities = self._view[self._identities_at :]
        introduction, _ = decode_introduction(identities, part.identity_at)
        return introduction

    def introduction_bytes(self, part: Part) -> bytes | None:
        """Return the introduction in its encoded form, to be copied."""
        if part.identity_at == NO_IDENTITY:
            return None
        at = self._identities_at + part.identity_at
        return bytes(self._view[at : introduction_end(self._view, at)])


assert _TABLE_ROW.size == TABLE_ROW_BYTES
assert _TRAILER_PREFIX.size + _TRAILER_FIELDS.size == TRAILER_BYTES
