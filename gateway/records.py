"""Record batches v2 to records and back (KIP-98; Kafka documentation, section 5.3).

For internal streams, for runs of protocols other than Kafka, and for the rare moments when the
records of a stored batch must be seen; a Kafka produce is stored and fetched without this file.
Lengths are octets, timestamps unix milliseconds. docs/adr/0002-record-codec.md says why this is
Python.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from crc32c import crc32c

from gateway.compression import decompress
from gateway.errors import CorruptBatch
from gateway.model import (
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    HEADER_BYTES,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
    NO_PRODUCER,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    Octets,
    Record,
    parse_batch_header,
)

Headers = Sequence[tuple[str, bytes | None]]
NewRecord = tuple[int, bytes | None, bytes | None, Headers]  # timestamp, key, value, headers

DECOMPRESSED_BYTES_MAX: Final = 67_108_864
RECORDS_MAX: Final = 1_000_000

_DELETE_HORIZON_MASK: Final = 0x40  # base timestamp is a deadline of compaction (KIP-534)
_NO_EPOCH: Final = -1
_NO_SEQUENCE: Final = -1
_VARLONG_BITS: Final = 64
_SMALL_MAX: Final = 2_048  # lengths and deltas below it are looked up, not computed
_EMPTY_RECORD_BYTES: Final = 7  # what a record without key, value and headers takes at least

_PREFIX: Final = struct.Struct(">qiibI")  # outside of the CRC: up to the CRC itself
_COVERED: Final = struct.Struct(">hiqqqhii")  # the rest of the header, which the CRC covers


def encode_varint(value: int) -> bytes:
    r"""Return the zigzag varint of a signed number of at most 64 bits.

    >>> encode_varint(-1), encode_varint(0), encode_varint(300)
    (b'\x01', b'\x00', b'\xd8\x04')
    """
    rest = (value << 1) ^ (value >> 63)
    octets = bytearray()
    while rest > 0x7F:  # noqa: PLR2004
        octets.append(0x80 | (rest & 0x7F))
        rest >>= 7
    octets.append(rest)
    return bytes(octets)


_SMALL: Final = tuple(encode_varint(number) for number in range(_SMALL_MAX))
_NULL: Final = encode_varint(-1)
_TWO_OCTETS: Final = 0x80  # a first octet from here on says that the varint goes on
_ZIGZAG: Final = tuple((octet >> 1) ^ -(octet & 1) for octet in range(_TWO_OCTETS))


def _varint(value: int) -> bytes:
    """``encode_varint``, five times faster for what is common."""
    return _SMALL[value] if 0 <= value < _SMALL_MAX else encode_varint(value)


def encode_batch(  # noqa: PLR0913  # One argument per field that differs between batches.
    records: Sequence[NewRecord],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    attributes: int = 0,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = _NO_EPOCH,
    base_sequence: int = _NO_SEQUENCE,
) -> bytearray:
    """Return one uncompressed v2 batch, its CRC set; the broker stamps offset and epoch later.

    Each record is (timestamp_unix_ms, key, value, headers); null and empty differ, headers keep
    their order and may repeat. Errors: ``ValueError`` for no records at all.
    """
    if not records:
        raise ValueError("a batch holds at least one record")
    base_timestamp = max_timestamp = records[0][0]
    parts = [b""]
    body_bytes = 0
    for delta, (timestamp, key, value, headers) in enumerate(records):
        max_timestamp = max(max_timestamp, timestamp)
        body = b"".join(
            (
                b"\x00",  # attributes, of which none is defined
                _varint(timestamp - base_timestamp),
                _SMALL[delta] if delta < _SMALL_MAX else encode_varint(delta),
                _NULL if key is None else _varint(len(key)) + key,
                _NULL if value is None else _varint(len(value)) + value,
                _encode_headers(headers) if headers else b"\x00",
            )
        )
        size = _varint(len(body))
        body_bytes += len(size) + len(body)
        parts.append(size)
        parts.append(body)
    parts[0] = _COVERED.pack(
        attributes,
        len(records) - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    covered = b"".join(parts)
    length = HEADER_BYTES - LENGTH_OVERHEAD_BYTES + body_bytes
    batch = bytearray(_PREFIX.pack(base_offset, length, leader_epoch, MAGIC, crc32c(covered)))
    batch += covered
    return batch


def _encode_headers(headers: Headers) -> bytes:
    parts = [_varint(len(headers))]
    for name, value in headers:
        octets = name.encode()
        parts += (_varint(len(octets)), octets)
        parts += (_NULL,) if value is None else (_varint(len(value)), value)
    return b"".join(parts)


def check_crc(batch: Octets, header: BatchHeader) -> None:
    """Raise ``CorruptBatch`` unless the CRC-32C in ``header`` is that of the batch's octets."""
    if crc32c(memoryview(batch)[ATTRIBUTES_AT : header.size_bytes]) != header.crc:
        raise CorruptBatch(f"CRC of the batch at offset {header.base_offset} does not match")


