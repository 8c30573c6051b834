"""Reading of a split as Arrow record batches, in a worker of Spark."""

from collections.abc import Iterator
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from gateway.errors import CorruptBatch, GatewayError
from pipeline.log.access import advice, open_extents, relocate, stay
from pipeline.log.columns import (
    COLUMNS,
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
from pipeline.log.views import Extent, ExtentReader, FileGone

_OF_HEADERS: Final = frozenset({"headers", "protocol"})
_BYTES_AT_ONCE: Final = 8 * 1024 * 1024
_TIME_MS_MAX: Final = ((1 << 63) - 1) // 1_000  # the largest that fits microseconds


class BrokenSplit(GatewayError):
    """A split cannot be read; the message names file, position and remedy."""


class BadBatch(NamedTuple):
    """A stored batch that cannot be decoded."""

    topic: str
    number: int
    base_offset: int
    reason: str
    data: bytes


def read_split(
    split: Split, options: Options, schema: pa.Schema, *, bad: list[BadBatch] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a split, in order of offset for each partition.

    Each batch of rows is of one partition. Batches that cannot be decoded are added to
    ``bad``, if given. Errors: ``OffsetOutOfRange``, ``StorageUnavailable``, and ``BrokenSplit``
    without ``bad``.
    """
    waiting = split.pieces
    while waiting:
        pieces = list(next(groupby(waiting, key=_path_of))[1])
        behind = waiting[len(pieces) :]
        current: _PieceReader | None = None
        try:
            with open_extents(
                options, _path_of(pieces[0]), [one.extent for one in pieces]
            ) as reader:
                while pieces:
                    stay(options, split.lease)
                    current = _PieceReader(pieces[0], options, schema, bad)
                    yield from current.rows(reader)
                    del pieces[0]
        except FileGone:  # the node has rewritten the file
            if current is not None:
                pieces[0] = current.rest()
            pieces = _found_again(pieces, options)
        waiting = pieces + behind


def _path_of(piece: Piece) -> str:
    return piece.extent.path


def _found_again(pieces: list[Piece], options: Options) -> list[Piece]:
    found = relocate(options, [piece.extent for piece in pieces])
    return [
        piece._replace(extent=extent)
        for piece, extents in zip(pieces, found, strict=True)
        for extent in extents
    ]


class _PieceReader:
    """Reader of a piece's offsets in one file."""

    def __init__(
        self,
        piece: Piece,
        options: Options,
        schema: pa.Schema,
        bad: list[BadBatch] | None,
    ) -> None:
        self._piece = piece
        self._extent = piece.extent
        self._options = options
        self._schema = schema
        self._bad = bad
        self._refused: list[BadBatch] = []  # since the last rows
        self._position = piece.extent.first

    def rows(self, reader: ExtentReader) -> Iterator[pa.RecordBatch]:
        """Yield the rows. Error: ``FileGone``, after which ``rest`` remains to be read."""
        gathered: list[tuple[StoredBatch, memoryview]] = []
        size_bytes = 0
        from_unix_ms = self._options.start_unix_ms
        extent = self._extent
        for base_offset, data in without_aborted(reader.batches(extent), extent):
            try:
                batch = read_batch(data, base_offset, from_unix_ms=from_unix_ms)
            except GatewayError as error:
                self._refuse(base_offset, data, error)
                continue
            if batch is None:
                continue
            gathered.append((batch, data))
            size_bytes += len(batch.records)
            if size_bytes >= _BYTES_AT_ONCE:
                yield from self._flushed(gathered)
                gathered, size_bytes = [], 0
        yield from self._flushed(gathered)

    def rest(self) -> Piece:
        """Return the piece without the rows yielded or refused."""
        return self._piece._replace(extent=self._extent._replace(first=self._position))

    def _flushed(
        self, batches: list[tuple[StoredBatch, memoryview]]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of batches, which are not read again."""
        tables = list(self._decoded(batches)) if batches else []
        if self._bad is not None:
            self._bad += self._refused
        self._refused = []
        if batches:
            last = batches[-1][0]
            self._position = last.base_offset + last.header.last_offset_delta + 1
        yield from tables

    def _decoded(
        self, batches: list[tuple[StoredBatch, memoryview]]
    ) -> Iterator[pa.RecordBatch]:
        """Decode all batches at once; if one is damaged, each by itself."""
        try:
            rows = self._table([batch for batch, _ in batches])
        except CorruptBatch as error:
            if len(batches) == 1:
                ((batch, data),) = batches
                self._refuse(batch.base_offset, data, error)
                return
            for one in batches:
                yield from self._decoded([one])
        else:
            if rows.num_rows:  # none if compaction removed the batch's records at these offsets
                yield rows

    def _table(self, batches: list[StoredBatch]) -> pa.RecordBatch:
        """Return the rows of batches. Error: ``CorruptBatch``."""
        options, extent = self._options, self._extent
        names = self._schema.names
        columns = decode_columns(
            batches,
            with_keys="key" in names,
            with_values="value" in names,
            with_headers=bool(_OF_HEADERS.intersection(names) or options.header_columns),
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

    def _refuse(self, base_offset: int, data: memoryview, error: GatewayError) -> None:
        if self._bad is None:
            raise _broken(self._options, self._extent, base_offset, error) from error
        piece = self._piece
        if piece.follows and base_offset < piece.extent.first:
            return
        self._refused.append(
            BadBatch(piece.topic, piece.number, base_offset, str(error), bytes(data))
        )


def _broken(options: Options, extent: Extent, offset: int, error: GatewayError) -> BrokenSplit:
    return BrokenSplit(
        f"{extent.path}: the batch at offset {offset}: {error}. {advice(options, extent)}, or "
        "read around the offset with startingOffsets"
    )


def _array(name: str, piece: Piece, columns: Columns, count: int) -> pa.Array:
    if name == "topic":
        return pa.repeat(piece.topic, count)
    if name == "partition":
        return pa.array(np.full(count, piece.number, np.int32))
    if name == "offset":
        return pa.array(columns.offsets)
    if name == "timestamp":
        millis = np.clip(columns.timestamps_unix_ms, -_TIME_MS_MAX, _TIME_MS_MAX)
        micros = pa.array(millis * 1_000)
        return micros.cast(pa.timestamp("us", tz="UTC"))
    if name == "protocol":
        return protocols(columns.headers)
    found: pa.Array = {
        "key": columns.keys,
        "value": columns.values,
        "headers": columns.headers,
    }[name]
    return found
