"""``headgate pipeline backfill``: a topic that was archived and deleted is there again."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient

from gateway.slots import partition_for_key
from pipeline.resend.backfill import HEADER, Backfilled, Plan, find_sources, run
from pipeline.resend.backfill_files import RowChoice, table_files
from pipeline.resend.endpoint import Endpoint
from tests.pipeline.archive.archives import FORMATS
from tests.pipeline.consuming import consume_all
from tests.pipeline.producing import record_count
from tests.pipeline.running import Jobs, kill_when, start_alone
from tests.support.gateway import Gateway
from tests.support.topics import create_topic, fresh_name
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("spark")]

_SETTINGS = {"storage.reserve_bytes": 1 << 17, "storage.segment_bytes": 1 << 20}
_START_UNIX_MS = 1_700_000_000_000
_DAY_MS = 86_400_000

Row = tuple[Any, ...]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("node") / "data", _SETTINGS) as running:
        yield running


def _produce(gateway: Gateway, topic: str, count: int, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "linger.ms": 5})
    for number in range(count):
        producer.produce(
            topic,
            None if number % 11 == 0 else f"{number:06d}".encode().ljust(200, b"."),
            None if number % 5 == 0 else f"k{number % 13}".encode(),
            number % partitions,
            headers=[("a", None), ("a", b""), ("b", b"\xff")] if number % 3 else [],
            timestamp=_START_UNIX_MS + number % 3 * _DAY_MS + number,
        )
    assert producer.flush(60) == 0


def _rows(messages: list[Message]) -> list[Row]:
    """Return what records have, without the mark, in order of partition and offset."""
    return [
        (
            one.partition(),
            one.key(),
            one.value(),
            [pair for pair in one.headers() or () if pair[0] != HEADER],
            one.timestamp()[1],
        )
        for one in sorted(messages, key=lambda one: (one.partition(), one.offset()))
    ]


def _options(gateway: Gateway, *arguments: str) -> list[str]:
    return [*arguments, *(f"--set={key}={value}" for key, value in gateway.settings.items())]


def _plan(table: Path, choice: RowChoice | None = None, **options: Any) -> Plan:
    chosen = choice or RowChoice()
    plan = Plan(
        url=str(table),
        files=table_files(str(table), chosen),
        choice=chosen,
        job_id="job",
        is_new=False,
        to="",
        keeps_partitions=True,
        rate_per_s=0,
    )
    return replace(plan, **options)


def _backfill(spark: "SparkSession", gateway: Gateway, plan: Plan) -> Backfilled:
    sources = find_sources(spark, plan)
    return run(spark, plan, sources, Endpoint(gateway.bootstrap), lambda _: None)


def _table(folder: Path, topic: str, rows: list[Row]) -> Path:
    """Write a folder of Parquet files: rows are (partition, offset, unix_ms, key, value)."""
    half = len(rows) // 2
    for number, part in enumerate((rows[half:], rows[:half])):
        columns = dict(
            zip(
                ("partition", "offset", "unix_ms", "key", "value"),
                zip(*part, strict=True),
                strict=True,
            )
        )
        table = pa.table(
            {
                "topic": pa.array([topic] * len(part)),
                "partition": pa.array(columns["partition"], pa.int32()),
                "offset": pa.array(columns["offset"], pa.int64()),
                "timestamp": pa.array(
                    [stamp * 1_000 for stamp in columns["unix_ms"]],
                    pa.timestamp("us", tz="UTC"),
                ),
                "key": pa.array(columns["key"], pa.binary()),
                "value": pa.array(columns["value"], pa.binary()),
                "headers": pa.array(
                    [[] for _ in part],
                    pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
                ),
            }
        )
        folder.mkdir(exist_ok=True)
        pq.write_table(table, folder / f"{number}.parquet")
    return folder


def test_a_topic_that_was_archived_and_deleted_is_as_it_was_whatever_the_run_was_killed_at(
    spark: "SparkSession", jobs: Jobs, gateway: Gateway, tmp_path: Path
) -> None:
    count, partitions = 3_000, 3
    topic = create_topic(gateway.bootstrap, partitions=partitions)
    _produce(gateway, topic, count, partitions)
    before = _rows(consume_all(gateway.bootstrap, topic, partitions, count))
    lake = tmp_path / "lake"
    archived = jobs.run("archive", *_options(gateway, "--topic", topic, "--to", str(lake)))
    assert archived.status == 0, archived.err
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    wait_until(
        lambda: topic not in admin.list_topics(timeout=30).topics,
        within_s=30,
        what="it is gone",
    )
    create_topic(gateway.bootstrap, partitions=partitions, name=topic)
    chosen = ["--from", str(lake), "--keep-partitions", "--id", "again", "--rate", "300"]
    program = start_alone("backfill", *_options(gateway, *chosen))  # whose tasks end with it
    kill_when(
        program,
        lambda: record_count(gateway.bootstrap, topic) > 400,
        what="records come back",
    )

    done = _backfill(spark, gateway, _plan(lake, job_id="again"))
    again = _backfill(spark, gateway, _plan(lake, job_id="again"))

    found = consume_all(gateway.bootstrap, topic, partitions, count)
    assert _rows(found) == before
    assert done.sent + done.sent_before == count
    assert done.sent_before > 400
    assert again == (0, count, 0)
    for one in found:
        mark = one.headers()[-1]
        assert mark == (
            HEADER,
            f"again {topic}/{one.partition()}/{one.offset()} {lake}".encode(),
        )


@pytest.mark.parametrize("table_format", FORMATS)
def test_tables_of_each_format_are_read(
    jobs: Jobs, gateway: Gateway, tmp_path: Path, table_format: str
) -> None:
    topic, other, target = (create_topic(gateway.bootstrap) for _ in range(3))
    for one in (topic, other):
        _produce(gateway, one, 30, 1)
    before = _rows(consume_all(gateway.bootstrap, topic, 1, 30))
    lake = str(tmp_path / "lake")
    tables = ["--format", table_format, "--topic", topic, "--topic", other, "--to", lake]
    assert jobs.run("archive", *_options(gateway, *tables)).status == 0
    chosen = ["--from", lake, "--topic", topic, "--to", target, "--json"]

    done = jobs.run("backfill", *_options(gateway, *chosen))

    assert done.json["sent"] == 30
    assert _rows(consume_all(gateway.bootstrap, target, 1, 30)) == before


def test_records_go_to_the_partition_of_their_key_in_the_order_that_they_had(
    spark: "SparkSession", gateway: Gateway, tmp_path: Path
) -> None:
    rows = [
        (number % 2, number // 2, _START_UNIX_MS, f"k{number % 7}".encode(), b"%d" % number)
        for number in range(400)
    ]
    target = create_topic(gateway.bootstrap, partitions=3)
    table = _table(tmp_path / "t", "orders", rows)

    done = _backfill(spark, gateway, _plan(table, to=target, keeps_partitions=False))

    assert done.sent == 400
    found = sorted(consume_all(gateway.bootstrap, target, 3, 400), key=lambda one: one.offset())
    for key in {one.key() for one in found}:
        mine = [one for one in found if one.key() == key]
        assert {one.partition() for one in mine} == {partition_for_key(key, 3)}
        for number in range(2):
            sent = [int(one.value()) for one in mine if int(one.value()) % 2 == number]
            assert sent == sorted(sent)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (RowChoice(first_offset=3, end_offset=6), [3, 4, 5]),
        (RowChoice(start_unix_ms=_START_UNIX_MS + 8), [8, 9]),
        (RowChoice(end_unix_ms=_START_UNIX_MS + 2), [0, 1]),
        (RowChoice(partitions=frozenset({1})), []),
        (RowChoice(topics=frozenset({"other"})), []),
        (RowChoice(topics=frozenset({"orders"}), first_offset=9), [9]),
    ],
)
def test_only_what_is_chosen_is_sent(
    spark: "SparkSession",
    gateway: Gateway,
    tmp_path: Path,
    choice: RowChoice,
    expected: list[int],
) -> None:
    rows = [(0, number, _START_UNIX_MS + number, None, b"%d" % number) for number in range(10)]
    table = _table(tmp_path / "t", "orders", rows)
    target = create_topic(gateway.bootstrap)
    plan = _plan(table, choice, to=target)

    if expected:
        _backfill(spark, gateway, plan)
    else:
        assert find_sources(spark, plan) == []

    found = consume_all(gateway.bootstrap, target, 1, len(expected)) if expected else []
    assert [int(one.value()) for one in found] == expected


def test_a_time_of_zero_is_counted_because_the_client_cannot_say_it(
    spark: "SparkSession", gateway: Gateway, tmp_path: Path
) -> None:
    target = create_topic(gateway.bootstrap)
    table = _table(tmp_path / "t", "orders", [(0, 0, 0, None, b"x"), (0, 1, -1, None, None)])

    done = _backfill(spark, gateway, _plan(table, to=target))

    assert (done.sent, done.restamped) == (2, 1)
    assert consume_all(gateway.bootstrap, target, 1, 2)[1].timestamp()[1] == -1


def test_targets_are_made_where_that_is_asked_for(
    jobs: Jobs, gateway: Gateway, tmp_path: Path
) -> None:
    rows = [(0, 0, 5, None, b"x"), (2, 0, 5, None, b"y")]
    table, target = _table(tmp_path / "t", "orders", rows), fresh_name()
    chosen = ["--from", str(table), "--to", target, "--keep-partitions", "--id", "made"]
    refused = jobs.run("backfill", *_options(gateway, *chosen))

    done = jobs.run("backfill", *_options(gateway, *chosen, "--create", "--json"))

    assert f"--to {target}: there is no such topic; --create makes it" in refused.err
    assert done.json["sent"] == 2
    assert f"created {target} with 3 partition(s)" in done.err
    assert sorted(one.partition() for one in consume_all(gateway.bootstrap, target, 3, 2)) == [
        0,
        2,
    ]
    again = jobs.run("backfill", *_options(gateway, *chosen, "--create", "--json"))
    assert again.json["sent_before"] == 2


def test_a_run_of_which_all_is_refused_says_why_and_leaves_its_id_free(
    jobs: Jobs, gateway: Gateway, tmp_path: Path
) -> None:
    table = _table(tmp_path / "t", "orders", [(0, 0, 5, None, b"x"), (0, 1, 5, None, b"y")])
    target = create_topic(gateway.bootstrap, configs={"max.message.bytes": "50"})
    chosen = ["--from", str(table), "--to", target, "--id", "refused"]

    done = jobs.run("backfill", *_options(gateway, *chosen))

    assert done.status == 1
    assert "Message size too large" in done.err.splitlines()[-1]
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    groups = {one.group_id for one in admin.list_consumer_groups().result(30).valid}
    assert "headgate.backfill.refused" not in groups


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--from", "no-such-folder"], "no-such-folder: there is no table"),
        (["--from", "TABLE", "--bootstrap", "127.0.0.1:1"], "Kafka endpoint 127.0.0.1:1: "),
        (["--from", "TABLE", "--to", "no-such"], "--to no-such: there is no such topic"),
        (["--from", "TABLE", "--since", "soon"], "'soon' is neither unix ms nor ISO 8601"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    jobs: Jobs,
    gateway: Gateway,
    tmp_path: Path,
    arguments: list[str],
    said: str,
) -> None:
    table = _table(tmp_path / "t", "orders", [(0, 0, 5, None, b"x"), (0, 1, 5, None, b"y")])
    given = [str(table) if one == "TABLE" else one for one in arguments]

    done = jobs.run("backfill", *_options(gateway, *given))

    assert done.status == 1
    assert len(done.err.splitlines()) == 1, done.err
    assert re.search(said, done.err)
