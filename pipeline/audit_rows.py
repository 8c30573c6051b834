"""Rows of the log and rows of a lake table as data frames with the same columns and hashes."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from gateway.errors import RequestError
from gateway.model import PartitionIdentity
from pipeline.audit_records import last_offset_of
from pipeline.lake_files import within_calendar
from pipeline.lake_places import open_place, storage_options, unavailable
from pipeline.lakes import position_name
from pipeline.options import Options
from pipeline.reading import BadBatch, read_split
from pipeline.splits import Split

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_READ: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _HEADERS),
    ]
)
_ROW_SQL: Final = (
    "topic string, partition int, offset long, unix_us long, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>"
)
_DAMAGE_SQL: Final = ", last_offset long, damage string"
_UNREADABLE_FEATURES: Final = frozenset({"deletionVectors", "columnMapping"})
_ROWS_AT_ONCE: Final = 16_384
_BLOCK_OFFSETS: Final = 65_536

Task = TypeVar("Task")


class NoTable(RequestError):
    """There is no table, or one that cannot be compared."""


class LakeRows(Protocol):
    """A table that ``archive`` keeps."""

    def position(self, identity: PartitionIdentity) -> int | None:
        """Return the next offset of a partition to archive, None when none ever was."""
        ...

    def frame(self, spark: "SparkSession") -> "DataFrame":
        """Return all rows, with ``hash`` and ``block``."""
        ...


class DeltaRows:
    """A Delta Lake table as it is when this is made; it is never written."""

    def __init__(self, url: str, job_id: str) -> None:
        """Open a table. Errors: ``NoTable``, ``LakeUnavailable``."""
        self._url = url
        self._job_id = job_id
        try:
            self._table = DeltaTable(url, storage_options=storage_options(url))
        except TableNotFoundError:
            raise NoTable(f"{url} holds no Delta Lake table") from None
        except (DeltaError, OSError) as error:
            raise unavailable(url, error) from error
        odd = _UNREADABLE_FEATURES & set(self._table.protocol().reader_features or ())
        if odd:
            raise NoTable(f"{url} uses {', '.join(sorted(odd))}, which is not read here")

    def position(self, identity: PartitionIdentity) -> int | None:
        """See ``LakeRows``."""
        name = f"headgate/{self._job_id}/{position_name(identity)}"
        return self._table.transaction_version(name)

    def frame(self, spark: "SparkSession") -> "DataFrame":
        """See ``LakeRows``."""
        actions = pa.table(self._table.get_add_actions(flatten=True)).to_pylist()
        files = [(one["path"], one["partition.topic"]) for one in actions]
        url = self._url
        return in_tasks(spark, files, _ROW_SQL, lambda file: _file_rows(url, *file))


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
    """Return rows with a ``hash`` of all that a record is, and the ``block`` that it is in.

    Nulls do not change a hash of Spark's, so that they are told from what is there by flags.
    """
    from pyspark.sql import functions as sf

    def flagged(column: "Column") -> "list[Column]":
        return [column.isNull(), column]

    headers = sf.coalesce(
        sf.col("headers"), sf.array().cast("array<struct<key:string,value:binary>>")
    )
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
    for rows in read_split(split, options, _READ, bad=bad):
        nulls = [pa.nulls(rows.num_rows, kind) for kind in (pa.int64(), pa.string())]
        yield _as_rows(within_calendar(rows), nulls)
    if bad:
        yield _damage(bad)


def _file_rows(url: str, path: str, topic: str) -> Iterator[pa.RecordBatch]:
    place = open_place(url)
    names = [name for name in _READ.names if name != "topic"]
    with place.files.open_input_file(f"{place.root}/{path}") as stream:
        for rows in pq.ParquetFile(stream).iter_batches(_ROWS_AT_ONCE, columns=names):
            columns = [rows.column(name).cast(_READ.field(name).type) for name in names]
            arrays = [pa.repeat(topic, rows.num_rows), *columns]
            yield _as_rows(pa.RecordBatch.from_arrays(arrays, schema=_READ), [])


def _as_rows(rows: pa.RecordBatch, more: list[pa.Array]) -> pa.RecordBatch:
    arrays = [
        rows.column(name).cast(pa.int64()) if name == "timestamp" else rows.column(name)
        for name in _READ.names
    ]
    names = ["unix_us" if name == "timestamp" else name for name in _READ.names]
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
        pa.nulls(count, _HEADERS),
        pa.array([last_offset_of(one) for one in bad], pa.int64()),
        pa.array([one.reason for one in bad], pa.string()),
    ]
    names = ["unix_us" if name == "timestamp" else name for name in _READ.names]
    return pa.RecordBatch.from_arrays(arrays, names=[*names, "last_offset", "damage"])
