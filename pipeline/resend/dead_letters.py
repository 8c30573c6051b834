"""``dlq``: dead letters grouped by reason, listed, and sent back to their topics.

The job reads the dead-letter topics of the log: all letters until retention removes them. Letters
that are sent back stay there, too; ``headgate dlq redrive`` moves them. So a replay is identified
by its id, and an id never sends a letter twice (pipeline/resend/job_state.py).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gateway.clock import Clock, SystemClock
from gateway.errors import RequestError
from gateway.model import is_dead_letter_reference, strip_dead_letter_headers
from gateway.slots import partition_for_key
from pipeline.resend.dead_letter_rows import (
    REPLAYED,
    describe,
    described,
    header_pairs,
)
from pipeline.resend.endpoint import Endpoint, Sender
from pipeline.resend.job_state import JobState, RecordPosition, marker

if TYPE_CHECKING:  # importing this costs no start of Spark
    from pyspark.sql import DataFrame, SparkSession

JOB: Final = "dlq-replay"
_INTERNAL: Final = "__"
_GROUPED_BY: Final = ("pick", "topic", "reason", "source_topic", "group", "protocol")
_PLACE: Final = ("topic", "partition", "offset")
_CHECK_EVERY: Final = 1_000  # records


class LetterChoice(NamedTuple):
    """Filter of letters; empty: all."""

    picks: Sequence[str] = ()
    source_topics: Sequence[str] = ()
    groups: Sequence[str] = ()


class Group(NamedTuple):
    """Letters with the same reason."""

    pick: str
    topic: str
    reason: str
    source_topic: str
    group: str
    protocol: str
    letters: int
    first_unix_ms: int
    last_unix_ms: int
    example: str


class Letter(NamedTuple):
    """One dead letter of the log, with its decoded headers."""

    position: RecordPosition
    unix_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    pick: str
    reason: str
    source_topic: str
    source_partition: int
    source_offset: int
    attempts: int


class Replayed(NamedTuple):
    """Result of a replay. ``homeless``: letters whose topic is unknown or does not exist.

    Letters without their message (``dlq.left-out``) count as such, too.
    """

    sent: int
    sent_before: int
    homeless: int
    failed: int
    failures: list[str]
    topics: dict[str, int]


def read_letters(
    spark: "SparkSession",
    source: Mapping[str, str],
    topics: Sequence[str],
    choice: LetterChoice,
    *,
    with_bodies: bool,
) -> "DataFrame":
    """Return the chosen letters as rows; ``source`` are options of ``format("headgate")``."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    columns = ["topic", "partition", "offset", "timestamp"]
    columns += ["key", "value", "headers"] if with_bodies else ["headers"]
    frame = (
        spark.read.format("headgate")
        .options(**source)
        .option("topics", ",".join(topics))
        .option("columns", ",".join(columns))
        .load()
    )
    schema = from_arrow_schema(described(to_arrow_schema(frame.schema, timezone="UTC")))
    letters = frame.mapInArrow(describe, schema)
    for column, wanted in (
        ("pick", choice.picks),
        ("source_topic", choice.source_topics),
        ("group", choice.groups),
    ):
        if wanted:
            letters = letters.filter(f.col(column).isin(list(wanted)))
    return letters


def group_letters(letters: "DataFrame", *, groups_max: int) -> list[Group]:
    """Return the largest groups, at most ``groups_max``."""
    from pyspark.sql import functions as f

    rows = (
        letters.groupBy(*_GROUPED_BY)
        .agg(
            f.count("*").alias("letters"),
            f.min(f.struct("unix_ms", "partition", "offset")).alias("first"),
            f.max("unix_ms").alias("last_unix_ms"),
        )
        .orderBy(f.desc("letters"), "pick")
        .limit(groups_max)
        .collect()
    )
    return [
        Group(
            row["pick"],
            row["topic"],
            row["reason"],
            row["source_topic"],
            row["group"],
            row["protocol"],
            row["letters"],
            row["first"]["unix_ms"],
            row["last_unix_ms"],
            str(
                RecordPosition(row["topic"], row["first"]["partition"], row["first"]["offset"])
            ),
        )
        for row in rows
    ]


