"""Rows of the log and rows of a lake table as data frames with the same columns and hashes."""

import pickle
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.errors import RequestError
from gateway.model import PartitionIdentity
from pipeline.audit.records import last_offset_of
from pipeline.lake.files import within_calendar
from pipeline.lake.place import open_place, reaching
from pipeline.lake.port import check_format
from pipeline.lake.table import LakeTable, TableFile
from pipeline.lake.table_reading import read_table
from pipeline.log.options import Options
from pipeline.log.reading import BadBatch, read_split
from pipeline.log.row_schema import HEADERS, HEADERS_SQL, ROWS
from pipeline.log.splits import Split

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_ROW_SQL: Final = (
    "topic string, partition int, offset long, unix_us long, key binary, value binary, "
    f"headers {HEADERS_SQL}"
)
_DAMAGE_SQL: Final = ", last_offset long, damage string"
_ROWS_AT_ONCE: Final = 16_384
_BLOCK_OFFSETS: Final = 65_536

Task = TypeVar("Task")


class NoTable(RequestError):
    """The table does not exist."""


class LakeRows(Protocol):
    """A table that ``archive`` keeps."""

    def position(self, identity: PartitionIdentity) -> int | None:
        """Return the next offset of a partition to archive, None before the first."""
        ...

    def frame(self, spark: "SparkSession") -> "DataFrame":
        """Return all rows, with ``hash`` and ``block``."""
        ...


class TableRows:
    """A read-only snapshot of a table of any format."""

    def __init__(self, table: LakeTable) -> None:
        self._table = table

    def position(self, identity: PartitionIdentity) -> int | None:
        """See ``LakeRows``."""
        return self._table.position(identity)

    def frame(self, spark: "SparkSession") -> "DataFrame":
        """See ``LakeRows``."""
        url = self._table.url
        return in_tasks(spark, self._table.files, _ROW_SQL, lambda file: _file_rows(url, file))


def open_rows(
    url: str,
    job_id: str,
    *,
    table_format: str = "",
    catalog: str = "",
    topics: Collection[str] = (),
) -> TableRows:
    """Return the rows of the table at ``url``; see ``lake_tables.read_table``.

    ``table_format`` empty: detected. Errors: ``NoTable``, those of ``read_table``.
    """
    if table_format:
        check_format(url, table_format)
    table = read_table(url, job_id=job_id, catalog=catalog, topics=topics)
    if table is None:
        raise NoTable(f"{url} holds no lake table")
    return TableRows(table)


def log_rows(spark: "SparkSession", splits: list[Split], options: Options) -> "DataFrame":
    """Return the log's rows, with ``hash`` and ``block``.

    A batch that cannot be decoded is a row with ``damage``, ``offset`` and ``last_offset``.
    """
    return in_tasks(
        spark, splits, _ROW_SQL + _DAMAGE_SQL, lambda split: _split_rows(split, options)
    )


def in_tasks(
    spark: "SparkSession",
    tasks: Sequence[Task],
    schema: str,
    read: Callable[[Task], Iterator[pa.RecordBatch]],
) -> "DataFrame":
    """Return the rows that ``read`` yields for each task, hashed."""
    pickled = [(pickle.dumps(one),) for one in tasks]
    frame = spark.createDataFrame(
        spark.sparkContext.parallelize(pickled, max(len(pickled), 1)), "task binary"
    )

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield from read(pickle.loads(task))  # noqa: S301 - ours

    return with_hash(frame.mapInArrow(rows, schema))


def with_hash(rows: "DataFrame") -> "DataFrame":
    """Return rows with a ``hash`` of the whole record, and its ``block``.

    Nulls do not change a hash of Spark's, so flags mark the values that are not null.
    """
    from pyspark.sql import functions as sf

    def flagged(column: "Column") -> "list[Column]":
        return [column.isNull(), column]

    headers = sf.coalesce(sf.col("headers"), sf.array().cast(HEADERS_SQL))
    pairs = sf.transform(
        headers, lambda one: sf.struct(one["key"], one["value"].isNull(), one["value"])
    )
    digest = sf.xxhash64(
        sf.col("offset"),
        sf.col("unix_us"),
        *flagged(sf.col("key")),
        *flagged(sf.col("value")),
        sf.size(headers),
        pairs,
    )
    block = sf.floor(sf.col("offset") / _BLOCK_OFFSETS).cast("long")
    return rows.withColumn("hash", digest).withColumn("block", block)


def _split_rows(split: Split, options: Options) -> Iterator[pa.RecordBatch]:
    bad: list[BadBatch] = []
    for rows in read_split(split, options, ROWS, bad=bad):
        nulls = [pa.nulls(rows.num_rows, kind) for kind in (pa.int64(), pa.string())]
        yield _as_rows(within_calendar(rows), nulls)
    if bad:
        yield _damage(bad)


def _file_rows(url: str, file: TableFile) -> Iterator[pa.RecordBatch]:
    place = open_place(url)
    names = [name for name in ROWS.names if name != "topic" or not file.topic]
    with reaching(url), place.files.open_input_file(f"{place.root}/{file.path}") as stream:
        parquet = pq.ParquetFile(stream)
        missing = [name for name in names if name not in parquet.schema_arrow.names]
        if missing:
            raise RequestError(f"{url}/{file.path} has no column {', '.join(missing)}")
        for rows in parquet.iter_batches(_ROWS_AT_ONCE, columns=names):
            columns = {name: rows.column(name).cast(ROWS.field(name).type) for name in names}
            columns.setdefault("topic", pa.repeat(file.topic, rows.num_rows))
            arrays = [columns[name] for name in ROWS.names]
            yield _as_rows(pa.RecordBatch.from_arrays(arrays, schema=ROWS), [])


def _as_rows(rows: pa.RecordBatch, more: list[pa.Array]) -> pa.RecordBatch:
    arrays = [
        rows.column(name).cast(pa.int64()) if name == "timestamp" else rows.column(name)
        for name in ROWS.names
    ]
    names = ["unix_us" if name == "timestamp" else name for name in ROWS.names]
    if more:
        names += ["last_offset", "damage"]
    return pa.RecordBatch.from_arrays([*arrays, *more], names=names)


def _damage(bad: list[BadBatch]) -> pa.RecordBatch:
    count = len(bad)
    arrays = [
        pa.array([one.topic for one in bad], pa.string()),
        pa.array([one.number for one in bad], pa.int32()),
        pa.array([one.base_offset for one in bad], pa.int64()),
        pa.nulls(count, pa.int64()),
        pa.nulls(count, pa.binary()),
        pa.nulls(count, pa.binary()),
        pa.nulls(count, HEADERS),
        pa.array([last_offset_of(one) for one in bad], pa.int64()),
        pa.array([one.reason for one in bad], pa.string()),
    ]
    names = ["unix_us" if name == "timestamp" else name for name in ROWS.names]
    return pa.RecordBatch.from_arrays(arrays, names=[*names, "last_offset", "damage"])
