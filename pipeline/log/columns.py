"""Record batches as Arrow columns, without a Python object for each record.

A walk over the lengths of records finds the start of each; then each field of all records is
decoded at once. Keys and values are not copied one by one: Arrow gathers them from the stored
bytes. Positions and lengths are in bytes, timestamps in unix milliseconds.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gateway.errors import CorruptBatch
from gateway.model import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    TIMESTAMP_TYPE_MASK,
    VARINT_CONTINUES,
    BatchHeader,
    Buffer,
    parse_batch_header,
    read_varint,
)
from gateway.records.codec import DECOMPRESSED_BYTES_MAX, check_crc
from gateway.records.compression import decompress
from pipeline.log.row_schema import HEADERS
from pipeline.log.varints import Bytes, Ints, varints

_PADDING: Final = bytes(16)  # a varint may be read past the end, and is refused then
_NONE: Final = np.empty(0, np.int64)
_RECORD_BYTES_MIN: Final = 7
_ALIKE_MIN: Final = 8  # consecutive records of one length after which more are tried
COLUMNS: Final = (
    "topic", "partition", "offset", "timestamp", "key", "value", "headers", "protocol",
)  # fmt: skip
_PROTOCOLS: Final = {"mqtt.": "mqtt", "sqs.": "sqs", "amqp.": "amqp", "rocketmq.": "rocketmq"}


class Columns(NamedTuple):
    """Records of some batches of one partition, in order of offset."""

    offsets: Ints
    timestamps_unix_ms: Ints
    keys: pa.BinaryArray
    values: pa.BinaryArray
    headers: pa.ListArray


class StoredBatch(NamedTuple):
    """A batch that was checked. ``base_offset`` is that in its partition."""

    base_offset: int
    header: BatchHeader
    records: bytes  # decompressed


def read_batch(
    batch: Buffer, base_offset: int, *, from_unix_ms: int = -1
) -> StoredBatch | None:
    """Check a batch and return its records' bytes; None for a control batch.

    None, too, for one whose records are all older than ``from_unix_ms``.
    Errors: ``CorruptBatch`` (CRC, counts, invalid compression), ``UnsupportedFormat``.
    """
    header = parse_batch_header(batch)
    if header.is_control:
        return None
    check_crc(batch, header)
    # Times before 1970 are valid: without a bound nothing is too old.
    if 0 <= from_unix_ms > header.max_timestamp_unix_ms:
        return None
    data = bytes(memoryview(batch)[HEADER_BYTES : header.size_bytes])
    records = decompress(
        header.attributes & COMPRESSION_MASK, data, bytes_max=DECOMPRESSED_BYTES_MAX
    )
    if not 0 <= header.record_count * _RECORD_BYTES_MIN <= len(records):
        raise CorruptBatch(f"{header.record_count} records in {len(records)} bytes")
    return StoredBatch(base_offset, header, records)


def decode_columns(
    batches: Sequence[StoredBatch], *, with_keys: bool, with_values: bool, with_headers: bool
) -> Columns:
    """Decode the records of batches of at most 2 GiB together.

    Columns left out are null, and their bytes are not gathered.
    Errors: ``CorruptBatch``, naming the base offset of the batch.
    """
    begins, counts = _find_records(batches)
    raw = b"".join([*(batch.records for batch in batches), _PADDING])
    data = np.frombuffer(raw, np.uint8)
    lengths, at = varints(data, begins)
    ends = at + lengths
    # The byte between is the attributes', of which none is defined.
    timestamp_deltas, at = varints(data, at + 1)
    offset_deltas, at = varints(data, at)
    key_sizes, key_at = varints(data, at)
    value_sizes, value_at = varints(data, _behind(key_at, key_sizes, data))
    header_counts, header_at = varints(data, _behind(value_at, value_sizes, data))
    _refuse(batches, counts, (header_at > ends) | (header_counts < 0))
    buffer = pa.py_buffer(raw)
    nulls = pa.nulls(len(begins), pa.binary())
    return Columns(
        np.repeat([batch.base_offset for batch in batches], counts) + offset_deltas,
        _timestamps([batch.header for batch in batches], counts, timestamp_deltas),
        _gathered(buffer, key_at, key_sizes) if with_keys else nulls,
        _gathered(buffer, value_at, value_sizes) if with_values else nulls,
        _headers(batches, counts, data, buffer, header_at, header_counts, ends)
        if with_headers
        else pa.nulls(len(begins), HEADERS),
    )


def _timestamps(headers: Sequence[BatchHeader], counts: Sequence[int], deltas: Ints) -> Ints:
    is_stamped = [bool(one.attributes & TIMESTAMP_TYPE_MASK) for one in headers]
    times = [
        one.max_timestamp_unix_ms if is_one else one.base_timestamp_unix_ms
        for one, is_one in zip(headers, is_stamped, strict=True)
    ]
    if any(is_stamped):
        deltas = np.where(np.repeat(is_stamped, counts), 0, deltas)
    return np.repeat(times, counts) + deltas


def _find_records(batches: Sequence[StoredBatch]) -> tuple[Ints, list[int]]:
    """Return the start of each record in the joined bytes, and the record count of each batch."""
    found: list[Ints] = []
    base = 0
    for batch in batches:
        found += [piece + base for piece in _walk(batch)]
        base += len(batch.records)
    counts = [batch.header.record_count for batch in batches]
    return np.concatenate([*found, _NONE]), counts


def _walk(batch: StoredBatch) -> list[Ints]:
    """Return the start of each record of a batch, in pieces. Errors: ``CorruptBatch``."""
    data, left = batch.records, batch.header.record_count
    pieces: list[Ints] = []
    begins: list[int] = []
    position = last_step = alike = 0
    try:
        while left:
            begins.append(position)
            left -= 1
            first, second = data[position], data[position + 1]
            if first < VARINT_CONTINUES:
                step = 1 + (first >> 1)
            elif second < VARINT_CONTINUES:
                step = 2 + ((first & 0x7F | second << 7) >> 1)
            else:
                length, start = read_varint(data, position)
                step = start - position + length
            if step < _RECORD_BYTES_MIN:
                raise CorruptBatch(_at(batch, f"a record of {step} bytes"))
            position += step
            alike = alike + 1 if step == last_step else 0
            last_step = step
            if alike == _ALIKE_MIN:
                more = _stretch(data, position, step, left)
                pieces.append(np.array(begins, np.int64))
                pieces.append(np.arange(position, position + more * step, step, dtype=np.int64))
                begins = []
                left -= more
                position += more * step
                alike = 0
    except IndexError:
        position = -1
    if position != len(data):
        raise CorruptBatch(_at(batch, "its records do not fill it"))
    return [*pieces, np.array(begins, np.int64)]


def _stretch(data: bytes, position: int, step: int, count_max: int) -> int:
    """Return the number of records from ``position`` on with the length of the one before.

    Records of equal length are the common case, and are skipped at the speed of C.
    """
    count = min(count_max, (len(data) - position) // step)
    if not count:
        return 0
    before = data[position - step : position - step + 2]
    table = np.frombuffer(data, np.uint8, count * step, position).reshape(count, step)
    is_alike = table[:, 0] == before[0]
    if before[0] >= VARINT_CONTINUES:
        is_alike &= table[:, 1] == before[1]
    return count if is_alike.all() else int(np.argmin(is_alike))


def _at(batch: StoredBatch, what: str) -> str:
    return f"the batch at offset {batch.base_offset}: {what}"


def _behind(at: Ints, sizes: Ints, data: Bytes) -> Ints:
    """Return the ends of pieces. One that exceeds the data ends after all of it."""
    if len(sizes) and (sizes.min() < 0 or sizes.max() > len(data)):
        sizes = np.clip(sizes, 0, len(data))
    return at + sizes


def _gathered(buffer: pa.Buffer, at: Ints, sizes: Ints) -> pa.BinaryArray:
    """Return the pieces of a buffer, null where a size is negative.

    They are the odd ones of [gap][piece][gap][piece]..., which Arrow separates itself.
    """
    is_null = sizes < 0
    if is_null.all():
        return pa.nulls(len(at), pa.binary())
    bounds = np.empty(2 * len(at) + 1, np.int32)
    bounds[0] = 0
    bounds[1::2] = at
    bounds[2::2] = at + np.maximum(sizes, 0)
    pieces = pa.BinaryArray.from_buffers(
        pa.binary(), 2 * len(at), [None, pa.py_buffer(bounds), buffer]
    )
    odd = np.arange(1, 2 * len(at), 2, dtype=np.int64)
    return pieces.take(pa.array(odd, mask=is_null if is_null.any() else None))


def _headers(  # noqa: PLR0913, PLR0917 - what a record's fields have led to
    batches: Sequence[StoredBatch],
    counts_of_batches: Sequence[int],
    data: Bytes,
    buffer: pa.Buffer,
    at: Ints,
    counts: Ints,
    ends: Ints,
) -> pa.ListArray:
    """Return the headers of each record, decoding the n-th of all records at once."""
    bounds = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=bounds[1:])
    _refuse(batches, counts_of_batches, counts > ends - at + 1)
    total = int(bounds[-1])
    key_at, key_sizes = np.zeros(total, np.int64), np.zeros(total, np.int64)
    value_at, value_sizes = np.zeros(total, np.int64), np.zeros(total, np.int64)
    at = at.copy()
    having = np.flatnonzero(counts)
    number = 0
    while len(having):
        place = bounds[having] + number
        sizes, where = varints(data, at[having])
        key_sizes[place], key_at[place] = sizes, where
        sizes, where = varints(data, _behind(where, sizes, data))
        value_sizes[place], value_at[place] = sizes, where
        at[having] = _behind(where, sizes, data)
        number += 1
        having = having[counts[having] > number]
    _refuse(batches, counts_of_batches, at > ends)
    keys = _gathered(buffer, key_at, np.maximum(key_sizes, 0))
    try:
        names = keys.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise CorruptBatch(_at(batches[0], f"the name of a header: {error}")) from None
    values = _gathered(buffer, value_at, value_sizes)
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), pairs)


def _refuse(
    batches: Sequence[StoredBatch], counts: Sequence[int], is_wrong: npt.NDArray[np.bool_]
) -> None:
    if is_wrong.any():
        firsts = np.cumsum(counts)
        batch = batches[int(np.searchsorted(firsts, np.argmax(is_wrong), side="right"))]
        raise CorruptBatch(_at(batch, "a record does not hold its fields"))


def named_header(headers: pa.ListArray, name: str) -> pa.StringArray:
    """Return each record's first header of a name as text, or null.

    A value that is not UTF-8 is null too: the column ``headers`` has the bytes.
    """
    names = headers.values.field(0).to_numpy(zero_copy_only=False)
    where, is_missing = _first_places(headers, np.flatnonzero(names == name))
    values = headers.values.field(1).take(pa.array(where, mask=is_missing)).to_pylist()
    return pa.array([_text(value) for value in values], pa.string())


def protocols(headers: pa.ListArray) -> pa.StringArray:
    """Return each record's protocol by its first protocol header, null without one.

    A record from a Kafka client has none, and neither has an SQS message without attributes.
    """
    names = headers.values.field(0).dictionary_encode()
    said = pa.array(
        [
            next((said for start, said in _PROTOCOLS.items() if name.startswith(start)), None)
            for name in names.dictionary.to_pylist()
        ],
        pa.string(),
    ).take(names.indices)
    telling = np.flatnonzero(said.is_valid().to_numpy(zero_copy_only=False))
    where, is_missing = _first_places(headers, telling)
    return said.take(pa.array(where, mask=is_missing))


def _first_places(
    headers: pa.ListArray, places: npt.NDArray[np.intp]
) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Return the first of ``places`` in each record's headers, and the records without any."""
    owners = np.searchsorted(headers.offsets.to_numpy(), places, side="right") - 1
    owners, firsts = np.unique(owners, return_index=True)
    where = np.zeros(len(headers), np.int64)
    where[owners] = places[firsts]
    is_missing = np.ones(len(headers), bool)
    is_missing[owners] = False
    return where, is_missing


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
