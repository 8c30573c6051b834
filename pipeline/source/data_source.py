"""``spark.read.format("headgate")`` and ``readStream``: topics as rows, read in place.

The node is not involved. docs/pipeline.md has the options, the schema and examples.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
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

from gateway.errors import OffsetOutOfRange
from pipeline.log.access import Lease
from pipeline.log.access import views as views_of
from pipeline.log.options import Options, parse_options
from pipeline.log.reading import read_split
from pipeline.log.splits import (
    Positions,
    Split,
    checked,
    ending_positions,
    plan,
    starting_positions,
    wanted,
)
from pipeline.log.views import PartitionView
from pipeline.source.filters import Predicates
from pipeline.source.limits import limited
from pipeline.source.sink import BatchSink, StreamSink
from pipeline.source.sink_options import parse_sink_options

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
    "protocol": StringType(),
}
_FILTERING_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


class HeadgateSource(DataSource):
    """Data source over a node's storage; writes go through its Kafka endpoint."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the requested columns, and the headers that are columns."""
        return schema_of(parse_options(self.options))

    def reader(self, schema: StructType) -> "BatchReader":  # noqa: ARG002 - Spark's signature
        """Return the batch reader. Errors: ``BadOption``.

        Spark refuses a reader that takes filters unless the session pushes them; it does so in a
        separate process, and only that process gets such a reader. The options must enable it:
        Spark 4.3 keeps the splits of the last query that pushed filters with the frame that
        ``load`` returned, and another query of that frame would get them, too.
        """
        options = parse_options(self.options)
        takes_filters = options.pushes_filters and _FILTERING_WORKER in sys.modules
        return FilteringReader(options) if takes_filters else BatchReader(options)

    def streamReader(self, schema: StructType) -> "StreamReader":  # noqa: ARG002, N802
        """Return the stream reader. Errors: ``BadOption``."""
        return StreamReader(parse_options(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:  # noqa: FBT001 - Spark's
        """Return the batch sink. Errors: ``BadOption``."""
        return BatchSink(parse_sink_options(self.options, schema, overwrite=overwrite))

    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - Spark's
    ) -> StreamSink:
        """Return the stream sink. Errors: ``BadOption``."""
        return StreamSink(parse_sink_options(self.options, schema, overwrite=overwrite))


def schema_of(options: Options) -> StructType:
    """Return the schema of the rows read."""
    fields = [StructField(name, _TYPES[name]) for name in options.columns]
    fields += [StructField(name, StringType()) for name in options.header_columns]
    return StructType(fields)


def _arrow_schema(options: Options) -> pa.Schema:
    return to_arrow_schema(schema_of(options), timezone="UTC")


def _views(options: Options) -> dict[str, PartitionView]:
    return wanted(views_of(options), options)


class BatchReader(DataSourceReader):
    """Reader from the starting to the ending offsets, as of the time of planning."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._predicates = Predicates()

    def partitions(self) -> list[InputPartition]:
        """Return one split for each task; take a lease, which the tasks extend."""
        options = self._options
        lease = Lease(options).renew()
        found = {
            place: view
            for place, view in _views(options).items()
            if self._predicates.wants(view)
        }
        start, end = starting_positions(found, options), ending_positions(found, options)
        start, end = self._predicates.offsets(start, end)
        return _leased(plan(found, start, end, options), lease)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one split."""
        return _read(partition, self._options)


class FilteringReader(BatchReader):
    """Batch reader to which Spark pushes the filters of the query."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Limit the read by filters. Spark evaluates all of them again."""
        self._predicates = Predicates.of(filters)
        self._options = self._predicates.within_times(self._options)
        return filters


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream reader. Its offsets are the stream's checkpoint: {"topic/number": offset}."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lease = Lease(options)
        self._goal: Positions | None = None  # of a run with the trigger AvailableNow

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the start of a new stream."""
        return dict(starting_positions(_views(self._options), self._options))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of a micro-batch; with two limits, both hold."""
        options = self._options
        if options.records_per_trigger_max:
            return ReadMaxRows(options.records_per_trigger_max)
        if options.bytes_per_trigger_max:
            return ReadMaxBytes(options.bytes_per_trigger_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the run; later records are left to the next one."""
        self._goal = self._ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next micro-batch: all partitions get an equal share of a limit."""
        self._lease.renew()
        views = _views(self._options)
        goal = {place: view.end for place, view in views.items()}
        if self._goal is not None:
            goal = {place: end for place, end in self._goal.items() if place in views}
        # A partition created after the start of the stream is read from its first record.
        found = {place: int(start.get(place, views[place].start)) for place in goal}
        anew = self._made_anew(views, found)
        if not isinstance(limit, ReadAllAvailable):
            goal = limited(
                views,
                found,
                goal,
                rows_max=self._options.records_per_trigger_max,
                bytes_max=self._options.bytes_per_trigger_max,
            )
        ends = {place: max(goal[place], found[place]) for place in goal if place not in anew}
        return {**start, **ends, **anew}

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the end of the log, for the progress that Spark shows."""
        return dict(self._ends())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the splits of a micro-batch; the same offsets give the same rows again.

        Error: ``OffsetOutOfRange``, unless ``failOnDataLoss`` is false.
        """
        options = self._options
        lease = self._lease.renew()
        views = views_of(options, with_unsynced=True)  # the end was durable when it was planned
        found = {place: view for place, view in wanted(views, options).items() if place in end}
        fails = options.fails_on_loss
        for place in end.keys() - found.keys():
            if fails and int(end[place]) > int(start.get(place, 0)):
                raise OffsetOutOfRange(
                    f"{place}: offsets up to {end[place]} were to be read, and the topic is gone. "
                    "Set failOnDataLoss=false to go on with what is there"
                )
        first = {
            place: checked(view, int(start.get(place, view.start)), fails_on_loss=fails)
            for place, view in found.items()
        }
        last = {
            place: checked(view, int(end[place]), fails_on_loss=fails)
            for place, view in found.items()
        }
        for place, view in found.items():
            if int(start.get(place, 0)) > int(end[place]):  # created again, see `latestOffset`
                first[place] = view.start
        return _leased(plan(found, first, last, options), lease)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one split."""
        return _read(partition, self._options)

    def stop(self) -> None:
        """Release the stream's resources."""
        self._lease.end()

    def _made_anew(self, views: dict[str, PartitionView], found: Positions) -> Positions:
        """Return the ends of partitions that are below the offsets already read.

        Error: ``OffsetOutOfRange``, unless ``failOnDataLoss`` is false. Without this check a topic
        that was deleted and created again would be skipped until it is as long as the old one.
        """
        if all(found[place] <= views[place].end for place in found):
            return {}
        options = self._options
        every = wanted(views_of(options, with_unsynced=True), options)
        anew: Positions = {}
        for place, offset in found.items():
            if place in every and offset > every[place].end:
                checked(every[place], offset, fails_on_loss=options.fails_on_loss)
                anew[place] = views[place].end
        return anew

    def _ends(self) -> Positions:
        return {place: view.end for place, view in _views(self._options).items()}


def _leased(splits: list[Split], lease: str) -> list[InputPartition]:
    return [InputPartition(split._replace(lease=lease)) for split in splits]


def _read(partition: InputPartition, options: Options) -> Iterator[pa.RecordBatch]:
    if partition.value is None:  # Spark's own partition, when there is nothing to read
        return iter(())
    return read_split(partition.value, options, _arrow_schema(options))
