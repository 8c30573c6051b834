"""What a worker does of an archive: one split into Parquet files, by topic and day.

Nothing of it counts before the driver's commit names the files; what a killed run leaves behind
is never part of the table.
"""

import json
import uuid
from collections.abc import Iterator
from datetime import date
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.lake_places import open_place
from pipeline.options import Options
from pipeline.reading import BadBatch, read_split
from pipeline.splits import Split

ROWS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        (
            "headers",
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        ),
    ]
)
IN_FILES: Final = pa.schema([field for field in ROWS if field.name != "topic"])
_OPEN_MAX: Final = 64  # files that a split has open at once; beyond it they are closed and new
_DAY: Final = pa.date32()


class LakeFile(NamedTuple):
    """A finished file. ``path`` is below the table, ``stats`` as Delta Lake has them."""

    path: str
    topic: str
    day: str
    row_count: int
    size_bytes: int
    stats: str


class SplitResult(NamedTuple):
    """What became of one split."""

    files: list[LakeFile]
    bad: list[BadBatch]


def write_split(split: Split, options: Options, url: str) -> SplitResult:
    """Write one split's rows. Errors: those of ``read_split``, ``OSError``."""
    bad: list[BadBatch] = []
    writers = _Writers(url)
    try:
        for rows in read_split(split, options, ROWS, bad=bad):
            for topic, day, part in _by_day(rows):
                writers.write(topic, day, part)
    finally:
        writers.close()
    return SplitResult(writers.finished, bad)


def _by_day(rows: pa.RecordBatch) -> Iterator[tuple[str, str, pa.RecordBatch]]:
    topic = rows.column("topic")[0].as_py()  # a split's batches are of one topic each
    days = rows.column("timestamp").cast(_DAY)
    without_topic = rows.select(IN_FILES.names)
    found: list[date] = pc.unique(days).to_pylist()
    for day in found:
        part = without_topic if len(found) == 1 else without_topic.filter(pc.equal(days, day))
        yield topic, day.isoformat(), part


class _Writers:
    """The open files of a split."""

    def __init__(self, url: str) -> None:
        self.finished: list[LakeFile] = []
        self._place = open_place(url)
        self._open: dict[tuple[str, str], _Writer] = {}

    def write(self, topic: str, day: str, rows: pa.RecordBatch) -> None:
        writer = self._open.get((topic, day))
        if writer is None:
            if len(self._open) >= _OPEN_MAX:
                self.close()
            path = f"topic={topic}/day={day}/{uuid.uuid4().hex}.parquet"
            writer = self._open[topic, day] = _Writer(
                self._place.create(path), path, topic, day
            )
        writer.write(rows)

    def close(self) -> None:
        self.finished += [writer.close() for writer in self._open.values()]
        self._open.clear()


class _Writer:
    def __init__(self, stream: pa.NativeFile, path: str, topic: str, day: str) -> None:
        self._stream = stream
        self._path, self._topic, self._day = path, topic, day
        self._writer = pq.ParquetWriter(stream, IN_FILES, compression="zstd")
        self._row_count = 0
        self._bounds: dict[str, tuple[int, int]] = {}

    def write(self, rows: pa.RecordBatch) -> None:
        self._writer.write_batch(rows)
        self._row_count += rows.num_rows
        for name in ("partition", "offset", "timestamp"):
            numbers = rows.column(name)
            if name == "timestamp":
                numbers = numbers.cast(pa.int64())
            low, high = pc.min_max(numbers).as_py().values()
            before = self._bounds.get(name, (low, high))
            self._bounds[name] = (min(low, before[0]), max(high, before[1]))

    def close(self) -> LakeFile:
        self._writer.close()
        size_bytes = self._stream.tell()
        self._stream.close()
        return LakeFile(
            self._path, self._topic, self._day, self._row_count, size_bytes, self._stats()
        )

    def _stats(self) -> str:
        numbers = {name: self._bounds[name] for name in ("partition", "offset")}
        return json.dumps(
            {
                "numRecords": self._row_count,
                "minValues": {name: low for name, (low, _) in numbers.items()},
                "maxValues": {name: high for name, (_, high) in numbers.items()},
            }
        )
