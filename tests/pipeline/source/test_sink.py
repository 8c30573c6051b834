"""``write.format("headgate")`` and ``writeStream`` against a running gateway."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from tests.pipeline.producing import produce
from tests.support.gateway import Gateway
from tests.support.topics import create_topic, fresh_name

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("spark-2")]

_COLUMNS = (
    "topic string, partition int, key binary, value string, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    settings = {"topic_defaults.auto_create": "false"}
    with Gateway(tmp_path_factory.mktemp("sink") / "data", settings) as running:
        yield running


def _rows(spark: SparkSession, gateway: Gateway, topic: str) -> list[Any]:
    frame = spark.read.format("headgate").options(topics=topic, includeUnsynced="true")
    return frame.load(str(gateway.data_dir)).orderBy("partition", "offset").collect()


def test_rows_arrive_as_they_are(spark: SparkSession, gateway: Gateway) -> None:
    one = create_topic(gateway.bootstrap, partitions=2)
    other = create_topic(gateway.bootstrap)
    moment = datetime(2026, 1, 31, 12, 0, 0, 123_000, tzinfo=UTC)
    rows = [
        (one, 1, b"k", "first", moment, [("a", b"1"), ("a", None), ("b", b"")]),
        (other, None, None, None, moment, None),
        (other, 0, b"", "", moment, []),
    ]
    frame = spark.createDataFrame(rows, _COLUMNS).coalesce(1)

    frame.write.format("headgate").option("bootstrap", gateway.bootstrap).mode("append").save()

    (first,) = _rows(spark, gateway, one)
    assert (first.partition, first.key, first.value) == (1, b"k", b"first")
    assert [(pair.key, pair.value) for pair in first.headers[:3]] == [
        ("a", b"1"),
        ("a", None),
        ("b", b""),
    ]
    assert first.timestamp.astimezone(UTC) == moment
    second, third = _rows(spark, gateway, other)
    assert (second.key, second.value, third.key, third.value) == (None, None, b"", b"")


def test_each_record_says_which_row_of_which_task_it_is(
    spark: SparkSession, gateway: Gateway
) -> None:
    topic = create_topic(gateway.bootstrap, partitions=3)
    frame = spark.range(2_000, numPartitions=4).select(
        sf.col("id").cast("string").alias("key"), sf.col("id").cast("string").alias("value")
    )

    frame.write.format("headgate").options(
        bootstrap=gateway.bootstrap, topic=topic, id="nightly"
    ).mode("append").save()

    rows = _rows(spark, gateway, topic)
    marks = [row.headers[-1].value.decode() for row in rows]
    assert sorted(int(row.value) for row in rows) == list(range(2_000))
    assert len(set(marks)) == 2_000
    assert {mark.rsplit("/", 1)[0] for mark in marks} == {f"nightly/0/{n}" for n in range(4)}
    assert all(row.headers[-1].key == "headgate.sink" for row in rows)
    of_keys = {row.key: row.partition for row in rows}
    assert len(set(of_keys.values())) == 3


def test_a_stream_goes_from_topic_to_topic(
    spark: SparkSession, gateway: Gateway, tmp_path: Path
) -> None:
    source, target = (
        create_topic(gateway.bootstrap, partitions=2),
        create_topic(gateway.bootstrap),
    )
    for first in (0, 1_000):
        produce(gateway.bootstrap, source, range(first, first + 1_000))
        query = (
            spark.readStream.format("headgate")
            .options(topics=source, includeUnsynced="true", maxRecordsPerTrigger="400")
            .load(str(gateway.data_dir))
            .drop("partition")
            .writeStream.format("headgate")
            .options(
                bootstrap=gateway.bootstrap,
                topic=target,
                checkpointLocation=str(tmp_path / "checkpoint"),
            )
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    rows = _rows(spark, gateway, target)
    marks = {row.headers[-1].value.decode() for row in rows}
    assert sorted(int(row.value[:8]) for row in rows) == list(range(2_000))
    assert len(marks) == 2_000
    assert {mark.split("/")[0] for mark in marks} == {query.id}
    assert len({mark.split("/")[1] for mark in marks}) >= 5  # micro-batches


def test_a_micro_batch_that_is_done_again_bears_the_same_marks(
    spark: SparkSession, gateway: Gateway, tmp_path: Path
) -> None:
    source, target = create_topic(gateway.bootstrap), create_topic(gateway.bootstrap)
    produce(gateway.bootstrap, source, range(300))
    checkpoint = tmp_path / "checkpoint"

    def run() -> None:
        (
            spark.readStream.format("headgate")
            .options(topics=source, includeUnsynced="true")
            .load(str(gateway.data_dir))
            .writeStream.format("headgate")
            .options(
                bootstrap=gateway.bootstrap, topic=target, checkpointLocation=str(checkpoint)
            )
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )

    run()
    for path in (checkpoint / "commits").iterdir():  # as if Spark had died before it noted it
        path.unlink()
    run()

    rows = _rows(spark, gateway, target)
    by_mark = {row.headers[-1].value: row.value for row in rows}
    assert len(rows) == 600
    assert sorted(int(value[:8]) for value in by_mark.values()) == list(range(300))


@pytest.mark.parametrize(
    ("options", "columns", "said"),
    [
        ({}, "'v' AS value", "bootstrap is missing"),
        ({"bootstrap": "x:1"}, "'v' AS value", "where to. Set the option topic"),
        ({"bootstrap": "x:1", "topics": "t"}, "'v' AS value", "'topics'; did you mean topic"),
        ({"bootstrap": "x:1", "topic": "t"}, "'v' AS key", "no column value"),
        (
            {"bootstrap": "x:1", "topic": "t"},
            "1 AS value",
            "'value' is int, not string or binary",
        ),
        (
            {"bootstrap": "x:1", "topic": "t"},
            "'v' AS value, array('a') AS headers",
            "'headers' is array<string>, not array<struct",
        ),
        (
            {"bootstrap": "x:1", "topic": "t"},
            "'v' AS value, 1 AS size",
            "column 'size': a record",
        ),
        (
            {"bootstrap": "x:1", "topic": "t", "kafka.acknowledge": "1"},
            "'v' AS value",
            r"kafka.\*: No such configuration property",
        ),
    ],
)
def test_bad_options_and_columns_are_one_clear_line(
    spark: SparkSession, options: dict[str, str], columns: str, said: str
) -> None:
    frame = spark.sql(f"SELECT {columns}")

    with pytest.raises(PySparkException, match=said):
        frame.write.format("headgate").options(**options).mode("append").save()


def test_a_topic_is_not_overwritten(spark: SparkSession, gateway: Gateway) -> None:
    frame = spark.sql("SELECT 'v' AS value")

    with pytest.raises(PySparkException, match="appended to, not overwritten"):
        frame.write.format("headgate").options(
            bootstrap=gateway.bootstrap, topic=fresh_name("kept")
        ).mode("overwrite").save()


def test_what_the_endpoint_refuses_fails_the_task(
    spark: SparkSession, gateway: Gateway
) -> None:
    frame = spark.sql("SELECT 'v' AS value, 7 AS partition")
    topic = create_topic(gateway.bootstrap)

    with pytest.raises(PySparkException, match=rf"{topic}.*Unknown partition"):
        frame.write.format("headgate").options(bootstrap=gateway.bootstrap, topic=topic).mode(
            "append"
        ).save()
