"""A batch with fewer records: all that its header says of the others stays."""

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from crc32c import crc32c

from features.compaction.record_slices import TIMESTAMP_DELTA, RecordSlice, encode_varint
from gateway.model import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    Buffer,
)

DELETE_HORIZON_MASK: Final = 0x40  # the base timestamp is a deadline (KIP-534)
NO_TIMESTAMP: Final = -1

_PREFIX: Final = struct.Struct(">qiibI")  # outside of the CRC: up to the CRC itself
_COVERED: Final = struct.Struct(">hiqqqhii")  # the rest of the header, which the CRC covers


class Codec(NamedTuple):
    """Compression of a batch's records. ``decompress`` is bounded; its error: ``CorruptBatch``."""

    decompress: Callable[[int, bytes], bytes]
    compress: Callable[[int, bytes], bytes]


def rebuild(
    header: BatchHeader,
    data: bytes,
    kept: list[RecordSlice],
    codec: Codec,
    *,
    horizon_unix_ms: int | None,
) -> bytes:
    """Return the batch with only the ``kept`` records, of which there is at least one.

    With a horizon, that is the deadline of its tombstones. Errors: ``OverflowError`` and
    ``struct.error`` for timestamps that cannot be written.
    """
    base_unix_ms = header.base_timestamp_unix_ms
    is_append_time = bool(header.attributes & TIMESTAMP_TYPE_MASK)
    attributes = header.attributes
    new_base_unix_ms = base_unix_ms
    if horizon_unix_ms is not None:
        attributes |= DELETE_HORIZON_MASK
        new_base_unix_ms = horizon_unix_ms
    elif not is_append_time and not attributes & DELETE_HORIZON_MASK:
        new_base_unix_ms = base_unix_ms + kept[0][TIMESTAMP_DELTA]  # that of the first record
    body = _join(data, kept, base_unix_ms - new_base_unix_ms)
    max_unix_ms = header.max_timestamp_unix_ms
    if not is_append_time:
        max_unix_ms = base_unix_ms + max(record[TIMESTAMP_DELTA] for record in kept)
    return _pack(
        header._replace(
            attributes=attributes,
            base_timestamp_unix_ms=new_base_unix_ms,
            max_timestamp_unix_ms=max_unix_ms,
            record_count=len(kept),
        ),
        codec.compress(attributes & COMPRESSION_MASK, body),
    )


def without_records(header: BatchHeader) -> bytes:
    """Return an empty batch with the offsets, the producer and the sequence of another one."""
    attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_MASK)
    return _pack(
        header._replace(
            attributes=attributes,
            base_timestamp_unix_ms=NO_TIMESTAMP,
            max_timestamp_unix_ms=NO_TIMESTAMP,  # so that no search by time ends here
            record_count=0,
        ),
        b"",
    )


def with_horizon(batch: Buffer, header: BatchHeader, horizon_unix_ms: int) -> bytes:
    """Return a marker whose base timestamp is its deadline; its record goes with it then."""
    marked = header._replace(
        attributes=header.attributes | DELETE_HORIZON_MASK,
        base_timestamp_unix_ms=horizon_unix_ms,
    )
    return _pack(marked, bytes(memoryview(batch)[HEADER_BYTES : header.size_bytes]))


def _join(data: bytes, kept: list[RecordSlice], shift_ms: int) -> bytes:
    """Return the records one after another, ``shift_ms`` added to their timestamps' deltas."""
    if not shift_ms:
        return b"".join([data[start:end] for start, _, end, *_ in kept])
    parts: list[bytes] = []
    for _, rest, end, timestamp_delta, *_ in kept:
        timestamp = encode_varint(timestamp_delta + shift_ms)
        # One byte of attributes, of which none is defined, comes before the timestamp.
        parts += (
            encode_varint(1 + len(timestamp) + end - rest),
            b"\x00",
            timestamp,
            data[rest:end],
        )
    return b"".join(parts)


def _pack(header: BatchHeader, records: bytes) -> bytes:
    """Return a batch of that header, its length and CRC made right."""
    covered = (
        _COVERED.pack(
            header.attributes,
            header.last_offset_delta,
            header.base_timestamp_unix_ms,
            header.max_timestamp_unix_ms,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.record_count,
        )
        + records
    )
    length = HEADER_BYTES - LENGTH_OVERHEAD_BYTES + len(records)
    crc = crc32c(covered)
    return _PREFIX.pack(header.base_offset, length, header.leader_epoch, MAGIC, crc) + covered
