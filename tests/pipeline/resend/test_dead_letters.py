"""``headgate pipeline dlq`` as a user runs it: grouped, shown, replayed, killed, replayed again."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from gateway.clock import SystemClock
from gateway.slots import partition_for_key
from pipeline.resend.dead_letters import (
    JOB,
    LetterChoice,
    Replay,
    Replayed,
    first_letters,
    group_letters,
    ordered,
    read_letters,
)
from pipeline.resend.endpoint import Endpoint
from pipeline.resend.job_state import JobRuns, JobState
from tests.pipeline.consuming import consume_all
from tests.pipeline.producing import record_count
from tests.pipeline.running import Jobs, kill_when
from tests.support.gateway import Gateway
from tests.support.topics import create_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("spark-2")]

_SETTINGS = {
    "storage.reserve_bytes": 1 << 17,
    "storage.segment_bytes": 1 << 20,
}
ALL = LetterChoice()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("node") / "data", _SETTINGS) as running:
        yield running


def _bury(
    gateway: Gateway, topic: str, letters: int, *, source: str, reason: str = "attempts"
) -> None:
    """Write dead letters as a queue does; the n-th has the value ``<n>`` and died n times."""
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "linger.ms": 5})
    for number in range(letters):
        headers: list[tuple[str, bytes | None]] = [
            ("kept", None),
            ("kept", b"\xff\x00"),
            ("dlq.reason", reason.format(number).encode()),
            ("dlq.source.topic", source.encode()),
            ("dlq.source.partition", b"0"),
            ("dlq.source.offset", str(number).encode()),
            ("dlq.group", b"workers"),
            ("dlq.attempts", b"5"),
            ("dlq.protocol", b"sqs"),
            ("dlq.hops", b"1"),
        ]
        key = f"k{number % 7}".encode() if number % 2 else None
        producer.produce(
            topic, str(number).encode(), key, 0, headers=headers, timestamp=1_700_000_000_123
        )
    assert producer.flush(60) == 0


def _options(gateway: Gateway, *arguments: str) -> list[str]:
    return [*arguments, *(f"--set={key}={value}" for key, value in gateway.settings.items())]


def _letters(
    spark: "SparkSession", gateway: Gateway, topic: str, choice: LetterChoice = ALL
) -> "DataFrame":
    source = {"path": str(gateway.data_dir), "includeUnsynced": "true"}
    return read_letters(spark, source, [topic], choice, with_bodies=True)


def _replay(gateway: Gateway, letters: "DataFrame", topic: str, **options: Any) -> Replayed:
    given: dict[str, Any] = {"job_id": "job", "is_new": False} | options
    job = Replay(Endpoint(gateway.bootstrap), topics=[topic], **given)
    return job.run(ordered(letters), lambda _: None)


def test_letters_are_grouped_by_what_their_reasons_have_in_common(
    spark: "SparkSession", gateway: Gateway
) -> None:
    dead = create_topic(gateway.bootstrap)
    _bury(gateway, dead, 30, source="orders", reason="customer {} took 5 s")
    _bury(gateway, dead, 10, source="orders", reason="rejected")
    _bury(gateway, dead, 5, source="bills", reason="rejected")

    groups = group_letters(_letters(spark, gateway, dead), groups_max=10)
    bills = group_letters(
        _letters(spark, gateway, dead, LetterChoice(source_topics=["bills"])), groups_max=10
    )

    said = [(one.letters, one.reason, one.source_topic) for one in groups]
    assert said == [
        (30, "customer <n> took <n> s", "orders"),
        (10, "rejected", "orders"),
        (5, "rejected", "bills"),
    ]
    assert groups[1].example == f"{dead}/0/30"
    assert groups[1].first_unix_ms == groups[1].last_unix_ms == 1_700_000_000_123
    assert (groups[0].group, groups[0].protocol) == ("workers", "sqs")
    assert bills == groups[2:]


def test_letters_of_one_group_are_shown_with_what_is_in_them(
    spark: "SparkSession", gateway: Gateway
) -> None:
    dead = create_topic(gateway.bootstrap)
    _bury(gateway, dead, 3, source="orders", reason="rejected")
    _bury(gateway, dead, 3, source="orders", reason="attempts")
    groups = group_letters(_letters(spark, gateway, dead), groups_max=10)
    pick = next(one.pick for one in groups if one.reason == "attempts")

    letters = first_letters(_letters(spark, gateway, dead, LetterChoice(picks=[pick])), 2)

    assert [str(one.position) for one in letters] == [f"{dead}/0/3", f"{dead}/0/4"]
    assert [(one.key, one.value) for one in letters] == [(None, b"0"), (b"k1", b"1")]
    assert letters[0].headers[:2] == [("kept", None), ("kept", b"\xff\x00")]
    assert (letters[1].source_topic, letters[1].source_offset) == ("orders", 1)


def test_a_replay_sends_each_letter_back_once_whatever_it_was_killed_at(
    spark: "SparkSession", jobs: Jobs, gateway: Gateway
) -> None:
    count = 2_000
    source = create_topic(gateway.bootstrap, partitions=3)
    dead = create_topic(gateway.bootstrap)
    _bury(gateway, dead, count, source=source)
    replay = ["replay", "--topic", dead, "--id", "again", "--yes"]
    for goal in (300, 900):
        program = jobs.start("dlq", *_options(gateway, *replay, "--rate", "200"))
        kill_when(
            program,
            lambda: record_count(gateway.bootstrap, source) > goal,  # noqa: B023 - within the turn
            what="letters come back",
        )
        jobs.stop_tasks()

    letters = _letters(spark, gateway, dead)
    done = _replay(gateway, letters, dead, job_id="again")
    again = _replay(gateway, letters, dead, job_id="again")

    assert done.sent + done.sent_before == count
    assert done.sent_before > 900
    assert (again.sent, again.sent_before) == (0, count)
    found = consume_all(gateway.bootstrap, source, 3, count)
    assert sorted(int(one.value()) for one in found) == list(range(count))
    for one in found:
        names = [name for name, _ in one.headers()]
        assert names == ["kept", "kept", "dlq.hops", "dlq.replayed"]
        assert one.headers()[0][1] is None
        if one.key() is not None:
            assert one.partition() == partition_for_key(one.key(), 3)
    for partition in range(3):
        marks = [one.headers()[-1][1] for one in found if one.partition() == partition]
        offsets = [int(mark.rpartition(b"/")[2]) for mark in marks]
        assert offsets == sorted(offsets)


def test_a_replay_keeps_its_rate_and_goes_elsewhere_on_request(
    spark: "SparkSession", gateway: Gateway
) -> None:
    dead, other = create_topic(gateway.bootstrap), create_topic(gateway.bootstrap)
    _bury(gateway, dead, 60, source="no-such-topic")
    letters = _letters(spark, gateway, dead)

    homeless = _replay(gateway, letters, dead)
    done = _replay(gateway, letters, dead, to=other, rate_per_s=30)

    assert (homeless.sent, homeless.homeless) == (0, 60)
    assert done.topics == {other: 60}
    stamps = [one.timestamp()[1] for one in consume_all(gateway.bootstrap, other, 1, 60)]
    assert 1_700 <= max(stamps) - min(stamps) < 20_000


def test_of_two_replays_with_one_id_the_second_is_refused(
    spark: "SparkSession", gateway: Gateway
) -> None:
    source, dead = create_topic(gateway.bootstrap), create_topic(gateway.bootstrap)
    _bury(gateway, dead, 3, source=source)
    first = JobState(
        Endpoint(gateway.bootstrap),
        job=JOB,
        job_id="twice",
        header="h",
        anchor=dead,
        clock=SystemClock(),
    )

    with first, pytest.raises(JobRuns, match="--id twice is alive"):
        _replay(gateway, _letters(spark, gateway, dead), dead, job_id="twice")

    assert record_count(gateway.bootstrap, source) == 0


def test_reasons_on_the_command_line(jobs: Jobs, gateway: Gateway) -> None:
    dead = create_topic(gateway.bootstrap)
    _bury(gateway, dead, 4, source="orders", reason="row {}")

    done = jobs.run("dlq", *_options(gateway, "reasons", "--topic", dead))

    assert done.status == 0, done.err
    said = done.out
    assert "row <n>" in said
    assert "2023-11-14T22:13:20.123Z" in said
    assert "4 dead letter(s) in 1 group(s)" in said


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["reasons", "--topic", "no-such"], "no such topic.*no-such"),
        (
            ["replay", "--topic", "DEAD", "--to", "no-such", "-y"],
            "--to no-such: there is no such",
        ),
        (
            ["replay", "--topic", "DEAD", "--to", "DEAD", "-y"],
            "the letters are read from there",
        ),
        (["replay", "--topic", "DEAD", "--id", "a b", "-y"], "--id 'a b'"),
        (
            ["replay", "--topic", "DEAD", "--bootstrap", "127.0.0.1:1", "-y"],
            "Kafka endpoint 127.0.0.1:1: ",
        ),
        (["show", "--topic", "DEAD", "--since", "soon"], "startingTime 'soon'"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    jobs: Jobs,
    gateway: Gateway,
    arguments: list[str],
    said: str,
) -> None:
    dead = create_topic(gateway.bootstrap)
    _bury(gateway, dead, 1, source="orders")

    given = [dead if one == "DEAD" else one for one in arguments]
    done = jobs.run("dlq", *_options(gateway, *given))

    assert done.status == 1
    assert len(done.err.splitlines()) == 1
    assert re.search(said, done.err)
