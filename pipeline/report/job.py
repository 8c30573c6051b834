"""``report``: traffic, sizes and lateness by minute, topic and protocol."""

import pickle
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from gateway.errors import RequestError
from pipeline.job_progress import counted
from pipeline.log.access import views
from pipeline.log.options import Options
from pipeline.log.splits import Split, ending_positions, plan, starting_positions, wanted
from pipeline.report.rows import ROWS_SQL, report_rows
from pipeline.report.sums import SIZE_BINS, aggregated

if TYPE_CHECKING:  # a dry run needs no Spark
    from pyspark.sql import DataFrame, Row, SparkSession

MINUTE_MS: Final = 60_000
CELLS_MAX: Final = 500_000  # of time, topic and protocol
# Spark's grouping id: a bit for each of bucket, topic, protocol, size over which a row is summed.
_BY_TIME, _BY_TOPIC, _BY_SIZE, _OF_ALL = 0b0001, 0b1001, 0b1100, 0b1111


class Percentiles(NamedTuple):
    """Three percentiles; all None without measurements."""

    p50: int | None
    p95: int | None
    p99: int | None


NO_PERCENTILES: Final = Percentiles(None, None, None)


class Traffic(NamedTuple):
    """Traffic of one bucket of time, topic and protocol, or a sum over several.

    ``unix_ms``: the beginning of the bucket, None for all time; ``topic`` and ``protocol``
    None: all of them. ``decoded_bytes``: of keys, values and headers. ``stored_bytes``: of batches
    as they lie in the log. ``keys`` is an estimate (2 %). ``late_ms`` and ``overdue_ms``: see
    ``report_rows``.
    """

    unix_ms: int | None
    topic: str | None
    protocol: str | None
    records: int
    decoded_bytes: int
    stored_bytes: int
    batches: float
    keys: int
    size_bytes: Percentiles
    size_bytes_max: int
    late_ms: Percentiles
    overdue_ms: Percentiles
    undecodable: int

    @property
    def records_per_batch(self) -> float:
        """Average number of records in a batch."""
        return self.records / self.batches if self.batches else 0.0


class SizeBin(NamedTuple):
    """Number of a protocol's records with sizes from 2^exponent to below its double.

    Exponent -1: empty records.
    """

    protocol: str
    exponent: int
    records: int

    @property
    def bytes_min(self) -> int:
        """Return the smallest size of it."""
        return 0 if self.exponent < 0 else 1 << self.exponent

    @property
    def bytes_max(self) -> int:
        """Return the largest size of it."""
        return (1 << (self.exponent + 1)) - 1


class Figures(NamedTuple):
    """All metrics of a report."""

    total: Traffic
    by_topic: list[Traffic]
    by_time: list[Traffic]
    sizes: list[SizeBin]
    bucket_ms: int


class Report:
    """One run over the log as it was durable when planned."""

    def __init__(self, options: Options, *, bucket_minutes: int = 1) -> None:
        """Plan the run. Errors: ``OffsetOutOfRange``, ``StorageUnavailable``."""
        self._options = options
        self._bucket_ms = bucket_minutes * MINUTE_MS
        found = wanted(views(options), options)
        self.partitions = len(found)
        start, end = starting_positions(found, options), ending_positions(found, options)
        self._splits = plan(found, start, end, options)
        self.bytes_planned = sum(map(_size_bytes, self._splits))
        self.offsets_planned = sum(end[place] - start[place] for place in found)

    def run(self, spark: "SparkSession", on_bytes: Callable[[int], None]) -> Figures:
        """Read the log; ``on_bytes`` gets the sizes of finished parts.

        Error: ``RequestError`` when there are more values than a page holds.
        """
        total, by_topic, by_time, sizes = _NOTHING, [], [], []
        with counted(spark, len(self._splits), self.bytes_planned, on_bytes):
            rows = aggregated(self._rows(spark), self._bucket_ms)
        for row in rows:
            if row.grouping == _BY_SIZE and row.records:
                sizes.append(SizeBin(row.protocol, row[SIZE_BINS], row.records))
            elif row.grouping == _BY_TIME and row.records:
                by_time.append(_traffic(row))
            elif row.grouping == _BY_TOPIC:
                by_topic.append(_traffic(row))
            elif row.grouping == _OF_ALL:
                total = _traffic(row)
            if len(by_time) > CELLS_MAX:
                raise RequestError(
                    f"more than {CELLS_MAX:,} figures: take wider steps (--per), fewer topics or a "
                    "shorter time (--since, --until)"
                )
        return Figures(
            total,
            sorted(by_topic, key=lambda one: (-one.decoded_bytes, one.topic, one.protocol)),
            sorted(by_time, key=lambda one: (one.unix_ms, one.topic, one.protocol)),
            sorted(sizes),
            self._bucket_ms,
        )

    def _rows(self, spark: "SparkSession") -> "DataFrame":
        options = self._options

        def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for split in batch.column(0).to_pylist():
                    yield from report_rows(pickle.loads(split), options)  # noqa: S301 - ours

        pickled = [(pickle.dumps(split),) for split in self._splits]
        tasks = spark.createDataFrame(
            spark.sparkContext.parallelize(pickled, max(len(pickled), 1)), "split binary"
        )
        return tasks.mapInArrow(rows, ROWS_SQL)


def _size_bytes(split: Split) -> int:
    return sum(piece.extent.size_bytes for piece in split.pieces)


def _traffic(row: "Row") -> Traffic:
    return Traffic(
        row.bucket,
        row.topic,
        row.protocol,
        row.records,
        row.decoded or 0,
        round(row.stored or 0),
        round(row.batches or 0.0, 6),
        row["keys"],
        _percentiles(row.size_bytes_p),
        row.size_max or 0,
        _percentiles(row.late_ms_p),
        _percentiles(row.overdue_ms_p),
        row.undecodable or 0,
    )


def _percentiles(found: list[int] | None) -> Percentiles:
    return NO_PERCENTILES if found is None else Percentiles(*found)


_NOTHING: Final = Traffic(
    None, None, None, 0, 0, 0, 0.0, 0, NO_PERCENTILES, 0, NO_PERCENTILES, NO_PERCENTILES, 0
)