def decode_batch(
    batch: Octets,
    *,
    bytes_max: int = DECOMPRESSED_BYTES_MAX,
    records_max: int = RECORDS_MAX,
) -> list[Record]:
    """Return the records of one v2 batch, decompressed within the bounds.

    The CRC is not checked: that is done once, when a batch comes in (``check_crc``). Errors:
    ``CorruptBatch`` when the batch contradicts itself or is above a bound.
    """
    return list(iter_records(batch, bytes_max=bytes_max, records_max=records_max))


def iter_records(
    batch: Octets,
    *,
    bytes_max: int = DECOMPRESSED_BYTES_MAX,
    records_max: int = RECORDS_MAX,
) -> Iterator[Record]:
    """Yield the records of one v2 batch one by one; else as ``decode_batch``."""
    header = parse_batch_header(batch)
    data = _records_of(batch, header, bytes_max=bytes_max, records_max=records_max)
    append_time = (
        header.max_timestamp_unix_ms if header.attributes & TIMESTAMP_TYPE_MASK else None
    )
    position = 0
    lowest_delta = 0
    for _ in range(header.record_count):
        try:
            delta, timestamp_delta, key, value, headers, position = _decode_record(
                data, position
            )
        except (IndexError, UnicodeDecodeError) as error:
            raise _garbled(header, str(error)) from None
        if not lowest_delta <= delta <= header.last_offset_delta:
            raise _garbled(header, f"offset delta {delta}")
        lowest_delta = delta + 1
        yield Record(
            header.base_offset + delta,
            header.base_timestamp_unix_ms + timestamp_delta
            if append_time is None
            else append_time,
            key,
            value,
            headers,
        )
    if position != len(data):
        raise _garbled(header, f"{len(data) - position} bytes after the last record")


def _garbled(header: BatchHeader, what: str) -> CorruptBatch:
    return CorruptBatch(f"records of the batch at offset {header.base_offset}: {what}")


