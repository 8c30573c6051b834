"""Control batches that end a transaction in a partition: commit and abort markers (KIP-98).

A marker is a batch of 78 bytes and one offset: its attributes say transactional and control, its
producer id and epoch say whose transaction has ended, and its single record says how, and in which
epoch of the transaction coordinator. The bytes are those of Apache Kafka's
``MemoryRecords.withEndTransactionMarker``.
"""

import struct
from typing import Final, NamedTuple

from crc32c import crc32c

from gateway.errors import CorruptBatch
from gateway.model import (
    ATTRIBUTES_AT,
    CONTROL_MASK,
    HEADER_BYTES,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
    MARKER_ABORT,
    TRANSACTIONAL_MASK,
    Buffer,
)

MARKER_COMMIT: Final = 1
MARKER_BYTES: Final = 78
NO_SEQUENCE: Final = -1

_PREFIX: Final = struct.Struct(">qiibI")  # outside of the CRC: up to the CRC itself
_COVERED: Final = struct.Struct(">hiqqqhii")  # the rest of the header, which the CRC covers
# Length 16, attributes, two deltas, key of 4 bytes: version and type, value of 6 bytes: version and
# coordinator epoch, no headers. Lengths are zigzag varints.
_RECORD: Final = struct.Struct(">BBBBBhhBhiB")
_VERSION: Final = 0


class Marker(NamedTuple):
    """End of a producer's transaction in one partition.

    ``coordinator_epoch``: of the transaction coordinator that decided; -1 if it is unknown.
    """

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int = 0


def encode_marker(marker: Marker, timestamp_unix_ms: int) -> bytearray:
    """Return the control batch of a marker, at offset 0 and without a leader epoch.

    >>> encode_marker(Marker(7, 1, is_commit=True, coordinator_epoch=3), 0)[-17:].hex()
    '2000000008000000010c00000000000300'
    """
    kind = MARKER_COMMIT if marker.is_commit else MARKER_ABORT
    covered = _COVERED.pack(
        TRANSACTIONAL_MASK | CONTROL_MASK,
        0,
        timestamp_unix_ms,
        timestamp_unix_ms,
        marker.producer_id,
        marker.producer_epoch,
        NO_SEQUENCE,
        1,
    ) + _RECORD.pack(32, 0, 0, 0, 8, _VERSION, kind, 12, _VERSION, marker.coordinator_epoch, 0)
    length = MARKER_BYTES - LENGTH_OVERHEAD_BYTES
    return bytearray(_PREFIX.pack(0, length, 0, MAGIC, crc32c(covered)) + covered)


def decode_marker(batch: Buffer) -> Marker:
    """Return the marker in a control batch.

    Error: ``CorruptBatch`` for a batch that is none, or one of another type or version.
    """
    if len(batch) != MARKER_BYTES:
        msg = f"a marker has {MARKER_BYTES} bytes, not {len(batch)}"
        raise CorruptBatch(msg)
    attributes, *_, producer_id, epoch, _, _ = _COVERED.unpack_from(batch, ATTRIBUTES_AT)
    *_, kind, _, _, coordinator_epoch, _ = _RECORD.unpack_from(batch, HEADER_BYTES)
    if not attributes & CONTROL_MASK or kind not in {MARKER_ABORT, MARKER_COMMIT}:
        msg = f"a control batch of type {kind} ends no transaction"
        raise CorruptBatch(msg)
    return Marker(producer_id, epoch, kind == MARKER_COMMIT, coordinator_epoch)
