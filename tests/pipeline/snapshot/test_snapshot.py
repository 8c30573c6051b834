"""``headgate pipeline snapshot``: what compaction would keep, and nothing else."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from confluent_kafka import Consumer, Producer
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from gateway.model import stamp
from gateway.records.codec import encode_batch
from pipeline.log.options import BadOption
from pipeline.snapshot.job import Snapshot, Taken, as_of
from pipeline.snapshot.targets import SUCCESS, NotEmpty, open_target
from tests.pipeline.audit.damaged_logs import TOPIC, Batch, write_log
from tests.pipeline.compacting import NODE_SETTINGS, TOPIC_CONFIGS
from tests.pipeline.running import Jobs, at
from tests.support.gateway import Gateway
from tests.support.s3_servers import REGION, S3Server
from tests.support.topics import create_topic, fresh_name
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("spark-2")]

_START_UNIX_MS = 1_700_000_000_000
_PARTITIONS = 3
_KEYS = 90
_UPDATES = 10

Row = tuple[int, bytes | None, bytes | None]  # ms after the start, key, value
Latest = dict[bytes, tuple[int, int, bytes]]  # key -> partition, offset, value


def _batch(base: int, rows: Sequence[Row]) -> Batch:
    data = encode_batch(
        [(_START_UNIX_MS + at_ms, key, value, ()) for at_ms, key, value in rows]
    )
    stamp(data, base, 0)
    return base, bytearray(data)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A topic of one partition, in two files."""
    first: list[Row] = [
        (0, b"a", b"a0"),
        (10, b"b", b"b1"),
        (20, None, b"no key"),
        (30, b"c", b""),
    ]
    second: list[Row] = [
        (40, b"a", b"a4"),
        (50, b"b", None),
        (45, b"d", b"d6"),
        (70, b"d", b"d7"),
    ]
    return write_log(tmp_path / "data", [_batch(0, first)], [_batch(4, second)])


def _taken(
    spark: SparkSession, data: Path, to: Path, at: str | None = None, *, form: str = "parquet"
) -> Taken:
    job = Snapshot({"path": str(data), "topics": TOPIC}, as_of(at), metadata_url=None)
    target = open_target(str(to), form)
    target.check()
    return job.run(spark, target, lambda _: None)


def _values(to: Path) -> dict[bytes, tuple[int, bytes]]:
    rows = ds.dataset(to, format="parquet").to_table().to_pylist()
    assert len({row["key"] for row in rows}) == len(rows)
    return {row["key"]: (row["offset"], row["value"]) for row in rows}


def test_the_last_value_of_each_key_counts_and_a_null_removes_it(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    taken = _taken(spark, data, tmp_path / "to")

    assert _values(tmp_path / "to") == {b"a": (4, b"a4"), b"c": (3, b""), b"d": (7, b"d7")}
    assert taken[:4] == (8, 1, 3, 1)
    about = json.loads((tmp_path / "to" / SUCCESS).read_text())
    assert about["headgate.topic"] == TOPIC
    assert json.loads(about["headgate.offsets"]) == {"0": 8}


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (f'{{"{TOPIC}": {{"0": 5}}}}', {b"a": b"a4", b"b": b"b1", b"c": b""}),
        (str(_START_UNIX_MS + 45), {b"a": b"a4", b"b": b"b1", b"c": b"", b"d": b"d6"}),
        ("2023-11-14T22:13:20.010Z", {b"a": b"a0", b"b": b"b1"}),
        (str(_START_UNIX_MS - 1), {}),
    ],
    ids=["offsets", "unix-ms-included", "iso", "before-all"],
)
def test_as_of_a_moment_what_came_later_does_not_count(
    spark: SparkSession,
    data: Path,
    tmp_path: Path,
    at: str,
    expected: Mapping[bytes, bytes],
) -> None:
    _taken(spark, data, tmp_path / "to", at)

    if not expected:
        assert [one.name for one in (tmp_path / "to").iterdir()] == [SUCCESS]
        return
    found = {key: value for key, (_, value) in _values(tmp_path / "to").items()}
    assert found == expected


