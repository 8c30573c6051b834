"""``format("headgate")`` in a real Spark over a log in a bucket."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from gateway.clock import SystemClock
from pipeline.log.options import parse_options
from storage_adapters.s3.index import Index
from tests.pipeline.producing import numbers_of, produce
from tests.pipeline.s3_gateway import S3Gateway, move_objects, s3_gateway
from tests.support.s3_servers import S3Server
from tests.support.topics import create_topic

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("spark-2")]


@pytest.fixture(scope="module")
def shared(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Gateway]:
    with s3_gateway(s3, tmp_path_factory.mktemp("gateway")) as running:
        yield running


def _read(spark: SparkSession, source: S3Gateway, **options: str) -> DataFrame:
    return spark.read.format("headgate").options(**source.named, **options).load()


def test_every_row_is_there(spark: SparkSession, shared: S3Gateway) -> None:
    topic = create_topic(shared.bootstrap, partitions=3)
    for first in range(0, 6_000, 2_000):
        produce(shared.bootstrap, topic, range(first, first + 2_000))

    frame = _read(spark, shared, topics=topic)

    assert numbers_of(frame) == list(range(6_000))
    assert frame.select("partition", "offset").distinct().count() == 6_000


def test_a_stream_sees_every_row_once_across_runs(
    spark: SparkSession, shared: S3Gateway, tmp_path: Path
) -> None:
    topic = create_topic(shared.bootstrap, partitions=2)
    stream = spark.readStream.format("headgate").options(
        **shared.named, topics=topic, maxRecordsPerTrigger="700"
    )

    for first in range(0, 4_000, 2_000):
        produce(shared.bootstrap, topic, range(first, first + 2_000))
        query = (
            stream.load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        query.awaitTermination()
        assert len(query.recentProgress) >= 3  # of at most 700 rows each

    assert numbers_of(spark.read.parquet(str(tmp_path / "out"))) == list(range(4_000))


def test_a_planned_query_keeps_its_objects_and_finds_what_moved(
    spark: SparkSession, s3: S3Server, tmp_path: Path
) -> None:
    with s3_gateway(s3, tmp_path) as own:
        topic = create_topic(own.bootstrap)
        produce(own.bootstrap, topic, range(500))
        frame = _read(spark, own, topics=topic)
        planned = frame.select("value").rdd  # the splits are planned here
        assert planned.getNumPartitions() == 1
        own.gateway.stop()

        move_objects(own.options())

        with closing(Index(own.named["catalog"], clock=SystemClock())) as index:
            index.open(create=False)
            assert index.dead(before_unix_ms=1 << 60, limit=10) == []
        assert sorted(int(row.value[:8]) for row in planned.collect()) == list(range(500))


def test_the_password_of_the_catalog_is_in_nothing_that_spark_shows(
    spark: SparkSession,
) -> None:
    url = "postgresql+psycopg://me:s3cret@127.0.0.1:1/headgate"
    frame = spark.read.format("headgate").options(catalog=url, bucket="log").load()

    with pytest.raises(PySparkException, match=r"127\.0\.0\.1") as raised:
        frame.collect()

    plans = frame._jdf.queryExecution()
    shown = [plans.logical().toString(), plans.analyzed().toString(), str(raised.value)]
    shown += [str(raised.value.__cause__), repr(parse_options({"catalog": url, "bucket": "b"}))]
    assert not [one for one in shown if "s3cret" in one]