def first_letters(letters: "DataFrame", count_max: int) -> list[Letter]:
    """Return the letters with the lowest positions."""
    return [_letter(row) for row in letters.orderBy(*_PLACE).limit(count_max).collect()]


def count_by_source(letters: "DataFrame") -> dict[str, int]:
    """Return the number of letters from each topic; an empty name if they have none."""
    rows = letters.groupBy("source_topic").count().collect()
    return {row["source_topic"]: row["count"] for row in rows}


def ordered(letters: "DataFrame") -> Iterator[Letter]:
    """Yield all letters, those of a partition in order; one partition of Spark in memory."""
    for row in letters.orderBy(*_PLACE).toLocalIterator():
        yield _letter(row)


def _letter(row: Any) -> Letter:  # noqa: ANN401 - a row has no types
    return Letter(
        RecordPosition(row["topic"], row["partition"], row["offset"]),
        row["unix_ms"],
        _data(row["key"]),
        _data(row["value"]),
        header_pairs(row["headers"]),
        row["pick"],
        row["reason"],
        row["source_topic"],
        row["source_partition"],
        row["source_offset"],
        row["attempts"],
    )


def _data(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


class Replay:
    """One run of a replay. ``to`` empty: each letter goes back to its original topic.

    A letter is sent as by a redrive: without the headers ``dlq.*`` except ``dlq.hops``, to the
    partition of its key, with the present as its time, so that retention keeps it.
    Errors: ``RequestError``, ``EndpointSilent``.
    """

    def __init__(  # noqa: PLR0913 - the options of the command
        self,
        endpoint: Endpoint,
        *,
        job_id: str,
        is_new: bool,
        topics: Sequence[str],
        to: str = "",
        rate_per_s: float = 0,
        clock: Clock | None = None,
    ) -> None:
        if to in topics:
            raise RequestError(f"--to {to}: the letters are read from there")
        self._counts = endpoint.partition_counts()
        if to and to not in self._counts:
            raise RequestError(f"--to {to}: there is no such topic")
        self._endpoint = endpoint
        self._job_id = job_id
        self._is_new = is_new
        self._anchor = topics[0]
        self._to = to
        self._rate_per_s = rate_per_s
        self._clock = clock or SystemClock()
        self._prepared: set[str] = set()

    def run(self, letters: Iterator[Letter], on_letters: Callable[[int], None]) -> Replayed:
        """Send letters back. Errors: ``JobRuns``, ``EndpointSilent``, ``NotSent``."""
        state = JobState(
            self._endpoint,
            job=JOB,
            job_id=self._job_id,
            header=REPLAYED,
            anchor=self._anchor,
            clock=self._clock,
        )
        sender = Sender(self._endpoint, rate_per_s=self._rate_per_s, clock=self._clock)
        tally: Counter[str] = Counter()
        topics: Counter[str] = Counter()
        with state:
            for number, letter in enumerate(letters):
                if number % _CHECK_EVERY == 0:
                    state.check()
                what = self._send(letter, state, sender)
                tally[what] += 1
                if what == "sent":
                    topics[self._to or letter.source_topic] += 1
                on_letters(1)
            sender.finish()
            state.has_sent_none = not (sender.sent or tally["before"])
        return Replayed(
            sender.sent,
            tally["before"],
            tally["homeless"],
            sender.failed,
            sender.failures,
            dict(topics),
        )

    def _send(self, letter: Letter, state: JobState, sender: Sender) -> str:
        """Send one letter unless it was sent before; return the outcome."""
        topic = self._to or letter.source_topic
        count = self._counts.get(topic)
        if (
            count is None
            or topic.startswith(_INTERNAL)
            or is_dead_letter_reference(letter.headers)
        ):
            return "homeless"
        if topic not in self._prepared:
            state.prepare(topic, count, is_new=self._is_new)
            self._prepared.add(topic)
        if letter.position in state.done:
            return "before"
        number = letter.position.offset % count
        if letter.key is not None:
            number = partition_for_key(letter.key, count)
        mark = (REPLAYED, marker(self._job_id, letter.position))
        sender.send(
            topic,
            number,
            key=letter.key,
            value=letter.value,
            headers=[*strip_dead_letter_headers(letter.headers), mark],
            unix_ms=None,
            place=str(letter.position),
        )
        return "sent"