def test_a_delta_table_has_one_version_for_each_snapshot(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    to = tmp_path / "to"
    _taken(spark, data, to, f'{{"{TOPIC}": {{"0": 2}}}}', form="delta")
    _taken(spark, data, to, form="delta")

    def keys(table: DeltaTable) -> list[bytes]:
        return sorted(table.to_pyarrow_table(columns=["key"])["key"].to_pylist())

    now = DeltaTable(to)
    assert keys(now) == [b"a", b"c", b"d"]
    before = DeltaTable(to, version=now.version() - 1)
    assert keys(before) == [b"a", b"b"]
    assert json.loads(now.history(1)[0]["headgate.offsets"]) == {"0": 8}


def test_a_folder_with_something_in_it_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "mine.txt").write_text("keep")

    with pytest.raises(NotEmpty, match=r"is not empty \(mine.txt\)"):
        open_target(str(tmp_path / "to"), "parquet").check()


def test_what_tasks_that_ran_twice_have_left_is_not_in_the_snapshot(tmp_path: Path) -> None:
    target = open_target(str(tmp_path / "to"), "parquet")
    (tmp_path / "to").mkdir()
    stray = tmp_path / "to" / f"{target.prefix}stray.parquet"
    stray.write_bytes(b"half")

    target.commit([], {})

    assert not stray.exists()
    assert (tmp_path / "to" / SUCCESS).exists()


def test_of_two_snapshots_into_one_folder_one_is_told(tmp_path: Path) -> None:
    ours, theirs = (open_target(str(tmp_path / "to"), "parquet") for _ in range(2))
    theirs.commit([], {})

    with pytest.raises(NotEmpty, match="another snapshot"):
        ours.commit([], {})


@pytest.mark.parametrize("text", ["yesterday", "2026-01-31T12:00", '{"orders": 3}'])
def test_a_moment_that_makes_no_sense_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadOption):
        Snapshot({"path": str(tmp_path), "topics": TOPIC}, as_of(text), metadata_url=None)


class _Topics(NamedTuple):
    """A stopped gateway's data. ``read``: what a Kafka client found in the compacted topic."""

    data_dir: Path
    compacted: str
    plain: str
    mixed: str
    read: Latest
    records_read: int


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Topics]:
    with Gateway(tmp_path_factory.mktemp("snapshot") / "data", NODE_SETTINGS) as gateway:
        compacted = create_topic(
            gateway.bootstrap, partitions=_PARTITIONS, configs=TOPIC_CONFIGS
        )
        plain = create_topic(gateway.bootstrap, partitions=_PARTITIONS)
        mixed = create_topic(gateway.bootstrap, partitions=_PARTITIONS)
        _fill(gateway, compacted, plain, mixed)
        wait_until(
            lambda: (
                gateway.metric("headgate_compaction_removed_records_total")
                >= _KEYS * (_UPDATES - 2)
            ),
            within_s=90,
            what="the topic is compacted",
        )
        found, count = _read(gateway, compacted)
        gateway.stop()
        yield _Topics(gateway.data_dir, compacted, plain, mixed, found, count)
        gateway.restart()


def _fill(gateway: Gateway, compacted: str, plain: str, mixed: str) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "batch.size": 20_000})
    produce = partial(
        producer.produce, on_delivery=lambda error, _: failed.append(error) if error else None
    )
    for update in range(_UPDATES):
        for key in range(_KEYS):
            is_gone = key % 5 == 0 and update == _UPDATES - 1
            value = None if is_gone else b"%d:%d " % (key, update) * 40
            at_ms = _START_UNIX_MS + update * 1_000 + key
            for topic in (compacted, plain):
                where = key % _PARTITIONS
                produce(topic, value, key=b"k%d" % key, partition=where, timestamp=at_ms)
            # As a client may that knows nothing of keys: from one partition to the next.
            produce(
                mixed, value, key=b"k%d" % key, partition=update % _PARTITIONS, timestamp=at_ms
            )
        assert producer.flush(30) == 0
    for _ in range(64):  # fills the log's file, so that it is settled
        produce(create_ballast(gateway), bytes(60_000))
    assert producer.flush(30) == 0
    assert not failed


def create_ballast(gateway: Gateway, made: list[str] = []) -> str:  # noqa: B006 - made once
    if not made:
        made.append(create_topic(gateway.bootstrap, name=fresh_name("ballast")))
    return made[0]


