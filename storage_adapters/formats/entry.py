"""Entries of a log segment: a header, targets, a body (docs/formats.md, section 3).

The header's CRC-32C covers header and targets and continues from the segment's ``seed``. A
batch protects its own records with its CRC, of which the header keeps a copy; what lies outside
of a batch's CRC (base offset, length, leader epoch) stands in header and targets too, so every
byte is checked, none twice.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from gateway.model import (
    ATTRIBUTES_AT,
    CONTROL_MASK,
    LEADER_EPOCH_AT,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
    Buffer,
    is_abort_marker,
)
from gateway.model import HEADER_BYTES as BATCH_HEADER_BYTES
from storage_adapters.formats.damage import Damaged

ENTRY_MAGIC: Final = b"HGe1"
ENTRY_HEADER_BYTES: Final = 64
TARGET_BYTES: Final = 12

KIND_BATCH: Final = 1
KIND_PARTITION: Final = 2
KIND_BOUNDS: Final = 3
KIND_DELETE: Final = 4
KIND_CLOSE: Final = 5
# Kinds 16 to 31 are kept for transactions, 32 to 47 for settled segments.

KIND_NAMES: Final = {
    KIND_BATCH: "batch",
    KIND_PARTITION: "partition",
    KIND_BOUNDS: "bounds",
    KIND_DELETE: "delete",
    KIND_CLOSE: "close",
}

FLAG_LAST: Final = 0x0001  # the last entry of its append; an append without it never happened
FLAG_CONTROL: Final = 0x0002  # a control batch: the end of a transaction
FLAG_ABORT: Final = 0x0004  # beside FLAG_CONTROL: an aborted transaction's

# From LEADER_EPOCH_AT of a batch on: leader epoch, magic, CRC, attributes.
BATCH_PEEK: Final = struct.Struct(">iBIH")

_PREFIX: Final = struct.Struct("<4sI")
_FIELDS: Final = struct.Struct("<BBHIIIQIIQqiI")
_FIELDS_AND_TARGET: Final = struct.Struct("<BBHIIIQIIQqiIIq")
_TARGET: Final = struct.Struct("<Iq")
_BATCH_FRONT: Final = struct.Struct(">qiiBIH")
_NO_EPOCH: Final = -1


class EntryHeader(NamedTuple):
    """An entry's fixed part, in the order in which it is stored."""

    kind: int
    flags: int
    target_count: int
    body_bytes: int
    body_crc: int
    sequence: int
    incarnation: int
    record_count: int
    durable_sequence: int
    max_timestamp_unix_ms: int
    leader_epoch: int

    @property
    def is_last(self) -> bool:
        """Whether the append ends with this entry."""
        return bool(self.flags & FLAG_LAST)

    @property
    def is_abort(self) -> bool:
        """Whether the batch marks the end of an aborted transaction."""
        return bool(self.flags & FLAG_ABORT)

    @property
    def body_at(self) -> int:
        """Index at which the body begins, counted from the entry's first byte."""
        return ENTRY_HEADER_BYTES + TARGET_BYTES * self.target_count

    @property
    def size_bytes(self) -> int:
        """Size of the whole entry."""
        return self.body_at + self.body_bytes


def control_flags(batch: Buffer) -> int:
    """Return the flags of a control batch's entry, beside ``FLAG_LAST``."""
    return FLAG_CONTROL | FLAG_ABORT if is_abort_marker(batch) else FLAG_CONTROL


def encode_batch_front(  # noqa: PLR0913, PLR0917  # One call per batch on the hot path: no object.
    targets: Sequence[tuple[int, int]],
    batch_bytes: int,
    batch_crc: int,
    leader_epoch: int,
    record_count: int,
    max_timestamp_unix_ms: int,
    sequence: int,
    incarnation: int,
    durable_sequence: int,
    flags: int,
    seed: int,
) -> bytes:
    """Return header and targets of a batch's entry; the batch itself follows them on disk."""
    if len(targets) == 1:
        partition_id, base_offset = targets[0]
        fields = _FIELDS_AND_TARGET.pack(
            KIND_BATCH,
            0,
            flags,
            1,
            batch_bytes,
            batch_crc,
            sequence,
            incarnation,
            record_count,
            durable_sequence,
            max_timestamp_unix_ms,
            leader_epoch,
            0,
            partition_id,
            base_offset,
        )
    else:
        fields = _FIELDS.pack(
            KIND_BATCH,
            0,
            flags,
            len(targets),
            batch_bytes,
            batch_crc,
            sequence,
            incarnation,
            record_count,
            durable_sequence,
            max_timestamp_unix_ms,
            leader_epoch,
            0,
        ) + b"".join([_TARGET.pack(*target) for target in targets])
    return _PREFIX.pack(ENTRY_MAGIC, crc32c(fields, seed)) + fields


