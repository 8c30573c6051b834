"""``backfill``: send the records of a lake table to topics again, through the Kafka endpoint.

A record keeps its key, value, headers and timestamp, and gets a header ``headgate.backfill`` with
the job and the origin. The records of one partition are sent by one task, lowest offset first, so
that order is kept. A job id never sends a record twice (pipeline/resend/job_state.py).
"""

import pickle
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from gateway.clock import SystemClock
from gateway.errors import RequestError
from gateway.slots import partition_for_key
from pipeline.lake.table import TableFile
from pipeline.log.row_schema import HEADERS_SQL
from pipeline.resend.backfill_files import PLACE, RECORD, Places, RowChoice, read_rows
from pipeline.resend.dead_letter_rows import header_pairs
from pipeline.resend.endpoint import Endpoint, EndpointSilent, NotSent, Sender
from pipeline.resend.job_state import Done, JobState, RecordPosition, marker
from pipeline.spark_session import reason_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOB: Final = "backfill"
HEADER: Final = "headgate.backfill"
_INTERNAL: Final = "__"
_LOOK_S: Final = 2.0
_SENT: Final = pa.schema(
    [
        ("place", pa.int32()),
        ("sent", pa.int64()),
        ("sent_before", pa.int64()),
        ("restamped", pa.int64()),
    ]
)
_PLACE_SQL: Final = "place int, topic string, partition int, offset long"
_RECORD_SQL: Final = (
    f"{_PLACE_SQL}, unix_ms long, key binary, value binary, headers {HEADERS_SQL}"
)
_SENT_SQL: Final = "place int, sent long, sent_before long, restamped long"


class Source(NamedTuple):
    """A partition with records in the table."""

    topic: str
    partition: int
    records: int


class Backfilled(NamedTuple):
    """Result. ``restamped``: records with time 0, for which the client uses the present."""

    sent: int
    sent_before: int
    restamped: int


@dataclass(frozen=True)
class Plan:
    """Records and targets. ``to`` empty: the topic of the same name. Pickled to every worker."""

    url: str
    files: Sequence[TableFile]
    choice: RowChoice
    job_id: str
    is_new: bool
    to: str
    keeps_partitions: bool
    rate_per_s: float


def find_sources(spark: "SparkSession", plan: Plan) -> list[Source]:
    """Return the partitions with chosen records, in order."""
    rows = _rows(spark, plan, PLACE, _PLACE_SQL, {}).groupBy("topic", "partition").count()
    return sorted(Source(*row) for row in rows.collect())


def run(
    spark: "SparkSession",
    plan: Plan,
    sources: Sequence[Source],
    endpoint: Endpoint,
    on_records: Callable[[int], None],
) -> Backfilled:
    """Send the chosen records.

    Errors: ``RequestError`` (no such topic or partition), ``JobRuns``, ``EndpointSilent``,
    ``NotSent``.
    """
    counts = target_counts(plan, sources, endpoint)
    lost: list[bool] = []

    def on_lost() -> None:
        lost.append(True)
        spark.sparkContext.cancelAllJobs()

    state = JobState(
        endpoint,
        job=JOB,
        job_id=plan.job_id,
        header=HEADER,
        anchor=min(counts),
        clock=SystemClock(),
        on_lost=on_lost,
    )
    with state:
        for topic, count in counts.items():
            state.prepare(topic, count, is_new=plan.is_new)
        try:
            with _Watch(endpoint, sorted(counts), on_records):
                rows = _send(spark, plan, sources, endpoint, counts, state.done)
        except Exception as error:
            state.check()
            raise _told(error, plan.job_id) from error
        state.check()
    return Backfilled(*(sum(row[column] for row in rows) for column in (1, 2, 3)))


class _Watch:
    """Progress by the growth of the targets, since Spark reports nothing until a task ends."""

    def __init__(
        self, endpoint: Endpoint, topics: Sequence[str], on_records: Callable[[int], None]
    ) -> None:
        self._endpoint = endpoint
        self._topics = topics
        self._on_records = on_records
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_exc: object) -> None:
        self._ends.set()
        self._thread.join()

    def _look(self) -> None:
        seen: int | None = None
        is_over = False
        while not is_over:
            is_over = self._ends.wait(_LOOK_S)
            with suppress(EndpointSilent):  # the producers report it, if it matters
                found = self._endpoint.ends(self._topics).values()
                total = sum(sum(ends.values()) for ends in found)
                self._on_records(total - (total if seen is None else seen))
                seen = total


def missing_targets(
    plan: Plan, sources: Sequence[Source], endpoint: Endpoint
) -> dict[str, int]:
    """Return the missing targets, with the number of partitions of their records.

    The table does not have that number: it is counted up to the last partition with records.
    """
    there = endpoint.partition_counts()
    wanted: dict[str, int] = {}
    for source in sources:
        topic = plan.to or source.topic
        if topic not in there:
            wanted[topic] = max(wanted.get(topic, 1), source.partition + 1)
    return wanted


