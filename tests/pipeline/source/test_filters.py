"""Predicates that Spark pushes down limit what is read."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from tests.pipeline.producing import numbers_of, produce
from tests.support.gateway import Gateway
from tests.support.topics import create_topic, fresh_name

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("spark-2")]

_PUSHES = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    settings = {"storage.reserve_bytes": 1 << 17, "storage.segment_bytes": 1 << 20}
    with Gateway(tmp_path_factory.mktemp("filters") / "data", settings) as running:
        yield running


class _Filled(NamedTuple):
    """A topic of 3,000 records, and how many splits a query of all of it has."""

    gateway: Gateway
    topic: str
    splits: int


@pytest.fixture(scope="module")
def filled(spark: SparkSession, gateway: Gateway) -> _Filled:
    topic = create_topic(gateway.bootstrap)
    produce(gateway.bootstrap, topic, range(3_000))
    every = _read(spark, gateway, topics=topic, pushFilters="false")
    return _Filled(gateway, topic, every.rdd.getNumPartitions())


@pytest.fixture(params=["true", "false"])
def pushing(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    spark.conf.set(_PUSHES, request.param)
    yield request.param
    spark.conf.unset(_PUSHES)


def _read(spark: SparkSession, gateway: Gateway, **options: Any) -> DataFrame:
    options = {
        "includeUnsynced": "true", "splitBytes": "20000", "pushFilters": "true", **options,
    }  # fmt: skip
    return spark.read.format("headgate").options(**options).load(str(gateway.data_dir))


@pytest.mark.parametrize(
    ("predicate", "wanted"),
    [
        ("offset >= 100 AND offset < 120", range(100, 120)),
        ("offset = 77", range(77, 78)),
        ("offset > 2990", range(2_991, 3_000)),
        ("timestamp >= '2023-11-14T22:13:21Z'", range(1_000, 3_000)),
        (
            "timestamp < '2023-11-14T22:13:20.0505Z' AND timestamp > '2023-11-14T22:13:20.0400Z'",
            range(41, 51),
        ),
        ("offset IN (5, 6) AND partition = 0", range(5, 7)),
        ("partition = 1", range(0)),
        ("offset < 0", range(0)),
        ("offset > 100000", range(0)),
    ],
)
@pytest.mark.parametrize("pushing", ["true"], indirect=True)
@pytest.mark.usefixtures("pushing")
def test_the_answer_is_the_same_and_less_is_read(
    spark: SparkSession, filled: _Filled, predicate: str, wanted: range
) -> None:
    found = _read(spark, filled.gateway, topics=filled.topic).where(predicate)

    assert numbers_of(found) == list(wanted)
    if "offset" in predicate and "IN" not in predicate:
        assert found.rdd.getNumPartitions() <= max(1, filled.splits // 5)


def test_only_wanted_topics_are_read(
    spark: SparkSession, gateway: Gateway, pushing: str
) -> None:
    prefix = fresh_name("filtered")
    for number in range(4):
        topic = create_topic(gateway.bootstrap, name=f"{prefix}.{number}")
        produce(gateway.bootstrap, topic, range(number * 10, number * 10 + 10))
    of_one = _read(spark, gateway, topicsPattern=rf"{prefix}\..").where(
        sf.col("topic") == f"{prefix}.2"
    )
    of_two = _read(spark, gateway, topicsPattern=rf"{prefix}\..").where(
        sf.col("topic").isin(f"{prefix}.1", f"{prefix}.3")
    )

    assert numbers_of(of_one) == list(range(20, 30))
    assert numbers_of(of_two) == [*range(10, 20), *range(30, 40)]
    assert of_one.rdd.getNumPartitions() == (1 if pushing == "true" else 4)
    assert of_two.rdd.getNumPartitions() == (2 if pushing == "true" else 4)


def test_queries_of_one_frame_do_not_disturb_each_other(
    spark: SparkSession, gateway: Gateway, pushing: str
) -> None:
    """Spark 4.3 mixes up their splits where filters are pushed: so it is not the default."""
    topic = create_topic(gateway.bootstrap)
    produce(gateway.bootstrap, topic, range(100))
    frame = _read(spark, gateway, topics=topic, pushFilters="false")

    few, others = frame.where("offset < 10"), frame.where("offset >= 90")

    assert numbers_of(few) == list(range(10))
    assert frame.count() == 100, pushing
    assert numbers_of(few.union(others)) == [*range(10), *range(90, 100)]
