"""``format("headgate")`` in a real Spark, beside a gateway that goes on writing and settling."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from tests.pipeline.producing import numbers_of, produce
from tests.support.gateway import Gateway
from tests.support.topics import create_topic, fresh_name
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("spark-2")]

_SETTINGS = {
    "storage.reserve_bytes": 1 << 17,
    "storage.segment_bytes": 1 << 20,
    "storage.settle_after_bytes": 2 << 20,
    "storage.settle_after_ms": 500,
    "broker.producer_snapshot_bytes": 1 << 20,  # settling waits for it
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("source") / "data", _SETTINGS) as running:
        yield running


def _read(spark: SparkSession, gateway: Gateway, **options: Any) -> DataFrame:
    return spark.read.format("headgate").options(**options).load(str(gateway.data_dir))


def _settled(gateway: Gateway) -> list[Path]:
    return list((gateway.data_dir / "settled").glob("*.seg"))


def test_every_row_is_there_wherever_the_log_keeps_it(
    spark: SparkSession, gateway: Gateway
) -> None:
    topic = create_topic(gateway.bootstrap, partitions=3)
    produce(gateway.bootstrap, topic, range(30_000))
    wait_until(lambda: bool(_settled(gateway)), within_s=60, what="segments are settled")
    produce(gateway.bootstrap, topic, range(30_000, 31_000))

    frame = _read(spark, gateway, topics=topic, includeUnsynced="true", headerColumns="trace")
    rows = frame.orderBy("partition", "offset").collect()

    assert sorted(int(row.value[:8]) for row in rows) == list(range(31_000))
    for number in range(3):
        offsets = [row.offset for row in rows if row.partition == number]
        assert offsets == list(range(len(offsets)))
    for row in rows[:2_000]:
        of = int(row.value[:8])
        assert row.topic == topic
        assert row.key == (f"k{of % 7}".encode() if of % 3 else None)
        assert int(row.timestamp.timestamp() * 1_000 + 0.5) == 1_700_000_000_000 + of
        assert row.trace == (f"t{of}" if of % 5 == 0 else None)
        assert [(one.key, bytes(one.value)) for one in row.headers] == (
            [("trace", f"t{of}".encode())] if of % 5 == 0 else []
        )


def test_offsets_and_times_bound_what_is_read(spark: SparkSession, gateway: Gateway) -> None:
    topic = create_topic(gateway.bootstrap)
    produce(gateway.bootstrap, topic, range(5_000))

    by_offset = _read(
        spark,
        gateway,
        topics=topic,
        includeUnsynced="true",
        startingOffsets=f'{{"{topic}": {{"0": 17}}}}',
        endingOffsets=f'{{"{topic}": {{"0": 4000}}}}',
    )
    by_time = _read(
        spark,
        gateway,
        topics=topic,
        includeUnsynced="true",
        startingTime="1700000001000",
        endingTime="2023-11-14T22:13:23+00:00",
    )

    assert numbers_of(by_offset) == list(range(17, 4_000))
    assert numbers_of(by_time) == list(range(1_000, 3_000))


def test_small_splits_lose_and_double_nothing(spark: SparkSession, gateway: Gateway) -> None:
    topic = create_topic(gateway.bootstrap, partitions=2)
    produce(gateway.bootstrap, topic, range(8_000))

    frame = _read(spark, gateway, topics=topic, includeUnsynced="true", splitBytes="50000")

    assert frame.rdd.getNumPartitions() > 8
    assert numbers_of(frame) == list(range(8_000))


def test_columns_are_those_that_were_asked_for(spark: SparkSession, gateway: Gateway) -> None:
    topic = create_topic(gateway.bootstrap)
    produce(gateway.bootstrap, topic, range(10))

    frame = _read(spark, gateway, topics=topic, columns="offset,topic", includeUnsynced="true")

    assert frame.columns == ["topic", "offset"]
    assert frame.count() == 10


def test_a_stream_sees_every_row_once_across_runs(
    spark: SparkSession, gateway: Gateway, tmp_path: Path
) -> None:
    topic = create_topic(gateway.bootstrap, partitions=2)
    stream = (
        spark.readStream.format("headgate")
        .option("topics", topic)
        .option("includeUnsynced", "true")
        .option("maxRecordsPerTrigger", "700")
    )

    for first in range(0, 6_000, 2_000):
        produce(gateway.bootstrap, topic, range(first, first + 2_000))
        query = (
            stream.load(str(gateway.data_dir))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        query.awaitTermination()
        assert len(query.recentProgress) >= 3  # of at most 700 rows each

    assert numbers_of(spark.read.parquet(str(tmp_path / "out"))) == list(range(6_000))


def test_what_is_acknowledged_is_there_at_once(spark: SparkSession, gateway: Gateway) -> None:
    topic = create_topic(gateway.bootstrap)
    produce(gateway.bootstrap, topic, range(10))

    frame = _read(spark, gateway, topics=topic)

    assert numbers_of(frame) == list(range(10))


def test_what_was_never_synced_is_left_out(spark: SparkSession, tmp_path: Path) -> None:
    with Gateway(tmp_path / "data", {"storage.flush": "never"}) as gateway:
        topic = create_topic(gateway.bootstrap)
        produce(gateway.bootstrap, topic, range(10))
        options = {"topicsPattern": topic, "startingOffsets": "earliest"}
        assert numbers_of(_read(spark, gateway, **options)) == []
        assert len(numbers_of(_read(spark, gateway, **options, includeUnsynced="true"))) == 10


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topics": "no-such-topic"}, "no such topic in .*: no-such-topic"),
        ({"topic": "x"}, "unknown option 'topic'; did you mean topics"),
        (
            {"topics": "x", "startingOffsets": "first"},
            "startingOffsets 'first' is not earliest",
        ),
        ({"columns": "body"}, "columns: 'body' is not one of topic, partition"),
    ],
)
def test_bad_options_are_one_clear_line(
    spark: SparkSession, gateway: Gateway, options: dict[str, str], said: str
) -> None:
    with pytest.raises(AnalysisException, match=said):
        _read(spark, gateway, **options).collect()


def test_offsets_that_are_gone_fail_loudly_unless_loss_is_accepted(
    spark: SparkSession, gateway: Gateway
) -> None:
    topic = create_topic(gateway.bootstrap)
    produce(gateway.bootstrap, topic, range(100))
    beyond = f'{{"{topic}": {{"0": 5000}}}}'

    with pytest.raises(AnalysisException, match=r"offset 5000 is not in 0\.\.100"):
        _read(
            spark, gateway, topics=topic, startingOffsets=beyond, includeUnsynced="true"
        ).collect()
    accepted = _read(
        spark,
        gateway,
        topics=topic,
        startingOffsets=beyond,
        failOnDataLoss="false",
        includeUnsynced="true",
    )

    assert accepted.collect() == []


def test_a_damaged_segment_is_named_with_what_to_do(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Gateway(tmp_path / "data", _SETTINGS) as gateway:
        topic = create_topic(gateway.bootstrap)
        produce(gateway.bootstrap, topic, range(30_000))
        gateway.stop()
        path = max(gateway.data_dir.rglob("*.seg"), key=lambda one: one.stat().st_size)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0xFF
        path.write_bytes(data)

        with pytest.raises(Exception, match=rf"{path.name}.*CRC.*log verify"):
            _read(spark, gateway, topics=topic).collect()


def test_topics_of_a_pattern(spark: SparkSession, gateway: Gateway) -> None:
    prefix = fresh_name("pattern")
    for number in range(3):
        topic = create_topic(gateway.bootstrap, name=f"{prefix}.{number}")
        produce(gateway.bootstrap, topic, range(number * 10, number * 10 + 10))

    frame = _read(spark, gateway, topicsPattern=rf"{prefix}\.[02]", includeUnsynced="true")

    assert numbers_of(frame) == [*range(10), *range(20, 30)]
