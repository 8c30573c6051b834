"""Worker's part of an archive: write one split to Parquet files by topic and day.

The files become part of the table by the driver's commit; files of a killed run never do.
"""

import json
import uuid
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gateway.clock import SystemClock
from pipeline.lake_places import open_place
from pipeline.options import Options
from pipeline.reading import BadBatch, read_split
from pipeline.rows import ROWS
from pipeline.splits import Split

BAD: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("number", pa.int32()),
        ("base_offset", pa.int64()),
        ("reason", pa.string()),
        ("octets", pa.binary()),  # as the tables that users have call it
    ]
)
FILE_BYTES_MAX: Final = 512 * 1024 * 1024
FILE_MS_MAX: Final = 600_000
_OPEN_MAX: Final = 64  # files that a split has open at once; beyond it they are closed and new
_DAY_US: Final = 86_400_000_000
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_MOMENTS_US: Final = (
    (date.min.toordinal() - _EPOCH_DAY) * _DAY_US,
    (date.max.toordinal() - _EPOCH_DAY) * _DAY_US,
)
_BOUNDED: Final = ("partition", "offset")


class TableKind(NamedTuple):
    """Kind of a table: its columns, and whether it is partitioned by topic and day."""

    columns: pa.Schema
    by_day: bool


ROWS_KIND: Final = TableKind(ROWS, by_day=True)
BAD_KIND: Final = TableKind(BAD, by_day=False)


class Layout(NamedTuple):
    """Layout of a format's files.

    ``in_path``: topic and day are in the path, ``topic=a/day=b``, and not in the files.
    """

    columns: pa.Schema
    in_path: bool

    def folder(self, topic: str, day: str) -> str:
        """Return the folder of a topic's and day's files, below the table."""
        return f"topic={topic}/day={day}" if self.in_path else f"data/{topic}/{day}"


class FileLimits(NamedTuple):
    """Limits at which a file is closed; the next row begins another."""

    bytes_max: int = FILE_BYTES_MAX
    open_ms_max: int = FILE_MS_MAX


class LakeFile(NamedTuple):
    """A finished file. ``path`` is below the table, ``stats`` as Delta Lake has them."""

    path: str
    topic: str
    day: str
    row_count: int
    size_bytes: int
    stats: str


class SplitResult(NamedTuple):
    """Result of one split."""

    files: list[LakeFile]
    bad: list[BadBatch]


def write_split(
    split: Split, options: Options, url: str, layout: Layout, limits: FileLimits
) -> SplitResult:
    """Write one split's rows. Errors: those of ``read_split``, ``OSError``."""
    bad: list[BadBatch] = []
    writers = _Writers(url, layout, limits)
    try:
        for rows in read_split(split, options, ROWS, bad=bad):
            for topic, day, part in _by_day(rows, layout):
                writers.write(topic, day, part)
    finally:
        writers.close()
    return SplitResult(writers.finished, bad)


def write_bad(url: str, bad: Sequence[BadBatch]) -> LakeFile:
    """Write batches that could not be decoded to a file of the dead letters' table."""
    path = f"{uuid.uuid4().hex}.parquet"
    rows = pa.Table.from_pylist(
        [{**one._asdict(), "octets": one.data} for one in bad], schema=BAD
    )
    place = open_place(url)
    with place.create(path) as stream:
        pq.write_table(rows, stream, compression="zstd")
        size_bytes = stream.tell()
    place.sync(path)
    stats = json.dumps({"numRecords": rows.num_rows})
    return LakeFile(path, "", "", rows.num_rows, size_bytes, stats)


def within_calendar(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows for a table, with a ``timestamp`` beyond the calendar set to its last one."""
    moments = rows.column("timestamp").cast(pa.int64()).to_numpy()
    if moments.min() >= _MOMENTS_US[0] and moments.max() <= _MOMENTS_US[1]:
        return rows
    clipped = pa.array(np.clip(moments, *_MOMENTS_US)).cast(ROWS.field("timestamp").type)
    return rows.set_column(rows.schema.get_field_index("timestamp"), "timestamp", clipped)


def _by_day(rows: pa.RecordBatch, layout: Layout) -> Iterator[tuple[str, str, pa.RecordBatch]]:
    """Yield (topic, day, rows)."""
    topic = rows.column("topic")[0].as_py()  # each batch of a split has one topic
    rows = within_calendar(rows)
    moments = rows.column("timestamp").cast(pa.int64()).to_numpy()
    days = np.floor_divide(moments, _DAY_US)
    chosen = rows.select(layout.columns.names)
    found = np.unique(days).tolist() if days.min() != days.max() else [int(days[0])]
    for day in found:
        part = chosen if len(found) == 1 else chosen.filter(pa.array(days == day))
        yield topic, date.fromordinal(day + _EPOCH_DAY).isoformat(), part


class _Writers:
    """The open files of a split."""

    def __init__(self, url: str, layout: Layout, limits: FileLimits) -> None:
        self.finished: list[LakeFile] = []
        self._place = open_place(url)
        self._layout = layout
        self._limits = limits
        self._clock = SystemClock()
        self._open: dict[tuple[str, str], _Writer] = {}

    def write(self, topic: str, day: str, rows: pa.RecordBatch) -> None:
        writer = self._open.get((topic, day))
        if writer is None:
            if len(self._open) >= _OPEN_MAX:
                self.close()
            path = f"{self._layout.folder(topic, day)}/{uuid.uuid4().hex}.parquet"
            stream = self._place.create(path)
            columns = self._layout.columns
            writer = _Writer(stream, columns, LakeFile(path, topic, day, 0, 0, ""))
            writer.close_at_ms = self._clock.monotonic_ms() + self._limits.open_ms_max
            self._open[topic, day] = writer
        writer.write(rows)
        self._close_due()

    def close(self) -> None:
        for writer in self._open.values():
            self._finish(writer)
        self._open.clear()

    def _close_due(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for place, writer in list(self._open.items()):
            if writer.size_bytes >= self._limits.bytes_max or now_ms >= writer.close_at_ms:
                self._finish(writer)
                del self._open[place]

    def _finish(self, writer: "_Writer") -> None:
        file = writer.close()
        self._place.sync(file.path)
        self.finished.append(file)


class _Writer:
    """One file. ``close_at_ms``: by the monotonic clock."""

    close_at_ms = 0

    def __init__(self, stream: pa.NativeFile, columns: pa.Schema, file: LakeFile) -> None:
        self._stream = stream
        self._file = file
        self._writer = pq.ParquetWriter(stream, columns, compression="zstd")
        self._row_count = 0
        self._bounds: dict[str, tuple[int, int]] = {}

    @property
    def size_bytes(self) -> int:
        """Size of the data written, without rows that Parquet still buffers."""
        return int(self._stream.tell())

    def write(self, rows: pa.RecordBatch) -> None:
        self._writer.write_batch(rows)
        self._row_count += rows.num_rows
        for name in _BOUNDED:
            low, high = pc.min_max(rows.column(name).cast(pa.int64())).as_py().values()
            before = self._bounds.get(name, (low, high))
            self._bounds[name] = (min(low, before[0]), max(high, before[1]))

    def close(self) -> LakeFile:
        self._writer.close()
        size_bytes = self.size_bytes
        self._stream.close()
        return self._file._replace(
            row_count=self._row_count, size_bytes=size_bytes, stats=self._stats()
        )

    def _stats(self) -> str:
        return json.dumps(
            {
                "numRecords": self._row_count,
                "minValues": {name: low for name, (low, _) in self._bounds.items()},
                "maxValues": {name: high for name, (_, high) in self._bounds.items()},
            }
        )
