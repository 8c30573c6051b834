"""``compact``: small objects of a real bucket become large ones, and nothing else changes."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Consumer
from pyspark.sql import SparkSession

from gateway.clock import SystemClock
from gateway.errors import StorageUnavailable
from gateway.producers import _SEQUENCE_KEY, PRODUCERS_TOPIC
from gateway.testing.process import Program
from pipeline.compact import checks
from pipeline.compact.job import Compaction, Merged
from pipeline.log import access
from pipeline.log.options import Options, S3Place
from pipeline.log.reading import read_split
from pipeline.log.row_schema import ROWS
from pipeline.log.splits import ending_positions, plan, starting_positions, wanted
from pipeline.log.views import PartitionView
from storage_adapters.s3.config import S3Config
from storage_adapters.s3.index import Index
from tests.pipeline.producing import produce
from tests.pipeline.running import Jobs, kill_when, start_alone
from tests.pipeline.s3_gateway import S3Gateway, s3_gateway
from tests.support.s3_servers import S3Server
from tests.support.topics import create_topic
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("spark-2")]

_NODE_ID = 1


@contextmanager
def _written(
    s3: S3Server, folder: Path, *, idempotent: bool = False
) -> Iterator[tuple[S3Gateway, str]]:
    """Run a gateway with many small objects."""
    with s3_gateway(s3, folder, flush_interval_ms=0) as own:
        topic = create_topic(own.bootstrap, partitions=3)
        for first in range(0, 1_200, 100):
            numbers = range(first, first + 100)
            produce(own.bootstrap, topic, numbers, idempotent=idempotent)
        yield own, topic


def _place(own: S3Gateway) -> S3Place:
    place = own.options().s3
    assert place is not None
    return place


def _index(own: S3Gateway) -> Index:
    index = Index(own.named["catalog"], clock=SystemClock())
    index.open(create=False)
    return index


def _views(own: S3Gateway, topic: str) -> list[PartitionView]:
    return list(wanted(access.views(own.options()), own.options(topics=topic)).values())


def _object_count(own: S3Gateway, topic: str) -> int:
    return len({extent.path for view in _views(own, topic) for extent in view.extents})


def _job(own: S3Gateway) -> Compaction:
    config = S3Config(
        bucket=own.server.bucket,
        prefix="gw/",
        endpoint_url=own.server.endpoint_url,
        region=own.named["region"],
        addressing="path",
        merge_objects_min=4,
        partition_object_bytes_min=4_096,
    )
    return Compaction(_place(own), config, SystemClock())


def _rows(options: Options) -> list[tuple[int, int, int]]:
    found = wanted(access.views(options), options)
    start, end = starting_positions(found, options), ending_positions(found, options)
    schema = pa.schema(
        [field for field in ROWS if field.name in {"partition", "offset", "value"}]
    )
    return sorted(
        (row["partition"], row["offset"], int(row["value"][:8]))
        for split in plan(found, start, end, options)
        for rows in read_split(split, options, schema)
        for row in rows.to_pylist()
    )


def _consumed(own: S3Gateway, topic: str, count: int) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": own.bootstrap,
            "group.id": "after",
            "auto.offset.reset": "earliest",
        }
    )
    with closing(consumer):
        consumer.subscribe([topic])
        numbers: list[int] = []
        wait_until(
            lambda: len(numbers) >= count or _take(consumer, numbers),
            within_s=60,
            what=f"{count} records are consumed",
        )
    return sorted(numbers)


def _take(consumer: Consumer, numbers: list[int]) -> bool:
    for message in consumer.consume(500, timeout=0.5):
        assert not message.error(), message.error()
        numbers.append(int(message.value()[:8]))
    return False


def test_small_objects_become_large_ones_and_all_rows_stay(
    spark: SparkSession, s3: S3Server, tmp_path: Path
) -> None:
    with _written(s3, tmp_path) as (own, topic):
        before = _rows(own.options(topics=topic))
        many = _object_count(own, topic)
        assert many >= 12
        own.gateway.stop()
        done: list[Merged] = []

        planned = _job(own).plan()
        assert planned.rounds
        _job(own).run(spark, _NODE_ID, done.append)

        assert _object_count(own, topic) <= 4
        assert sum(one.objects for one in done) >= many
        assert _rows(own.options(topics=topic)) == before
        assert _job(own).plan().rounds == 0
        own.gateway.start()
        produce(own.bootstrap, topic, range(1_200, 1_300))
        assert _consumed(own, topic, 1_300) == list(range(1_300))


def test_objects_whose_headers_a_start_reads_stay(
    spark: SparkSession, s3: S3Server, tmp_path: Path
) -> None:
    with _written(s3, tmp_path, idempotent=True) as (own, topic):
        produce(own.bootstrap, topic, range(1_200, 1_300))
        own.gateway.kill()  # a stop would note what they have written
        before = {extent.path for view in _views(own, topic) for extent in view.extents}
        done: list[Merged] = []

        _job(own).run(spark, _NODE_ID, done.append)

        after = {extent.path for view in _views(own, topic) for extent in view.extents}
        assert len(before & after) >= 12
        assert {one.damage for one in done} == {""}
        assert sum(len(one.left) for one in done) >= 12


def test_after_a_stop_all_objects_are_merged_and_producers_go_on(
    spark: SparkSession, s3: S3Server, tmp_path: Path
) -> None:
    with _written(s3, tmp_path, idempotent=True) as (own, topic):
        many = _object_count(own, topic)
        own.gateway.stop()
        assert checks.released_sequence(_place(own)) > 0

        _job(own).run(spark, _NODE_ID, lambda _: None)

        assert _object_count(own, topic) < many - 8
        own.gateway.start()
        produce(own.bootstrap, topic, range(1_200, 1_300), idempotent=True)
        assert _consumed(own, topic, 1_300) == list(range(1_300))


def test_a_damaged_object_is_named_and_left_and_the_others_merged(
    spark: SparkSession, s3: S3Server, tmp_path: Path
) -> None:
    with _written(s3, tmp_path) as (own, topic):
        own.gateway.stop()
        paths = sorted({extent.path for view in _views(own, topic) for extent in view.extents})
        path = paths[len(paths) // 2]
        with closing(own.server.client()) as client:
            key = {"Bucket": own.server.bucket, "Key": path.split("/", 3)[3]}
            data = bytearray(client.get_object(**key)["Body"].read())
            data[400] ^= 0xFF
            client.put_object(**key, Body=bytes(data))
        done: list[Merged] = []

        _job(own).run(spark, _NODE_ID, done.append)

        number = int(path.rsplit("/", 1)[1].split("-")[0])
        damage = next(one.damage for one in done if one.damage)
        assert damage.startswith(f"object {number}: ")
        left = {extent.path for view in _views(own, topic) for extent in view.extents}
        assert path in left
        assert len(left) < len(paths)


def test_beside_a_node_it_refuses_but_can_plan(
    jobs: Jobs, s3: S3Server, tmp_path: Path
) -> None:
    with _written(s3, tmp_path) as (own, _):
        own.gateway.settings["storage.merge_objects_min"] = 4

        refused = jobs.run("compact", *_assignments(own))
        planned = jobs.run("compact", "--dry-run", "--json", *_assignments(own))

        assert refused.status == 1
        assert "a node runs" in refused.err
        assert planned.json["rounds"] >= 1


def test_a_bucket_of_other_data_is_refused(s3: S3Server, tmp_path: Path) -> None:
    with s3_gateway(s3, tmp_path / "one") as one, s3_gateway(s3, tmp_path / "two") as two:
        place = _place(one)._replace(bucket=two.server.bucket)
        config = S3Config(
            bucket=two.server.bucket,
            prefix="gw/",
            endpoint_url=two.server.endpoint_url,
            region=two.named["region"],
            addressing="path",
        )

        with pytest.raises(StorageUnavailable, match="the database has the index of"):
            Compaction(place, config, SystemClock()).plan()


def test_the_topic_of_producers_is_the_nodes_own() -> None:
    assert checks.PRODUCERS.name == PRODUCERS_TOPIC
    assert checks.SEQUENCE_KEY == _SEQUENCE_KEY


def test_a_job_that_is_killed_has_done_whole_rounds_and_the_next_does_the_rest(
    jobs: Jobs, s3: S3Server, tmp_path: Path
) -> None:
    with s3_gateway(s3, tmp_path, flush_interval_ms=0, object_bytes=65_536) as own:
        topic = create_topic(own.bootstrap, partitions=2)
        for first in range(0, 1_000, 50):
            produce(own.bootstrap, topic, range(first, first + 50), value_bytes=10_000)
        own.gateway.stop()
        own.gateway.settings["storage.merge_bytes_max"] = 1 << 20
        options = own.options(topics=topic)
        before, many = _rows(options), _object_count(own, topic)

        for start in (start_alone, jobs.start):
            program = start("compact", *_assignments(own))
            _kill_after_a_round(own, topic, program)
            jobs.stop_tasks()
            assert _rows(options) == before
        done = jobs.run("compact", *_assignments(own))

        assert done.status == 0, done.err
        assert _object_count(own, topic) < many // 4
        assert _rows(options) == before
        own.gateway.start()
        assert _consumed(own, topic, 1_000) == list(range(1_000))


def _kill_after_a_round(own: S3Gateway, topic: str, program: Program) -> None:
    count = _object_count(own, topic)
    kill_when(program, lambda: _object_count(own, topic) < count, what="a round is committed")


def _assignments(own: S3Gateway) -> list[str]:
    return [f"--set={key}={value}" for key, value in own.gateway.settings.items()]
