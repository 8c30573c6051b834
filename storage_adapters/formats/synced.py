"""Mark of the last synced sequence, for readers outside the node (docs/formats.md, section 1)."""

import struct
from typing import Final, NamedTuple
from uuid import UUID

from crc32c import crc32c

from gateway.model import Buffer
from storage_adapters.formats.damage import Damaged

MARK_MAGIC: Final = b"HGSY"
MARK_BYTES: Final = 32

_PREFIX: Final = struct.Struct("<4sI")
_FIELDS: Final = struct.Struct("<16sQ")


class SyncedMark(NamedTuple):
    """Last synced sequence: all entries of that data directory up to it are on the disk."""

    data_uuid: UUID
    sequence: int


def encode_mark(mark: SyncedMark) -> bytes:
    """Encode the mark's 32 bytes."""
    fields = _FIELDS.pack(mark.data_uuid.bytes, mark.sequence)
    return _PREFIX.pack(MARK_MAGIC, crc32c(fields)) + fields


def decode_mark(data: Buffer) -> SyncedMark:
    """Decode a mark. Errors: ``Damaged``, also for one that was half written.

    >>> decode_mark(encode_mark(SyncedMark(UUID(int=1), 7))).sequence
    7
    """
    if len(data) != MARK_BYTES:
        raise Damaged(f"{len(data)} bytes are no mark")
    magic, crc = _PREFIX.unpack_from(data)
    fields = bytes(data[_PREFIX.size :])
    if magic != MARK_MAGIC or crc32c(fields) != crc:
        raise Damaged("the mark's magic or CRC does not match")
    data_uuid, sequence = _FIELDS.unpack(fields)
    return SyncedMark(UUID(bytes=data_uuid), sequence)


assert _PREFIX.size + _FIELDS.size == MARK_BYTES