def _records_of(
    batch: Octets, header: BatchHeader, *, bytes_max: int, records_max: int
) -> bytes:
    """Return what follows the header, decompressed; the record count fits it."""
    data = bytes(memoryview(batch)[HEADER_BYTES : header.size_bytes])
    data = decompress(header.attributes & COMPRESSION_MASK, data, bytes_max=bytes_max)
    count_max = min(records_max, len(data) // _EMPTY_RECORD_BYTES)
    if not 0 <= header.record_count <= count_max:
        raise _garbled(header, f"{header.record_count} records in {len(data)} bytes")
    return data


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return (value, position after it) of a zigzag varint. Errors: ``IndexError``."""
    result = 0
    for shift in range(0, _VARLONG_BITS, 7):
        octet = data[position]
        position += 1
        result |= (octet & 0x7F) << shift
        if octet < _TWO_OCTETS:
            return (result >> 1) ^ -(result & 1), position
    raise IndexError("a varint is longer than 64 bits")


def _read_nullable(data: bytes, position: int) -> tuple[bytes | None, int]:
    """Return (octets or null, position after them); a negative length is null, as in Kafka."""
    size, position = _read_varint(data, position)
    if size < 0:
        return None, position
    end = position + size
    return data[position:end], end


_Decoded = tuple[
    int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int
]


def _decode_record(data: bytes, position: int) -> _Decoded:  # noqa: PLR0912, PLR0915
    """Return offset delta, timestamp delta, key, value, headers, and where the next begins.

    A length that reaches beyond the data shows at the end: the record does not end there.
    Varints of one octet are decoded in place: 1.4 us a record against 2.1 us with calls.
    """
    if (length := data[position]) < _TWO_OCTETS:
        length = _ZIGZAG[length]
        position += 1
    else:
        length, position = _read_varint(data, position)
    end = position + length
    position += 1  # the attributes, of which none is defined
    if (timestamp_delta := data[position]) < _TWO_OCTETS:
        timestamp_delta = _ZIGZAG[timestamp_delta]
        position += 1
    else:
        timestamp_delta, position = _read_varint(data, position)
    if (delta := data[position]) < _TWO_OCTETS:
        delta = _ZIGZAG[delta]
        position += 1
    else:
        delta, position = _read_varint(data, position)
    key = value = None
    if (size := data[position]) < _TWO_OCTETS:
        size = _ZIGZAG[size]
        position += 1
    else:
        size, position = _read_varint(data, position)
    if size >= 0:
        key = data[position : position + size]
        position += size
    if (size := data[position]) < _TWO_OCTETS:
        size = _ZIGZAG[size]
        position += 1
    else:
        size, position = _read_varint(data, position)
    if size >= 0:
        value = data[position : position + size]
        position += size
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if data[position]:
        headers, position = _decode_headers(data, position)
    else:
        position += 1
    if position != end or end > len(data):
        raise IndexError(f"a record of {length} bytes ends at {position}, not at {end}")
    return delta, timestamp_delta, key, value, headers, position


def _decode_headers(
    data: bytes, position: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = _read_varint(data, position)
    if count < 0 or count > len(data) - position:
        raise IndexError(f"{count} headers")
    headers = []
    for _ in range(count):
        name, position = _read_nullable(data, position)
        if name is None:
            raise IndexError("a header without a name")
        value, position = _read_nullable(data, position)
        headers.append((name.decode(), value))
    return tuple(headers), position


def first_record_at(batch: Octets, timestamp_unix_ms: int) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first record at or after a time, or None.

    The header alone answers when the batch is too old, when its first record is young enough,
    and under LogAppendTime; else only lengths and deltas are read, no keys and values. Errors:
    ``CorruptBatch``.
    """
    header = parse_batch_header(batch)
    if header.max_timestamp_unix_ms < timestamp_unix_ms:
        return None
    if header.attributes & TIMESTAMP_TYPE_MASK:
        return header.base_offset, header.max_timestamp_unix_ms
    is_first_known = not header.attributes & _DELETE_HORIZON_MASK
    if is_first_known and header.base_timestamp_unix_ms >= timestamp_unix_ms:
        return header.base_offset, header.base_timestamp_unix_ms
    data = _records_of(batch, header, bytes_max=DECOMPRESSED_BYTES_MAX, records_max=RECORDS_MAX)
    position = 0
    try:
        for _ in range(header.record_count):
            length, position = _read_varint(data, position)
            end = position + length
            timestamp_delta, position = _read_varint(data, position + 1)
            timestamp = header.base_timestamp_unix_ms + timestamp_delta
            if timestamp >= timestamp_unix_ms:
                return header.base_offset + _read_varint(data, position)[0], timestamp
            position = max(position, end)  # A negative length must not lead back.
    except IndexError as error:
        raise _garbled(header, str(error)) from None
    return None
