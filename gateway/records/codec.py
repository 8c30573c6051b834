"""Record batches v2 to records and back (KIP-98; Kafka documentation, section 5.3).

For internal streams, for runs of protocols other than Kafka, and for the rare moments when the
records of a stored batch must be seen; a Kafka produce is stored and fetched without this file.
Lengths are bytes, timestamps unix milliseconds. docs/adr/0002-record-codec.md says why this is
Python.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, cast

from crc32c import crc32c

from gateway.errors import CorruptBatch
from gateway.model import (
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    HEADER_BYTES,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
    NO_PRODUCER,
    TIMESTAMP_TYPE_MASK,
    VARINT_CONTINUES,
    ZIGZAG,
    BatchHeader,
    Buffer,
    Record,
    parse_batch_header,
    read_varint,
)
from gateway.records.compression import decompress
from gateway.records.record_run import RecordRun, Run
from gateway.records.runs import nullable, varint

Headers = Sequence[tuple[str, bytes | None]]
NewRecord = tuple[int, bytes | None, bytes | None, Headers]  # timestamp, key, value, headers

DECOMPRESSED_BYTES_MAX: Final = 67_108_864
RECORDS_MAX: Final = 1_000_000
NO_HEADERS: Final = b"\x00"
I64_MIN: Final = -(1 << 63)
I64_MAX: Final = (1 << 63) - 1

DELETE_HORIZON_MASK: Final = 0x40  # base timestamp is a deadline of compaction (KIP-534)
_NO_EPOCH: Final = -1
_NO_SEQUENCE: Final = -1

Producer = tuple[int, int, int]  # id, epoch, sequence of the first record (KIP-98)
NOT_IDEMPOTENT: Final[Producer] = (NO_PRODUCER, _NO_EPOCH, _NO_SEQUENCE)

_EMPTY_RECORD_BYTES: Final = 7  # what a record without key, value and headers takes at least

# Without a frame of Python for each: 0.1 us a record where its class costs 0.4.
new_record = cast("Callable[[tuple[object, ...]], Record]", partial(tuple.__new__, Record))

_PREFIX: Final = struct.Struct(">qiibI")  # outside of the CRC: up to the CRC itself
_COVERED: Final = struct.Struct(">hiqqqhii")  # the rest of the header, which the CRC covers


def encode_headers(headers: Headers) -> bytes:
    """Return the encoded headers of a record, in order."""
    parts = [varint(len(headers))]
    for name, value in headers:
        parts += (nullable(name.encode()), nullable(value))
    return b"".join(parts)


def encode_runs(
    runs: Sequence[Run],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    attributes: int = 0,
    producer: Producer = NOT_IDEMPOTENT,
) -> bytearray:
    """Return one uncompressed v2 batch with its CRC; the broker stamps offset and epoch.

    Errors: ``ValueError`` for no records at all.
    """
    if not runs:
        raise ValueError("a batch holds at least one record")
    base_timestamp = max_timestamp = runs[0].timestamp_unix_ms
    parts: list[bytes | bytearray] = [bytes(HEADER_BYTES)]
    lead = b"\x00\x00"  # attributes, of which none is defined, and the timestamp delta
    last_timestamp = base_timestamp
    delta = 0
    for run in runs:
        timestamp = run.timestamp_unix_ms
        if timestamp != last_timestamp:
            lead = b"\x00" + varint(timestamp - base_timestamp)
            max_timestamp = max(max_timestamp, timestamp)
            last_timestamp = timestamp
        parts += run.encoded(lead, delta)
        delta += len(run.values)
    batch = bytearray().join(parts)
    length = len(batch) - LENGTH_OVERHEAD_BYTES
    _COVERED.pack_into(
        batch,
        ATTRIBUTES_AT,
        attributes,
        delta - 1,
        base_timestamp,
        max_timestamp,
        *producer,
        delta,
    )
    crc = crc32c(memoryview(batch)[ATTRIBUTES_AT:])
    _PREFIX.pack_into(batch, 0, base_offset, length, leader_epoch, MAGIC, crc)
    return batch


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
    """Return a batch as ``encode_runs``, from records without common fields.

    Each record is (timestamp_unix_ms, key, value, headers); null and empty differ, headers keep
    their order and may repeat. Errors: ``ValueError`` for no records at all.
    """
    runs = [
        RecordRun(key, (value,), encode_headers(headers) if headers else NO_HEADERS, timestamp)
        for timestamp, key, value, headers in records
    ]
    return encode_runs(
        runs,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=attributes,
        producer=(producer_id, producer_epoch, base_sequence),
    )


def check_crc(batch: Buffer, header: BatchHeader) -> None:
    """Raise ``CorruptBatch`` unless the CRC-32C in ``header`` is that of the batch's bytes."""
    if crc32c(memoryview(batch)[ATTRIBUTES_AT : header.size_bytes]) != header.crc:
        raise CorruptBatch(f"CRC of the batch at offset {header.base_offset} does not match")


