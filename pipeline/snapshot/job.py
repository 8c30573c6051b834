"""``snapshot``: the latest value of each key of a topic, as compaction would leave it.

The record with the highest offset of a partition and key counts; one without a value removes its
key, and records without a key are left out. The gateway itself writes each key to one partition;
Kafka clients may write one key to several, and then the time of the record decides between them
(``across_partitions``).
"""

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.errors import RequestError
from pipeline.audit.compacted import compacted_partitions
from pipeline.job_progress import counted
from pipeline.log.access import views
from pipeline.log.options import Options, parse_options
from pipeline.log.splits import ending_positions, plan, starting_positions, wanted
from pipeline.snapshot.targets import Target, write_files

if TYPE_CHECKING:  # a dry run needs no Spark
    from pyspark.sql import DataFrame, SparkSession

_FORMAT: Final = "headgate"
_READ: Final = "topic,partition,offset,timestamp,key,value,headers,protocol"
_BESIDE_KEY: Final = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "value",
    "headers",
    "protocol",
)


class AsOf(NamedTuple):
    """End of a snapshot: options of the source, and a text for people."""

    options: Mapping[str, str]
    is_bounded: bool


class Taken(NamedTuple):
    """Counts of a snapshot: ``keys`` rows, of ``records`` records.

    ``removed``: keys whose last record has no value. ``unkeyed``: records without a key.
    """

    records: int
    unkeyed: int
    keys: int
    removed: int
    files: int
    bytes_written: int


def as_of(text: str | None) -> AsOf:
    """Parse ``--as-of``: a time, which is included, or offsets as JSON.

    Error: ``BadOption``.

    >>> as_of("1700000000000").options
    {'endingTime': '1700000000001'}
    >>> as_of('{"orders": {"0": 17}}').options
    {'endingOffsets': '{"orders": {"0": 17}}'}
    """
    if text is None:
        return AsOf({}, is_bounded=False)
    if text.lstrip().startswith("{"):
        return AsOf({"endingOffsets": text}, is_bounded=True)
    until_unix_ms = parse_options({"path": ".", "endingTime": text}).end_unix_ms
    return AsOf({"endingTime": str(until_unix_ms + 1)}, is_bounded=True)


class Snapshot:
    """One run over the log as it was durable when planned."""

    def __init__(
        self, given: Mapping[str, str], moment: AsOf, *, metadata_url: str | None
    ) -> None:
        """Plan the run. ``given``: options of the source, with one topic.

        Errors: ``OffsetOutOfRange``, ``StorageUnavailable``, ``RequestError``.
        """
        self.options: Options = parse_options({**given, **moment.options})
        every = views(self.options)
        found = wanted(every, self.options)
        if len({view.identity.topic for view in found.values()}) != 1:
            raise RequestError("a snapshot is of one topic")
        start = starting_positions(found, self.options)
        end = ending_positions(found, self.options)
        self._splits = plan(found, start, end, self.options)
        self.partitions = len(found)
        self.offsets_planned = sum(end[place] - start[place] for place in found)
        self.bytes_planned = sum(
            piece.extent.size_bytes for split in self._splits for piece in split.pieces
        )
        compacted = compacted_partitions(every, self.options, metadata_url)
        ids = {view.identity.partition_id for view in found.values()}
        self.may_lack = moment.is_bounded and bool(compacted & ids)
        """Compaction may have taken out what was the latest value then."""
        self.topic = next(iter(found.values())).identity.topic.name
        self.ends = {view.identity.number: end[place] for place, view in found.items()}
        # Later records are not read: the ends are fixed now.
        ends = {self.topic: {str(number): offset for number, offset in self.ends.items()}}
        self._given = {
            **given, **moment.options, "columns": _READ, "endingOffsets": json.dumps(ends),
        }  # fmt: skip

    def run(
        self,
        spark: "SparkSession",
        target: Target,
        on_bytes: Callable[[int], None],
        *,
        across_partitions: bool = False,
    ) -> Taken:
        """Write the snapshot atomically. Errors: those of ``target``."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as sf

        read, latest = Observation(), Observation()
        rows = (
            spark.read.format(_FORMAT)
            .options(**self._given)
            .load()
            .observe(
                read,
                sf.count(sf.lit(1)).alias("records"),
                sf.count_if(sf.col("key").isNull()).alias("unkeyed"),
            )
        )
        kept = latest_per_key(rows, across_partitions=across_partitions).observe(
            latest, sf.count_if(sf.col("value").isNull()).alias("removed")
        )
        with counted(spark, len(self._splits), self.bytes_planned, on_bytes):
            files = write_files(kept.where("value is not null"), target)
        target.commit(files, self._about(across_partitions=across_partitions))
        return Taken(
            records=read.get["records"],
            unkeyed=read.get["unkeyed"],
            keys=sum(one.row_count for one in files),
            removed=latest.get["removed"],
            files=len(files),
            bytes_written=sum(one.size_bytes for one in files),
        )

    def _about(self, *, across_partitions: bool) -> dict[str, str]:
        """Return the metadata of the snapshot."""
        return {
            "headgate.topic": self.topic,
            "headgate.offsets": json.dumps({str(one): end for one, end in self.ends.items()}),
            "headgate.until": str(self.options.end_unix_ms),
            "headgate.across-partitions": str(across_partitions).lower(),
        }


def latest_per_key(rows: "DataFrame", *, across_partitions: bool) -> "DataFrame":
    """Return the last record of each key, including those without a value."""
    from pyspark.sql import functions as sf

    order = ["timestamp", "offset", "partition"] if across_partitions else ["offset"]
    per = ["key"] if across_partitions else ["partition", "key"]
    last = sf.max_by(sf.struct(*_BESIDE_KEY), sf.struct(*order)).alias("last")
    return (
        rows.where("key is not null")
        .groupBy(*per)
        .agg(last)
        .select(
            "last.topic", "last.partition", "last.offset", "last.timestamp", "key",
            "last.value", "last.headers", "last.protocol",
        )
    )  # fmt: skip