def encode_entry(  # noqa: PLR0913  # The fields of the header that a caller may choose.
    kind: int,
    body: bytes,
    *,
    sequence: int,
    incarnation: int,
    durable_sequence: int,
    flags: int,
    seed: int,
) -> bytes:
    """Encode a whole entry other than a batch: no targets, the body with its own CRC."""
    fields = _FIELDS.pack(
        kind,
        0,
        flags,
        0,
        len(body),
        crc32c(body),
        sequence,
        incarnation,
        0,
        durable_sequence,
        0,
        _NO_EPOCH,
        0,
    )
    return _PREFIX.pack(ENTRY_MAGIC, crc32c(fields, seed)) + fields + body


def decode_entry_header(data: Buffer, at: int, end: int, seed: int) -> EntryHeader:
    """Return the header at index ``at``, checked with its targets. ``end``: the data's end.

    Errors: ``Damaged``. The body is not checked, but it fits before ``end``.
    """
    if end - at < ENTRY_HEADER_BYTES:
        raise Damaged("the data ends within an entry header")
    magic, crc = _PREFIX.unpack_from(data, at)
    if magic != ENTRY_MAGIC:
        raise Damaged(f"magic is {bytes(magic)!r}, not {ENTRY_MAGIC!r}")
    kind, _, *fields, _ = _FIELDS.unpack_from(data, at + _PREFIX.size)
    header = EntryHeader(kind, *fields)
    body_at = at + ENTRY_HEADER_BYTES + TARGET_BYTES * header.target_count
    if body_at > end:
        raise Damaged(f"{header.target_count} targets do not fit what is left")
    if crc32c(data[at + _PREFIX.size : body_at], seed) != crc:
        raise Damaged("the CRC of the entry header does not match")
    if body_at + header.body_bytes > end:
        raise Damaged(f"a body of {header.body_bytes} bytes does not fit what is left")
    return header


def decode_targets(data: Buffer, at: int, count: int) -> tuple[tuple[int, int], ...]:
    """Return (partition id, base offset) of the ``count`` targets of the entry at ``at``."""
    start = at + ENTRY_HEADER_BYTES
    if count == 1:
        return (_TARGET.unpack_from(data, start),)
    return tuple(_TARGET.iter_unpack(data[start : start + count * TARGET_BYTES]))


def check_body(data: Buffer, at: int, header: EntryHeader) -> None:
    """Check the body of the entry at ``at`` with that header. Errors: ``Damaged``."""
    body_at = at + header.body_at
    body_end = body_at + header.body_bytes
    if header.kind != KIND_BATCH:
        if crc32c(data[body_at:body_end]) != header.body_crc:
            raise Damaged("the CRC of the body does not match")
        return
    if header.body_bytes < BATCH_HEADER_BYTES or not header.target_count:
        raise Damaged(f"a batch of {header.body_bytes} bytes, {header.target_count} targets")
    *front, attributes = _BATCH_FRONT.unpack_from(data, body_at)
    (_, base_offset) = _TARGET.unpack_from(data, at + ENTRY_HEADER_BYTES)
    length = header.body_bytes - LENGTH_OVERHEAD_BYTES
    if front != [base_offset, length, header.leader_epoch, MAGIC, header.body_crc]:
        raise Damaged("the batch's first bytes contradict the entry header")
    if crc32c(data[body_at + ATTRIBUTES_AT : body_end]) != header.body_crc:
        raise Damaged("the CRC of the batch does not match")
    flags = control_flags(data[body_at:body_end]) if attributes & CONTROL_MASK else 0
    if header.flags & (FLAG_CONTROL | FLAG_ABORT) != flags:
        raise Damaged("the entry's flags contradict the batch")


assert _PREFIX.size + _FIELDS.size == ENTRY_HEADER_BYTES
assert LEADER_EPOCH_AT + 4 == MAGIC_AT
