"""Worker's part of an archive: write one split to Parquet files by topic and day.

The files become part of the table by the driver's commit; files of a killed run never do.
"""

import json
import uuid
from collections.abc import Iterator
from datetime import date
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gateway.clock import SystemClock
from pipeline.lake.files import DAY_US, EPOCH_DAY, LakeFile, Layout, within_calendar
from pipeline.lake.place import open_place
from pipeline.log.options import Options
from pipeline.log.reading import BadBatch, read_split
from pipeline.log.row_schema import ROWS
from pipeline.log.splits import Split

FILE_BYTES_MAX: Final = 512 * 1024 * 1024
FILE_MS_MAX: Final = 600_000
_OPEN_MAX: Final = 64  # files that a split has open at once; beyond it they are closed and new
_BOUNDED: Final = ("partition", "offset")


class FileLimits(NamedTuple):
    """Limits at which a file is closed; the next row begins another."""

    bytes_max: int = FILE_BYTES_MAX
    open_ms_max: int = FILE_MS_MAX


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


def _by_day(rows: pa.RecordBatch, layout: Layout) -> Iterator[tuple[str, str, pa.RecordBatch]]:
    """Yield (topic, day, rows)."""
    topic = rows.column("topic")[0].as_py()  # each batch of a split has one topic
    rows = within_calendar(rows)
    moments = rows.column("timestamp").cast(pa.int64()).to_numpy()
    days = np.floor_divide(moments, DAY_US)
    chosen = rows.select(layout.columns.names)
    found = np.unique(days).tolist() if days.min() != days.max() else [int(days[0])]
    for day in found:
        part = chosen if len(found) == 1 else chosen.filter(pa.array(days == day))
        yield topic, date.fromordinal(day + EPOCH_DAY).isoformat(), part


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
