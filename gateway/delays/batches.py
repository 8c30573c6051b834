"""Bytes of delayed messages: run to entries of ``__delays``, entries to batches.

An entry keeps the record's key, value and headers as a v2 batch has them, so that the batch in
which the message comes to its topic is put together without decoding any of them.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from operator import add
from typing import Final

from crc32c import crc32c

from features.compaction.rebuilding import NO_TIMESTAMP
from features.compaction.record_slices import TIMESTAMP_DELTA, RecordSlice, scan_records
from gateway.coalescer import BATCH_BYTES_MAX, BATCH_RECORDS_MAX
from gateway.errors import CorruptBatch, UnsupportedFormat
from gateway.model import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_BYTES,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
    MAX_TIMESTAMP_AT,
    NO_PRODUCER,
    VARINT_CONTINUES,
    ZIGZAG,
    BatchHeader,
    Buffer,
    parse_batch_header,
    read_varint,
)
from gateway.records.record_run import RECORD_OVERHEAD_BYTES
from gateway.records.runs import SMALL, SMALL_MAX, nullable, varint

RecordBody = tuple[int, bytes]  # timestamp, and what follows the offset delta of a record

_PREFIX: Final = struct.Struct(">qiibI")  # outside of the CRC: up to the CRC itself
_COVERED: Final = struct.Struct(">hiqqqhii")  # the rest of the header, which the CRC covers
_ATTRIBUTES: Final = struct.Struct(">h")
_MAX_TIMESTAMP: Final = struct.Struct(">q")
_CRC: Final = struct.Struct(">I")
_NO_EPOCH: Final = -1
_SPAN_MS_MAX: Final = 1 << 62  # between timestamps of a batch: their deltas have 64 bits
_COUNT_OF_ONE_BYTE_END: Final = 0x80


def record_body(key: bytes | None, value: bytes | None, headers: bytes) -> bytes:
    """Return a record's body: the bytes from its key on; ``headers`` are encoded."""
    return nullable(key) + nullable(value) + headers


def has_header(headers: bytes, stored_name: bytes) -> bool:
    """Whether an encoded block of headers has a name, given with its encoded length."""
    # The usual answers come without decoding anything: none has it, or the first.
    if stored_name not in headers:
        return False
    if headers[0] < _COUNT_OF_ONE_BYTE_END and headers.startswith(stored_name, 1):
        return True
    return any(nullable(name) == stored_name for name, _ in header_pairs(headers))


def find_header(headers: bytes, name: bytes) -> bytes | None:
    """Return the first value of that name that is not null, or None. Error: ``IndexError``."""
    return next((value for one, value in header_pairs(headers) if one == name and value), None)


