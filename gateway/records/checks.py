"""Checks of a producer's batch before it is appended.

The rules are those of Kafka's ``LogValidator`` that need only the 61-byte header and the CRC;
records are checked by the reader that decodes them, within bounds. Records are checked here for
compacted topics, where each record needs a key, for topics of queues, and where the topic asks
for it (``records.validate``).
"""

import struct
from typing import Final

from crc32c import crc32c

from features.compaction import Scanned, scan_keys
from gateway.errors import (
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    UnsupportedCompression,
)
from gateway.model import (
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    CONTROL_MASK,
    CRC_AT,
    HEADER_BYTES,
    MAX_TIMESTAMP_AT,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    parse_batch_header,
)
from gateway.records.codec import DECOMPRESSED_BYTES_MAX
from gateway.records.compression import DecompressedTooLarge, decompress
from gateway.records.compression_frames import RECORD_BYTES_MIN

NO_TIMESTAMP: Final = -1
ZSTD: Final = 4
LOOKED_AT_RECORDS_MAX: Final = 100_000  # of a batch that is looked into: 0.1 s of the loop
LOOKED_AT_BYTES_MAX: Final = 16 * 1024 * 1024  # of such a batch, decompressed, at least

_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")
_MAX_TIMESTAMP: Final = struct.Struct(">q")
_REFUSED_MASK: Final = CONTROL_MASK | TRANSACTIONAL_MASK


def check_batch(
    batch: bytearray | memoryview, *, bytes_max: int, is_transaction_served: bool = False
) -> BatchHeader:
    """Return the header of the single batch in ``batch``, checked for a client's write.

    ``is_transaction_served``: a batch may be transactional; its producer then has an id.
    Errors: ``CorruptBatch`` (length, CRC), ``UnsupportedFormat``, ``MessageTooLarge`` (above
    ``bytes_max``), ``InvalidRecord`` (counts or flags that contradict),
    ``UnsupportedCompression``.
    """
    header = parse_batch_header(batch)
    if header.size_bytes != len(batch):
        msg = f"one batch of {header.size_bytes} bytes was expected, {len(batch)} came"
        raise InvalidRecord(msg)
    if len(batch) > bytes_max:
        msg = f"a batch of {len(batch)} bytes is above the topic's {bytes_max}"
        raise MessageTooLarge(msg)
    if crc32c(memoryview(batch)[ATTRIBUTES_AT:]) != header.crc:
        msg = "the batch's CRC-32C does not match its bytes"
        raise CorruptBatch(msg)
    _check_counts(header)
    if header.attributes & _REFUSED_MASK:
        _check_transactional(header, is_transaction_served=is_transaction_served)
    return header


def _check_transactional(header: BatchHeader, *, is_transaction_served: bool) -> None:
    if header.is_control or not is_transaction_served:
        what = "control batch" if header.is_control else "transactional batch"
        msg = f"a {what} cannot be produced here"
        raise InvalidRecord(msg)
    if not header.is_idempotent:
        raise InvalidRecord("a transactional batch without a producer id")


def _check_counts(header: BatchHeader) -> None:
    count = header.record_count
    if count < 1 or header.last_offset_delta != count - 1:
        msg = f"last offset delta {header.last_offset_delta} does not fit {count} records"
        raise InvalidRecord(msg)
    compression = header.attributes & COMPRESSION_MASK
    if compression > ZSTD:
        msg = f"compression {compression} is unknown"
        raise UnsupportedCompression(msg)
    if not compression and count * RECORD_BYTES_MIN > header.size_bytes - HEADER_BYTES:
        msg = f"{count} records do not fit {header.size_bytes - HEADER_BYTES} bytes"
        raise InvalidRecord(msg)
    if header.is_idempotent and (header.base_sequence < 0 or header.producer_epoch < 0):
        msg = f"producer {header.producer_id} gave no sequence or epoch"
        raise InvalidRecord(msg)


