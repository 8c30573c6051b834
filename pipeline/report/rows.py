"""Narrow rows for a report: keys are included, values only measured."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gateway.errors import CorruptBatch, GatewayError
from gateway.model import TIMESTAMP_TYPE_MASK
from pipeline.log.access import open_extents, relocate, stay
from pipeline.log.columns import (
    Columns,
    StoredBatch,
    decode_columns,
    named_header,
    protocols,
    read_batch,
)
from pipeline.log.options import Options
from pipeline.log.splits import Piece, Split
from pipeline.log.transactions import without_aborted
from pipeline.log.views import FileGone

Ints = npt.NDArray[np.int64]

ROWS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("protocol", pa.string()),
        ("unix_ms", pa.int64()),
        ("size_bytes", pa.int64()),
        ("stored_bytes", pa.float64()),
        ("batches", pa.float64()),
        ("key", pa.binary()),
        ("late_ms", pa.int64()),
        ("overdue_ms", pa.int64()),
        ("undecodable", pa.int64()),
    ]
)
ROWS_SQL: Final = (
    "topic string, protocol string, unix_ms long, size_bytes long, stored_bytes double, "
    "batches double, key binary, late_ms long, overdue_ms long, undecodable long"
)
NO_PROTOCOL: Final = "kafka"  # records without a protocol's headers; Kafka clients write none
_DELIVER_AT: Final = "deliver-at"
_BYTES_AT_ONCE: Final = 8 * 1024 * 1024
_NO_TIME: Final = -1
_UNIX_MS_MAX: Final = 1 << 60


class _Read(list[tuple[StoredBatch, int]]):
    """Batches read and not yet decoded, each with its stored size."""

    size_bytes = 0

    def put(self, batch: StoredBatch, stored_bytes: int) -> None:
        self.append((batch, stored_bytes))
        self.size_bytes += len(batch.records)


def report_rows(split: Split, options: Options) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a split. Errors: ``OffsetOutOfRange``, ``StorageUnavailable``."""
    waiting = list(split.pieces)
    while waiting:
        piece = waiting.pop(0)
        reader = _PieceRows(piece, options)
        stay(options, split.lease)
        try:
            yield from reader.rows()
        except FileGone:  # the node has rewritten the file
            rest = piece.extent._replace(first=reader.position)
            found = relocate(options, [rest])[0]
            waiting[:0] = [piece._replace(extent=extent) for extent in found]