def target_counts(plan: Plan, sources: Sequence[Source], endpoint: Endpoint) -> dict[str, int]:
    """Return the number of partitions of each target. Error: ``RequestError``."""
    there = endpoint.partition_counts()
    counts: dict[str, int] = {}
    for source in sources:
        topic = plan.to or source.topic
        if topic not in there or topic.startswith(_INTERNAL):
            raise RequestError(f"there is no topic {topic}: --create makes it")
        if plan.keeps_partitions and source.partition >= there[topic]:
            raise RequestError(
                f"{source.topic} has a partition {source.partition}, and {topic} only "
                f"{there[topic]}: leave out --keep-partitions, or add some"
            )
        counts[topic] = there[topic]
    return counts


def _told(error: Exception, job_id: str) -> NotSent:
    """Return the error that a worker raised, without Spark's text around it."""
    text = str(error)
    name = f"{NotSent.__module__}.{NotSent.__name__}: "
    text = text.rpartition(name)[2].splitlines()[0] if name in text else reason_of(text)
    return NotSent(f"{text.splitlines()[0]}; --id {job_id} goes on where it was")


def _rows(
    spark: "SparkSession", plan: Plan, schema: pa.Schema, sql: str, places: Places
) -> "DataFrame":
    """Return chosen rows, one task for each file."""
    files = [(pickle.dumps(one),) for one in plan.files]
    tasks = spark.createDataFrame(
        spark.sparkContext.parallelize(files, max(len(files), 1)), "file binary"
    )
    url, choice = plan.url, plan.choice

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for one in batch.column(0).to_pylist():
                file = pickle.loads(one)  # noqa: S301 - made above
                yield from read_rows(url, file, choice, schema, places)

    return tasks.mapInArrow(read, sql)


def _send(  # noqa: PLR0917 - what the workers need to know
    spark: "SparkSession",
    plan: Plan,
    sources: Sequence[Source],
    endpoint: Endpoint,
    counts: Mapping[str, int],
    done: Done,
) -> list[tuple[int, int, int, int]]:
    """Send all rows, one task per partition, lowest offset first."""
    from pyspark.sql import functions as f

    places = {(one.topic, one.partition): place for place, one in enumerate(sources)}
    at_once = min(len(sources), spark.sparkContext.defaultParallelism)
    rate_per_s = plan.rate_per_s / at_once

    def send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from send_rows(batches, plan, endpoint, counts, done, rate_per_s)

    rows = (
        _rows(spark, plan, RECORD, _RECORD_SQL, places)
        .repartitionById(len(sources), f.col("place"))
        .sortWithinPartitions("place", "offset")
        .mapInArrow(send, _SENT_SQL)
        .collect()
    )
    return [tuple(row) for row in rows]


def send_rows(  # noqa: PLR0917 - what the workers need to know
    batches: Iterator[pa.RecordBatch],
    plan: Plan,
    endpoint: Endpoint,
    counts: Mapping[str, int],
    done: Done,
    rate_per_s: float,
) -> Iterator[pa.RecordBatch]:
    """Send the rows of one partition in a task of Spark, and yield the result.

    Error: ``NotSent``, also for a task that Spark repeats: the next run knows what the first try
    has sent, this run does not.
    """
    _refuse_second_try()
    sender = Sender(endpoint, rate_per_s=rate_per_s, in_order=True)
    sent_before, place = 0, -1
    try:
        for batch in batches:
            for row in batch.to_pylist():
                place = row["place"]
                position = RecordPosition(row["topic"], row["partition"], row["offset"])
                if position in done:
                    sent_before += 1
                    continue
                topic = plan.to or position.topic
                sender.send(
                    topic,
                    target_partition(plan, position, row["key"], counts[topic]),
                    key=row["key"],
                    value=row["value"],
                    headers=marked(plan, position, row["headers"]),
                    unix_ms=row["unix_ms"],
                    place=str(position),
                )
        sender.finish()
    finally:
        sender.abandon()
    if place >= 0:
        summary = [[place], [sender.sent], [sent_before], [sender.restamped]]
        yield pa.RecordBatch.from_arrays(
            [pa.array(one, kind) for one, kind in zip(summary, _SENT.types, strict=True)],
            schema=_SENT,
        )


def target_partition(
    plan: Plan, position: RecordPosition, key: bytes | None, count: int
) -> int:
    """Return a record's target partition; one without a key stays with those of its partition."""
    if plan.keeps_partitions:
        return position.partition
    if key is None:
        return position.partition % count
    return partition_for_key(key, count)


def marked(
    plan: Plan, position: RecordPosition, headers: Sequence[Mapping[str, object]]
) -> list[tuple[str, bytes | None]]:
    """Return a record's headers with the mark, which replaces that of an earlier backfill."""
    kept = [one for one in header_pairs(headers) if one[0] != HEADER]
    return [*kept, (HEADER, marker(plan.job_id, position, plan.url))]


def _refuse_second_try() -> None:
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is not None and context.attemptNumber():
        raise NotSent("a task of Spark died")
