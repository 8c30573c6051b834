"""``spark.read.format("headgate")`` and ``readStream``: topics as rows, read where they lie.

The node does no work for it. docs/pipeline.md has the options, the schema and examples.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pipeline.local_log import PartitionView, read_view
from pipeline.options import Options, parse_options
from pipeline.reading import read_split
from pipeline.splits import (
    Positions,
    checked,
    ending_positions,
    plan,
    starting_positions,
    wanted,
)

FORMAT: Final = "headgate"
_TYPES: Final[Mapping[str, DataType]] = {
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "key": BinaryType(),
    "value": BinaryType(),
    "headers": ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}


class HeadgateSource(DataSource):
    """Topics of a node's data directory."""

    @classmethod
    def name(cls) -> str:
        """Return what ``format`` is given."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns that were asked for, and the headers that are columns."""
        return schema_of(parse_options(self.options))

    def reader(self, schema: StructType) -> "BatchReader":  # noqa: ARG002 - Spark's signature
        """Return what reads once. Errors: ``BadOption``."""
        return BatchReader(parse_options(self.options))

    def streamReader(self, schema: StructType) -> "StreamReader":  # noqa: ARG002, N802
        """Return what reads on and on. Errors: ``BadOption``."""
        return StreamReader(parse_options(self.options))


def schema_of(options: Options) -> StructType:
    """Return the schema of what is read."""
    fields = [StructField(name, _TYPES[name]) for name in options.columns]
    fields += [StructField(name, StringType()) for name in options.header_columns]
    return StructType(fields)


def _arrow_schema(options: Options) -> pa.Schema:
    return to_arrow_schema(schema_of(options), timezone="UTC")


def _views(options: Options) -> dict[str, PartitionView]:
    views = read_view(options.data_dir, with_unsynced=options.with_unsynced)
    return wanted(views, options)


class BatchReader(DataSourceReader):
    """Reads from the starting offsets to the ending ones, as they are when it is planned."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Return one split for each task."""
        options = self._options
        found = _views(options)
        start, end = starting_positions(found, options), ending_positions(found, options)
        return [InputPartition(split) for split in plan(found, start, end, options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one split."""
        return _read(partition, self._options)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what comes. Its offsets are the stream's checkpoint: {"topic/number": offset}."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._goal: Positions | None = None  # of a run with the trigger AvailableNow

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where a new stream begins."""
        return dict(starting_positions(_views(self._options), self._options))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return how much a micro-batch takes."""
        count = self._options.records_per_trigger_max
        return ReadMaxRows(count) if count else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix where the run ends: what comes later is for the next one."""
        self._goal = self._ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the next micro-batch ends: all partitions get an equal share of a limit."""
        views = _views(self._options)
        goal = self._goal or {place: view.end for place, view in views.items()}
        # A partition that came after the stream had begun is read from its first record.
        found = {place: int(start.get(place, views[place].start)) for place in goal}
        if isinstance(limit, ReadMaxRows):
            goal = _limited(found, goal, limit.max_rows)
        return {**start, **{place: max(goal[place], found[place]) for place in goal}}

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return how far the log goes, for the progress that Spark shows."""
        return dict(self._ends())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the splits of a micro-batch; the same offsets give the same rows again.

        Error: ``OffsetOutOfRange``, unless ``failOnDataLoss`` is false.
        """
        options = self._options
        views = read_view(options.data_dir, with_unsynced=True)  # the end was durable before
        found = {place: view for place, view in wanted(views, options).items() if place in end}
        fails = options.fails_on_loss
        first = {
            place: checked(view, int(start.get(place, view.start)), fails_on_loss=fails)
            for place, view in found.items()
        }
        last = {
            place: checked(view, int(end[place]), fails_on_loss=fails)
            for place, view in found.items()
        }
        return [InputPartition(split) for split in plan(found, first, last, options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one split."""
        return _read(partition, self._options)

    def _ends(self) -> Positions:
        return {place: view.end for place, view in _views(self._options).items()}


def _limited(start: Positions, goal: Positions, rows_max: int) -> Positions:
    """Return positions that are at most ``rows_max`` rows, one at least, behind ``start``."""
    behind = {place: goal[place] - start[place] for place in goal if goal[place] > start[place]}
    limited = dict(goal)
    left = rows_max
    for taken, (place, count) in enumerate(sorted(behind.items(), key=lambda one: one[1])):
        share = min(count, -(-left // (len(behind) - taken)))
        limited[place] = start[place] + share
        left -= share
    return limited


def _read(partition: InputPartition, options: Options) -> Iterator[pa.RecordBatch]:
    if partition.value is None:  # Spark's own, where there is nothing to read
        return iter(())
    return read_split(partition.value, options, _arrow_schema(options))
