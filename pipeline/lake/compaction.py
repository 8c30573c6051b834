"""Compaction of a lake table's small files by topic and day, beside writers and readers.

Rows and positions do not change. Replaced files stay for readers that have begun: Delta's
``vacuum`` and Iceberg's expiry of snapshots remove them; those of plain Parquet are removed by the
first compaction a day later.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.clock import SystemClock
from pipeline.lake.files import LakeFile
from pipeline.lake.merging import bins, merge
from pipeline.lake.place import open_place, reaching
from pipeline.lake.port import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.lake.parquet import ParquetLake

KEPT_MS: Final = 24 * 3_600_000


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
    from pipeline.lake.delta import DeltaLake
    from pipeline.lake.iceberg import IcebergLake
    from pipeline.lake.parquet import ParquetLake

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


def _remove_replaced(lake: "ParquetLake") -> None:
    """Delete files replaced a day ago; after a crash, the next run deletes the rest."""
    from pipeline.lake.parquet import Change

    before_unix_ms = SystemClock().unix_ms() - KEPT_MS
    gone = [path for path, since in lake.content.replaced.items() if since < before_unix_ms]
    if not gone:
        return
    place = open_place(lake.url)
    with reaching(lake.url):
        for path in gone:
            place.delete(path)
    lake.change(Change(deleted=gone))