class _PieceRows:
    """Reader of a piece's offsets in one file. ``position``: the first not yet yielded."""

    def __init__(self, piece: Piece, options: Options) -> None:
        self.position = piece.extent.first
        self._piece = piece
        self._options = options
        self._highest_unix_ms = _NO_TIME

    def rows(self) -> Iterator[pa.RecordBatch]:
        extent, options = self._piece.extent, self._options
        read, bad = _Read(), 0
        with open_extents(options, extent.path, [extent]) as reader:
            for base_offset, data in without_aborted(reader.batches(extent), extent):
                try:
                    batch = read_batch(data, base_offset)
                except GatewayError:
                    bad += 1
                    continue
                if batch is None or not batch.header.record_count:
                    continue
                read.put(batch, len(data))
                if read.size_bytes >= _BYTES_AT_ONCE:
                    yield from self._flushed(read, bad)
                    read, bad = _Read(), 0
        yield from self._flushed(read, bad)

    def _flushed(self, read: _Read, bad: int) -> Iterator[pa.RecordBatch]:
        tables = []
        if read:
            try:
                tables.append(self._table(read))
            except CorruptBatch:
                bad += self._one_by_one(read, tables)
            last = read[-1][0]
            self.position = last.base_offset + last.header.last_offset_delta + 1
        if bad:
            tables.append(self._undecodable(bad))
        yield from tables

    def _one_by_one(self, read: _Read, tables: list[pa.RecordBatch]) -> int:
        """Decode each batch by itself; return the number of those that fail."""
        bad = 0
        for batch, stored_bytes in read:
            one = _Read()
            one.put(batch, stored_bytes)
            try:
                tables.append(self._table(one))
            except CorruptBatch:
                bad += 1
        return bad

    def _undecodable(self, count: int) -> pa.RecordBatch:
        row = dict.fromkeys(ROWS.names) | {
            "topic": self._piece.topic,
            "protocol": NO_PROTOCOL,
            "undecodable": count,
        }
        return pa.RecordBatch.from_pylist([row], schema=ROWS)

    def _table(self, read: _Read) -> pa.RecordBatch:
        """Return the rows of batches. Error: ``CorruptBatch``."""
        columns = decode_columns(
            [batch for batch, _ in read], with_keys=True, with_values=True, with_headers=True
        )
        counts = np.array([batch.header.record_count for batch, _ in read], np.int64)
        # Producers can write any number as a time; sums and steps must not overflow.
        times = np.clip(columns.timestamps_unix_ms, -1, _UNIX_MS_MAX)
        sizes = _sizes(columns)
        first = np.append(0, np.cumsum(counts)[:-1])
        stored = np.array([size for _, size in read], np.float64)
        # Each record gets stored bytes of its batch by size, and an equal part of the batch.
        weight = sizes + 1.0
        share = weight / np.repeat(np.add.reduceat(weight, first), counts)
        stamped = np.repeat(
            [bool(batch.header.attributes & TIMESTAMP_TYPE_MASK) for batch, _ in read], counts
        )
        late, overdue = self._lateness(times, columns, stamped)
        arrays = [
            pa.repeat(self._piece.topic, len(sizes)),
            pc.fill_null(protocols(columns.headers), NO_PROTOCOL),
            pa.array(times),
            pa.array(sizes),
            pa.array(np.repeat(stored, counts) * share),
            pa.array(np.repeat(1.0 / counts, counts)),
            columns.keys,
            late,
            overdue,
            pa.nulls(len(sizes), pa.int64()),
        ]
        rows = pa.RecordBatch.from_arrays(arrays, schema=ROWS)
        return rows.filter(pa.array(self._wanted(columns)))

    def _wanted(self, columns: Columns) -> npt.NDArray[np.bool_]:
        extent, options = self._piece.extent, self._options
        times = columns.timestamps_unix_ms
        kept = (columns.offsets >= extent.first) & (columns.offsets < extent.end)
        if options.start_unix_ms >= 0:
            kept &= times >= options.start_unix_ms
        if options.end_unix_ms >= 0:
            kept &= times < options.end_unix_ms
        return kept

    def _lateness(
        self, times: Ints, columns: Columns, is_stamped: npt.NDArray[np.bool_]
    ) -> tuple[pa.Array, pa.Array]:
        """Return (least ms from a record's time to its append, ms from its due time to its append).

        The log does not store the time of an append. If the producer sets a record's time, the
        record was appended after each earlier record with a later time; so its latency is at least
        the difference. If the log sets the time, that is the append, and a delayed message has its
        due time.
        """
        highest = np.maximum.accumulate(np.append(self._highest_unix_ms, times))
        self._highest_unix_ms = int(highest[-1])
        late = np.maximum(highest[:-1] - times, 0)
        said = named_header(columns.headers, _DELIVER_AT)
        is_time = pc.match_substring_regex(said, r"^\d{1,15}$")
        due = pc.cast(pc.if_else(is_time, said, None), pa.int64())
        overdue = pc.subtract(pa.array(times, mask=~is_stamped), due)
        return pa.array(late, mask=is_stamped | (times < 0)), overdue


def _sizes(columns: Columns) -> Ints:
    """Return the size of each record's key, value and headers, without framing."""
    sizes = _lengths(columns.keys) + _lengths(columns.values)
    pairs = columns.headers.values
    ends = np.append(0, np.cumsum(_lengths(pairs.field(0)) + _lengths(pairs.field(1))))
    offsets = columns.headers.offsets.to_numpy()
    total: Ints = sizes + ends[offsets[1:]] - ends[offsets[:-1]]
    return total


def _lengths(values: pa.Array) -> Ints:
    found: Ints = pc.fill_null(pc.binary_length(values), 0).to_numpy().astype(np.int64)
    return found
