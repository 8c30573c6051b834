"""Compaction of a lake table's small files by topic and day, beside writers and readers.

Rows and positions do not change. Replaced files stay for readers that have begun: Delta's
``vacuum`` and Iceberg's expiry of snapshots remove them; those of plain Parquet are removed by the
first compaction a day later.
"""

import uuid
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow.parquet as pq

from gateway.clock import SystemClock
from pipeline.lake_files import LakeFile, Layout
from pipeline.lake_places import open_place, reaching
from pipeline.lakes import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.parquet_lake import ParquetLake

KEPT_MS: Final = 24 * 3_600_000
_SMALL_PART: Final = 2  # a file below half of the size that files should have is small
_ROWS_AT_ONCE: Final = 16_384


class OneFile(NamedTuple):
    """A file of a table. ``path`` is below the table."""

    path: str
    topic: str
    day: str
    size_bytes: int


class Compacted(NamedTuple):
    """Result of a compaction."""

    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0


def compact_files(spark: "SparkSession", lake: Lake, *, file_bytes: int) -> Compacted:
    """Merge small files of a table into files of about ``file_bytes``.

    Errors: ``Overtaken`` when another compaction has replaced the same files meanwhile,
    ``LakeUnavailable``.
    """
    from pipeline.delta_lake import DeltaLake
    from pipeline.iceberg_lake import IcebergLake
    from pipeline.parquet_lake import ParquetLake

    if isinstance(lake, DeltaLake):
        return Compacted(*lake.compact(file_bytes=file_bytes))
    assert isinstance(lake, IcebergLake | ParquetLake)
    chosen = bins(lake.listed(), file_bytes=file_bytes)
    url, layout = lake.url, lake.layout
    written: list[LakeFile] = []
    if chosen:
        tasks = spark.sparkContext.parallelize(chosen, len(chosen))
        written = tasks.map(lambda some: merge(some, url, layout)).collect()
        lake.replace([one.path for some in chosen for one in some], written)
    if isinstance(lake, ParquetLake):
        _remove_replaced(lake)
    return Compacted(
        sum(map(len, chosen)),
        len(written),
        sum(one.size_bytes for some in chosen for one in some),
        sum(one.size_bytes for one in written),
    )


def bins(files: Iterable[OneFile], *, file_bytes: int) -> list[list[OneFile]]:
    """Group small files by topic and day, at least two to a group.

    >>> small = [OneFile(name, "t", "d", 30) for name in "abcde"]
    >>> [[one.path for one in some] for some in bins(small, file_bytes=100)]
    [['a', 'b', 'c'], ['d', 'e']]
    """
    by_day: dict[tuple[str, str], list[list[OneFile]]] = {}
    for one in sorted(files):
        if one.size_bytes * _SMALL_PART >= file_bytes:
            continue
        found = by_day.setdefault((one.topic, one.day), [[]])
        if sum(other.size_bytes for other in found[-1]) + one.size_bytes > file_bytes:
            found.append([])
        found[-1].append(one)
    return [some for found in by_day.values() for some in found if len(some) > 1]


def merge(some: Sequence[OneFile], url: str, layout: Layout) -> LakeFile:
    """Write the rows of some files of one topic and day into a new one. Error: ``OSError``."""
    place = open_place(url)
    topic, day = some[0].topic, some[0].day
    path = f"{layout.folder(topic, day)}/{uuid.uuid4().hex}.parquet"
    row_count = 0
    with (
        place.create(path) as stream,
        pq.ParquetWriter(stream, layout.columns, compression="zstd") as writer,
    ):
        for one in some:
            with place.files.open_input_file(f"{place.root}/{one.path}") as source:
                for rows in pq.ParquetFile(source).iter_batches(_ROWS_AT_ONCE):
                    writer.write_batch(rows.cast(layout.columns))
                    row_count += rows.num_rows
    place.sync(path)
    size_bytes = place.files.get_file_info(f"{place.root}/{path}").size
    return LakeFile(path, topic, day, row_count, size_bytes, "")


def _remove_replaced(lake: "ParquetLake") -> None:
    """Delete files replaced a day ago; after a crash, the next run deletes the rest."""
    from pipeline.parquet_lake import Change

    before_unix_ms = SystemClock().unix_ms() - KEPT_MS
    gone = [path for path, since in lake.content.replaced.items() if since < before_unix_ms]
    if not gone:
        return
    place = open_place(lake.url)
    with reaching(lake.url):
        for path in gone:
            place.delete(path)
    lake.change(Change(deleted=gone))
