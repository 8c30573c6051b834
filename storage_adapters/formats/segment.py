"""Segment header, the first 64 bytes of a segment (docs/formats.md, section 2)."""

import struct
from typing import Final, NamedTuple
from uuid import UUID

from crc32c import crc32c

from gateway.model import Buffer
from storage_adapters.formats.damage import Damaged, TooNew
from storage_adapters.formats.log_ranges import log_of

FORMAT_VERSION: Final = 3  # of objects of further logs: earlier versions know of one log only
ONE_LOG_VERSION: Final = 2  # of all else; 1, which lacks control entries, is read too
SEGMENT_MAGIC: Final = b"HGSG"
SEGMENT_HEADER_BYTES: Final = 64

KIND_LOG: Final = 1  # entries of all partitions, in the order of their sequences
KIND_SETTLED: Final = 2  # batches alone, those of a partition one behind the other
KIND_OBJECT: Final = 3  # entries of all partitions in S3, sorted by partition
_KINDS: Final = frozenset({KIND_LOG, KIND_SETTLED, KIND_OBJECT})

_PREFIX: Final = struct.Struct("<4sI")
_FIELDS: Final = struct.Struct("<HBBI16sIIQIIq")


class SegmentHeader(NamedTuple):
    """Kind, numbers and origin of a segment.

    ``previous``: the number of the segment before it, 0 for the first; of a log object in S3
    how many sequences its owner has given before it. ``first_sequence``: no entry of the
    segment has a lower one (a segment is prepared before its first entry is known).
    ``incarnation``: all entries of a segment are of one. ``seed``: the header's own CRC-32C;
    entries continue from it, so that bytes that were copied from another segment or another
    data directory are never taken for entries of this one.
    """

    data_uuid: UUID
    number: int
    previous: int
    first_sequence: int
    incarnation: int
    created_unix_ms: int
    seed: int
    kind: int = KIND_LOG


def encode_segment_header(  # noqa: PLR0913  # The header's fields, by name.
    *,
    data_uuid: UUID,
    number: int,
    previous: int,
    first_sequence: int,
    incarnation: int,
    created_unix_ms: int,
    kind: int = KIND_LOG,
) -> bytes:
    """Encode the 64 bytes of the header."""
    fields = _FIELDS.pack(
        FORMAT_VERSION if log_of(first_sequence) else ONE_LOG_VERSION,
        kind,
        0,
        SEGMENT_HEADER_BYTES,
        data_uuid.bytes,
        number,
        previous,
        first_sequence,
        incarnation,
        0,
        created_unix_ms,
    )
    return _PREFIX.pack(SEGMENT_MAGIC, crc32c(fields)) + fields


def decode_segment_header(data: Buffer) -> SegmentHeader:
    """Decode the first 64 bytes of a segment.

    Errors: ``Damaged``; ``TooNew`` when the header is intact but of a later format.
    """
    if len(data) < SEGMENT_HEADER_BYTES:
        raise Damaged(f"{len(data)} bytes are less than a segment header")
    magic, crc = _PREFIX.unpack_from(data)
    if magic != SEGMENT_MAGIC:
        raise Damaged(f"magic is {bytes(magic)!r}, not {SEGMENT_MAGIC!r}")
    fields = bytes(data[_PREFIX.size : SEGMENT_HEADER_BYTES])
    if crc32c(fields) != crc:
        raise Damaged("the CRC of the segment header does not match")
    version, kind, _, _, uuid, *places, incarnation, _, created = _FIELDS.unpack(fields)
    if version > FORMAT_VERSION or kind not in _KINDS:
        raise TooNew(f"format {version}, kind {kind}; this is format {FORMAT_VERSION}")
    return SegmentHeader._make((UUID(bytes=uuid), *places, incarnation, created, crc, kind))