def _read(gateway: Gateway, topic: str) -> tuple[Latest, int]:
    """Return the last value of each key, as a stock client reads them, and how many it read."""
    consumer = Consumer(
        {
            "bootstrap.servers": gateway.bootstrap,
            "group.id": fresh_name("g"),
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    latest: Latest = {}
    count = 0
    ended: set[int] = set()
    while len(ended) < _PARTITIONS:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            ended.add(message.partition())
            continue
        count += 1
        latest.pop(message.key(), None)
        if message.value() is not None:
            latest[message.key()] = message.partition(), message.offset(), message.value()
    consumer.close()
    return latest, count


def _snapshot(
    spark: SparkSession, topics: _Topics, topic: str, to: Path, *, across: bool = False
) -> tuple[Taken, Latest]:
    given = {"path": str(topics.data_dir), "topics": topic}
    job = Snapshot(given, as_of(None), metadata_url=None)
    target = open_target(str(to), "parquet")
    taken = job.run(spark, target, lambda _: None, across_partitions=across)
    rows = ds.dataset(to, format="parquet").to_table().to_pylist()
    return taken, {row["key"]: (row["partition"], row["offset"], row["value"]) for row in rows}


def test_a_snapshot_is_what_a_client_reads_from_the_compacted_topic(
    spark: SparkSession, topics: _Topics, tmp_path: Path
) -> None:
    taken, found = _snapshot(spark, topics, topics.compacted, tmp_path / "to")

    assert found == topics.read
    assert taken.keys == len(topics.read) == _KEYS * 4 // 5
    assert taken.records == topics.records_read < _KEYS * 3


def test_before_compaction_it_is_what_compaction_will_keep(
    spark: SparkSession, topics: _Topics, tmp_path: Path
) -> None:
    taken, found = _snapshot(spark, topics, topics.plain, tmp_path / "to")

    assert found == topics.read  # the same keys, offsets and values: the topics got the same
    assert taken.records == _KEYS * _UPDATES
    assert taken.removed == _KEYS // 5


def test_keys_that_lie_in_several_partitions_are_decided_by_time_when_asked(
    spark: SparkSession, topics: _Topics, tmp_path: Path
) -> None:
    taken, found = _snapshot(spark, topics, topics.mixed, tmp_path / "across", across=True)
    by_partition = _snapshot(spark, topics, topics.mixed, tmp_path / "each")[0]

    assert {key: value for key, (*_, value) in found.items()} == {
        key: value for key, (*_, value) in topics.read.items()
    }
    assert taken.keys == len(topics.read)
    assert by_partition.keys == _KEYS * _PARTITIONS - _KEYS // 5


def test_a_snapshot_of_the_past_says_when_compaction_may_have_taken_from_it(
    jobs: Jobs, topics: _Topics, tmp_path: Path
) -> None:
    moment = str(_START_UNIX_MS + 5_000)

    told = [
        jobs.run("snapshot", at(topics.data_dir), "--topic", topic, "--to", tmp_path / "to",
                "--as-of", moment, "--dry-run").out
        for topic in (topics.compacted, topics.plain)
    ]  # fmt: skip

    assert ["may have been taken out" in one for one in told] == [True, False]
    assert not (tmp_path / "to").exists()


def test_a_snapshot_in_a_bucket(jobs: Jobs, data: Path, s3: S3Server) -> None:
    bucket = s3.new_bucket()
    env = {"AWS_ENDPOINT_URL": s3.endpoint_url, "AWS_REGION": REGION}
    run = ["snapshot", at(data), "--topic", TOPIC, "--to", f"s3://{bucket}/now", "--json"]

    first, second = (jobs.run(*run, env=env) for _ in range(2))

    files = pa.fs.S3FileSystem(
        access_key=s3.access_key,
        secret_key=s3.secret_key,
        region=REGION,
        endpoint_override=s3.endpoint_url.removeprefix("http://"),
        scheme="http",
    )
    rows = ds.dataset(f"{bucket}/now", filesystem=files, format="parquet").to_table()
    assert first.status == 0, first.err
    assert sorted(rows["key"].to_pylist()) == [b"a", b"c", b"d"]
    assert second.status == 1
    assert f"s3://{bucket}/now is not empty" in second.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--topic", "no-such"], "no such topic"),
        (["--topic", TOPIC, "--format", "csv"], "--format csv: there is parquet, delta"),
        (["--topic", TOPIC, "--as-of", "soon"], "'soon' is neither"),
    ],
)
def test_what_cannot_be_taken_is_one_line(
    jobs: Jobs, data: Path, tmp_path: Path, arguments: list[str], said: str
) -> None:
    done = jobs.run("snapshot", at(data), "--to", tmp_path / "to", *arguments)

    assert done.status == 1
    (line,) = done.err.splitlines()
    assert said in line
