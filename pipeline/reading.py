"""A split as Arrow record batches, as a worker of Spark yields them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from gateway.errors import CorruptBatch, GatewayError
from pipeline.columns import (
    COLUMNS,
    Columns,
    StoredBatch,
    decode_columns,
    named_header,
    read_batch,
)
from pipeline.local_log import Extent, ExtentReader, FileGone, find_again, open_extents
from pipeline.options import Options
from pipeline.splits import Piece, Split

_BYTES_AT_ONCE: Final = 8 * 1024 * 1024


class BrokenSplit(GatewayError):
    """A split cannot be read; the message says which file, where, and what to do."""


class BadBatch(NamedTuple):
    """A batch that cannot be decoded, as it lies in the log."""

    topic: str
    number: int
    base_offset: int
    reason: str
    octets: bytes


def read_split(
    split: Split, options: Options, schema: pa.Schema, *, bad: list[BadBatch] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a split, in order of offset for each partition.

    Each batch of rows is of one partition. What cannot be decoded is added to ``bad``, where
    there is one. Errors: ``OffsetOutOfRange``, and ``BrokenSplit`` without it.
    """
    for piece in split.pieces:
        waiting = [piece.extent]
        while waiting:
            extent = waiting.pop(0)
            try:
                with open_extents(extent.path) as reader:
                    yield from _PieceReader(piece, extent, options, schema, bad).rows(reader)
            except FileGone:  # the node has rewritten it
                waiting = [*find_again(options.data_dir, extent), *waiting]


class _PieceReader:
    """Reads the offsets of a piece that one file has."""

    def __init__(
        self,
        piece: Piece,
        extent: Extent,
        options: Options,
        schema: pa.Schema,
        bad: list[BadBatch] | None,
    ) -> None:
        self._piece = piece
        self._extent = extent
        self._options = options
        self._schema = schema
        self._bad = bad

    def rows(self, reader: ExtentReader) -> Iterator[pa.RecordBatch]:
        gathered: list[tuple[StoredBatch, memoryview]] = []
        size_bytes = 0
        for base_offset, octets in reader.batches(self._extent):
            try:
                batch = read_batch(octets, base_offset)
            except GatewayError as error:
                self._refuse(base_offset, octets, error)
                continue
            if batch is None:
                continue
            gathered.append((batch, octets))
            size_bytes += len(batch.records)
            if size_bytes >= _BYTES_AT_ONCE:
                yield from self._decoded(gathered)
                gathered, size_bytes = [], 0
        if gathered:
            yield from self._decoded(gathered)

    def _decoded(
        self, batches: list[tuple[StoredBatch, memoryview]]
    ) -> Iterator[pa.RecordBatch]:
        """Decode all at once; where one lies, each by itself."""
        try:
            yield self._table([batch for batch, _ in batches])
        except CorruptBatch as error:
            if len(batches) == 1:
                ((batch, octets),) = batches
                self._refuse(batch.base_offset, octets, error)
                return
            for one in batches:
                yield from self._decoded([one])

    def _table(self, batches: list[StoredBatch]) -> pa.RecordBatch:
        """Return the rows of batches. Error: ``CorruptBatch``."""
        options, extent = self._options, self._extent
        names = self._schema.names
        columns = decode_columns(
            batches,
            with_keys="key" in names,
            with_values="value" in names,
            with_headers="headers" in names or bool(options.header_columns),
        )
        count = len(columns.offsets)
        arrays = [
            _array(name, self._piece, columns, count)
            if name in COLUMNS
            else named_header(columns.headers, name)
            for name in names
        ]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        kept = (columns.offsets >= extent.first) & (columns.offsets < extent.end)
        if options.start_unix_ms >= 0:
            kept &= columns.timestamps_unix_ms >= options.start_unix_ms
        if options.end_unix_ms >= 0:
            kept &= columns.timestamps_unix_ms < options.end_unix_ms
        return rows if kept.all() else rows.filter(pa.array(kept))

    def _refuse(self, base_offset: int, octets: memoryview, error: GatewayError) -> None:
        if self._bad is None:
            raise _broken(self._extent, base_offset, error) from error
        piece = self._piece
        self._bad.append(
            BadBatch(piece.topic, piece.number, base_offset, str(error), bytes(octets))
        )


def _broken(extent: Extent, offset: int, error: GatewayError) -> BrokenSplit:
    return BrokenSplit(
        f"{extent.path}: the batch at offset {offset}: {error}. `headgate log verify "
        f"{Path(extent.path).parents[1]}` says what else is damaged; restore the file from a "
        "backup, or read around the offset with startingOffsets"
    )


def _array(name: str, piece: Piece, columns: Columns, count: int) -> pa.Array:
    if name == "topic":
        return pa.repeat(piece.topic, count)
    if name == "partition":
        return pa.array(np.full(count, piece.number, np.int32))
    if name == "offset":
        return pa.array(columns.offsets)
    if name == "timestamp":
        micros = pa.array(columns.timestamps_unix_ms * 1_000)
        return micros.cast(pa.timestamp("us", tz="UTC"))
    found: pa.Array = {
        "key": columns.keys,
        "value": columns.values,
        "headers": columns.headers,
    }[name]
    return found