def header_pairs(headers: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield (name, value) of an encoded block of headers. Error: ``IndexError``."""
    count, position = read_varint(headers, 0)
    for _ in range(count):
        size, position = read_varint(headers, position)
        end = position + max(size, 0)
        size, value_at = read_varint(headers, end)
        value = None if size < 0 else headers[value_at : value_at + size]
        yield headers[position:end], value
        position = value_at + max(size, 0)


def add_header(headers: bytes, stored: bytes) -> bytes:
    """Return an encoded block of headers with one encoded header appended."""
    if headers[0] < _COUNT_OF_ONE_BYTE_END:
        return SMALL[(headers[0] >> 1) + 1] + headers[1:] + stored
    count, position = read_varint(headers, 0)
    return varint(count + 1) + headers[position:] + stored


def record_positions(data: bytes, record: RecordSlice) -> tuple[int, int]:
    """Return the positions of a record's key and headers. Error: ``CorruptBatch``."""
    _, rest, end, *_ = record
    try:
        _, key_at = read_varint(data, rest)  # behind the offset's delta
        size, position = read_varint(data, key_at)
        size, position = read_varint(data, position + max(size, 0))
    except IndexError as error:
        raise CorruptBatch(str(error)) from None
    headers_at = position + max(size, 0)
    if headers_at >= end:
        raise CorruptBatch("a record ends before its headers")
    return key_at, headers_at


def values_of(batch: Buffer) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, value) of the records in a batch of ``__delays``; none is null.

    Error: ``CorruptBatch``.
    """
    header = parse_batch_header(batch)
    data = bytes(memoryview(batch)[HEADER_BYTES : header.size_bytes])
    position = 0
    try:
        for index in range(header.record_count):
            value, position = _value_at(data, position)
            yield header.base_offset + index, value
    except IndexError as error:
        raise CorruptBatch(f"__delays at {header.base_offset}: {error}") from None


def pick_values(
    batch: Buffer, header: BatchHeader, wanted: Sequence[int]
) -> list[tuple[int, bytes]]:
    """Return (offset, value) of the records at ``wanted``, ascending offsets of the batch.

    The others are passed over by their lengths. Error: ``CorruptBatch``.
    """
    data = bytes(memoryview(batch)[HEADER_BYTES : header.size_bytes])
    found = []
    position, at = 0, header.base_offset
    try:
        for offset in wanted:
            while at < offset:
                if (length := data[position]) < VARINT_CONTINUES:
                    position += 1 + ZIGZAG[length]
                else:
                    length, position = read_varint(data, position)
                    position += length
                at += 1
            value, position = _value_at(data, position)
            at += 1
            found.append((offset, value))
    except IndexError as error:
        raise CorruptBatch(f"__delays at {header.base_offset}: {error}") from None
    return found


def _value_at(data: bytes, position: int) -> tuple[bytes, int]:
    """Return the value of the record at a position, and the next record's position.

    Varints of one byte are passed over in place: 1 us a record against 2 us with calls.
    """
    length, position = read_varint(data, position)
    end = position + length
    position += 1  # the attributes
    for _ in range(3):  # the deltas of timestamp and offset, the length of the key it has not
        while data[position] >= VARINT_CONTINUES:
            position += 1
        position += 1
    size, position = read_varint(data, position)
    if size < 0 or not position + size < end <= len(data):
        raise IndexError(f"a value of {size} bytes in a record that ends at {end}")
    return data[position : position + size], end


def split_bodies(
    bodies: Sequence[RecordBody], bytes_max: int
) -> Iterator[Sequence[RecordBody]]:
    """Yield record bodies in pieces, each of which fits a batch or is a single record."""
    bytes_max = min(bytes_max, BATCH_BYTES_MAX) - HEADER_BYTES
    start = 0
    while start < len(bodies):
        piece = bodies[start : start + BATCH_RECORDS_MAX]
        sizes = accumulate([len(tail) + RECORD_OVERHEAD_BYTES for _, tail in piece])
        end = max(bisect_right(list(sizes), bytes_max), 1)
        first_unix_ms = piece[0][0]
        spans_ms = [abs(timestamp_unix_ms - first_unix_ms) for timestamp_unix_ms, _ in piece]
        if max(spans_ms) > _SPAN_MS_MAX:
            far = next(at for at, span_ms in enumerate(spans_ms) if span_ms > _SPAN_MS_MAX)
            end = min(end, far)
        yield piece[:end]
        start += end


def encode_bodies(
    bodies: Sequence[RecordBody], *, attributes: int = 0, max_unix_ms: int = NO_TIMESTAMP
) -> bytearray:
    """Return one uncompressed v2 batch of records, its CRC set.

    Its max timestamp is ``max_unix_ms`` at least.
    """
    base_unix_ms = bodies[0][0]
    timestamps_unix_ms = {timestamp_unix_ms for timestamp_unix_ms, _ in bodies}
    max_unix_ms = max(max_unix_ms, *timestamps_unix_ms)
    # Attributes, of which none is defined, and the timestamp delta.
    leads = {one: b"\x00" + varint(one - base_unix_ms) for one in timestamps_unix_ms}
    fronts = [leads[one] + varint(delta) for delta, (one, _) in enumerate(bodies)]
    ends = [tail for _, tail in bodies]
    sizes = list(map(add, map(len, fronts), map(len, ends)))
    lengths = map(SMALL.__getitem__ if max(sizes) < SMALL_MAX else varint, sizes)
    parts = chain.from_iterable(zip(lengths, fronts, ends, strict=True))
    batch = bytearray().join(chain((bytes(HEADER_BYTES),), parts))
    count = len(bodies)
    _COVERED.pack_into(
        batch,
        ATTRIBUTES_AT,
        attributes,
        count - 1,
        base_unix_ms,
        max_unix_ms,
        NO_PRODUCER,
        _NO_EPOCH,
        -1,
        count,
    )
    crc = crc32c(memoryview(batch)[ATTRIBUTES_AT:])
    _PREFIX.pack_into(batch, 0, 0, len(batch) - LENGTH_OVERHEAD_BYTES, _NO_EPOCH, MAGIC, crc)
    return batch


def with_max_timestamp(data: bytes, max_unix_ms: int, *, attributes: int = 0) -> bytearray:
    """Return a copy of a batch with another max timestamp, its CRC set."""
    batch = bytearray(data)
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_AT, attributes)
    _MAX_TIMESTAMP.pack_into(batch, MAX_TIMESTAMP_AT, max_unix_ms)
    _CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    return batch


def is_intact_batch(data: Buffer, record_count: int) -> bool:
    """Whether bytes are an undamaged batch of ``encode_bodies`` with that many records."""
    try:
        header = parse_batch_header(data)
    except (CorruptBatch, UnsupportedFormat):
        return False
    is_as_made = header.crc == crc32c(memoryview(data)[ATTRIBUTES_AT:])
    return is_as_made and (header.size_bytes, header.record_count) == (
        len(data),
        record_count,
    )


def bodies_of(raw: bytes, indexes: Sequence[int]) -> list[RecordBody]:
    """Return the record bodies at these indexes in a batch of ``encode_bodies``.

    Error: ``CorruptBatch``.
    """
    header = parse_batch_header(raw)
    data = raw[HEADER_BYTES:]
    records = scan_records(data, header)
    base_unix_ms = header.base_timestamp_unix_ms
    return [
        (
            base_unix_ms + record[TIMESTAMP_DELTA],
            data[record_positions(data, record)[0] : record[2]],
        )
        for record in [records[index] for index in indexes]
    ]