def check_keys(
    batch: bytearray | memoryview, header: BatchHeader, *, bytes_max: int = 0
) -> None:
    """Refuse records without a key in compacted topics.

    Every record is looked at, as Kafka does, compressed or not, within bounds that the loop can
    bear. Errors: ``InvalidRecord``; those of ``check_records``.
    """
    found = _scan(batch, header, bytes_max)
    if found.has_unkeyed:
        msg = f"record {found.keys.index(None)} has no key, and the topic is compacted"
        raise InvalidRecord(msg)


def check_records(
    batch: bytearray | memoryview, header: BatchHeader, *, bytes_max: int = 0
) -> None:
    """Refuse a batch whose records cannot be decoded.

    Errors: ``CorruptBatch``; ``MessageTooLarge``, on which producers split their batches, for
    more than ``LOOKED_AT_RECORDS_MAX`` records, or for more bytes when decompressed than both
    ``LOOKED_AT_BYTES_MAX`` and ``bytes_max``, the topic's ``max.message.bytes``.
    """
    _scan(batch, header, bytes_max)


def _scan(batch: bytearray | memoryview, header: BatchHeader, bytes_max: int) -> Scanned:
    if header.record_count > LOOKED_AT_RECORDS_MAX:
        msg = f"{header.record_count} records; at most {LOOKED_AT_RECORDS_MAX} are looked at"
        raise MessageTooLarge(msg)
    return scan_keys(decompressed(batch, header, bytes_max=bytes_max), header)


def decompressed(
    batch: bytearray | memoryview, header: BatchHeader, *, bytes_max: int
) -> bytes:
    """Return the records of a produced batch, for a topic with that ``max.message.bytes``.

    Errors: ``CorruptBatch``, ``MessageTooLarge``.
    """
    data = bytes(memoryview(batch)[HEADER_BYTES:])
    codec = header.attributes & COMPRESSION_MASK
    bytes_max = min(max(bytes_max, LOOKED_AT_BYTES_MAX), DECOMPRESSED_BYTES_MAX)
    try:
        return decompress(codec, data, bytes_max=bytes_max)
    except DecompressedTooLarge as error:
        raise MessageTooLarge(str(error)) from None


def check_timestamps(
    header: BatchHeader,
    now_unix_ms: int,
    *,
    before_ms_max: int,
    after_ms_max: int,
    is_stamped: bool = False,
) -> None:
    """Refuse timestamps too far from now (KIP-937), and batches marked LogAppendTime.

    ``is_stamped``: the topic's timestamps are LogAppendTime, so the producer's do not matter.
    """
    if header.attributes & TIMESTAMP_TYPE_MASK:
        msg = "a producer may not set LogAppendTime; the topic's config does"
        raise InvalidTimestamp(msg)
    if is_stamped:
        return
    if header.max_timestamp_unix_ms - now_unix_ms > after_ms_max:
        msg = f"timestamp {header.max_timestamp_unix_ms} is over {after_ms_max} ms ahead"
        raise InvalidTimestamp(msg)
    first = header.base_timestamp_unix_ms
    if first != NO_TIMESTAMP and now_unix_ms - first > before_ms_max:
        msg = f"timestamp {first} is over {before_ms_max} ms old"
        raise InvalidTimestamp(msg)


def stamp_append_time(
    batch: bytearray | memoryview, header: BatchHeader, now_unix_ms: int
) -> BatchHeader:
    """Set a batch's timestamps to LogAppendTime, in place; return its new header.

    The records keep their deltas; a reader takes the batch's max timestamp for each of them.
    The CRC covers both changed fields, so it is computed again.
    """
    attributes = header.attributes | TIMESTAMP_TYPE_MASK
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_AT, attributes)
    _MAX_TIMESTAMP.pack_into(batch, MAX_TIMESTAMP_AT, now_unix_ms)
    crc = crc32c(memoryview(batch)[ATTRIBUTES_AT:])
    _CRC.pack_into(batch, CRC_AT, crc)
    return header._replace(attributes=attributes, max_timestamp_unix_ms=now_unix_ms, crc=crc)