def decode_batch(
    batch: Buffer,
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
    batch: Buffer,
    *,
    bytes_max: int = DECOMPRESSED_BYTES_MAX,
    records_max: int = RECORDS_MAX,
) -> Iterator[Record]:
    """Yield the records of one v2 batch; otherwise as ``decode_batch``.

    A control batch has none: its record is for the clients of Kafka alone.
    """
    header = parse_batch_header(batch)
    if header.is_control:
        return
    data = records_data(batch, header, bytes_max=bytes_max, records_max=records_max)
    append_time = (
        header.max_timestamp_unix_ms if header.attributes & TIMESTAMP_TYPE_MASK else None
    )
    base_offset, base_timestamp = header.base_offset, header.base_timestamp_unix_ms
    last_offset_delta = header.last_offset_delta
    position = 0
    lowest_delta = 0
    block: bytes = NO_HEADERS  # the headers of the record before, encoded and not
    headers: tuple[tuple[str, bytes | None], ...] = ()
    for _ in range(header.record_count):
        try:
            delta, timestamp_delta, key, value, position, end = _decode_fields(data, position)
            # Records of one sender have the same headers: they are decoded once, and shared.
            if data[position:end] != block:
                headers = decode_headers(data, position, end)
                block = data[position:end]
        except IndexError as error:
            raise garbled(header, str(error)) from None
        position = end
        if not lowest_delta <= delta <= last_offset_delta:
            raise garbled(header, f"offset delta {delta}")
        lowest_delta = delta + 1
        timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
        if not I64_MIN <= timestamp <= I64_MAX:
            timestamp = header.max_timestamp_unix_ms  # see ``bounded_time``; a call costs more
        yield new_record((base_offset + delta, timestamp, key, value, headers))
    if position != len(data):
        raise garbled(header, f"{len(data) - position} bytes after the last record")


def bounded_time(timestamp_unix_ms: int, header: BatchHeader) -> int:
    """Return a record's time, bounded to 64 bits."""
    if I64_MIN <= timestamp_unix_ms <= I64_MAX:
        return timestamp_unix_ms
    return header.max_timestamp_unix_ms


def garbled(header: BatchHeader, what: str) -> CorruptBatch:
    """Return the error for invalid records of a batch."""
    return CorruptBatch(f"records of the batch at offset {header.base_offset}: {what}")


def records_data(
    batch: Buffer, header: BatchHeader, *, bytes_max: int, records_max: int
) -> bytes:
    """Return the decompressed records of a batch, after a check of the record count."""
    data = bytes(memoryview(batch)[HEADER_BYTES : header.size_bytes])
    data = decompress(header.attributes & COMPRESSION_MASK, data, bytes_max=bytes_max)
    count_max = min(records_max, len(data) // _EMPTY_RECORD_BYTES)
    if not 0 <= header.record_count <= count_max:
        raise garbled(header, f"{header.record_count} records in {len(data)} bytes")
    return data


def _read_nullable(data: bytes, position: int) -> tuple[bytes | None, int]:
    """Return (bytes or null, position after them); a negative length is null, as in Kafka."""
    size, position = read_varint(data, position)
    if size < 0:
        return None, position
    end = position + size
    return data[position:end], end


_Fields = tuple[int, int, bytes | None, bytes | None, int, int]


def _decode_fields(data: bytes, position: int) -> _Fields:  # noqa: PLR0912
    """Return offset delta, timestamp delta, key, value, and the headers' start and end.

    A record that reaches beyond the data is refused; where its headers end, so does it. Varints
    of one byte are decoded in place: 1.4 us a record against 2.1 us with calls.
    """
    if (length := data[position]) < VARINT_CONTINUES:
        length = ZIGZAG[length]
        position += 1
    else:
        length, position = read_varint(data, position)
    end = position + length
    if end > len(data):
        raise IndexError(f"a record of {length} bytes ends at {end} of {len(data)}")
    position += 1  # the attributes, of which none is defined
    if (timestamp_delta := data[position]) < VARINT_CONTINUES:
        timestamp_delta = ZIGZAG[timestamp_delta]
        position += 1
    else:
        timestamp_delta, position = read_varint(data, position)
    if (delta := data[position]) < VARINT_CONTINUES:
        delta = ZIGZAG[delta]
        position += 1
    else:
        delta, position = read_varint(data, position)
    key = value = None
    if (size := data[position]) < VARINT_CONTINUES:
        size = ZIGZAG[size]
        position += 1
    else:
        size, position = read_varint(data, position)
    if size >= 0:
        key = data[position : position + size]
        position += size
    if (size := data[position]) < VARINT_CONTINUES:
        size = ZIGZAG[size]
        position += 1
    else:
        size, position = read_varint(data, position)
    if size >= 0:
        value = data[position : position + size]
        position += size
    return delta, timestamp_delta, key, value, position, end


def decode_headers(
    data: bytes, position: int, end: int
) -> tuple[tuple[str, bytes | None], ...]:
    """Return the headers between two positions, encoded as by ``encode_headers``.

    A name that is not UTF-8 is shown as far as it is: it costs no message. Error: ``IndexError``.
    """
    start = position
    count, position = read_varint(data, position)
    if count < 0 or count > len(data) - position:
        raise IndexError(f"{count} headers")
    headers = []
    for _ in range(count):
        name, position = _read_nullable(data, position)
        if name is None:
            raise IndexError("a header without a name")
        value, position = _read_nullable(data, position)
        headers.append((name.decode(errors="replace"), value))
    if position != end:
        raise IndexError(f"headers from {start} on end at {position}, not at {end}")
    return tuple(headers)
