"""``headgate pipeline audit`` over files with planted loss, duplicates and disorder."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

from pipeline.audit import findings as kinds
from pipeline.audit.compacted import records_of
from pipeline.audit.job import Audit
from pipeline.log.access import views
from pipeline.log.options import parse_options
from tests.pipeline.audit.damaged_logs import Batch, batch, write_log
from tests.pipeline.compacting import NODE_SETTINGS, TOPIC_CONFIGS
from tests.pipeline.running import Jobs, at, run_alone
from tests.support.gateway import Gateway
from tests.support.topics import create_topic
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("spark")]

_KEYS = 100
_UPDATES = 12


def _audited(spark: SparkSession, data_dir: Path, **options: str) -> Audit:
    job = Audit(parse_options({"path": str(data_dir), **options}), None)
    job.run(spark, lambda _: None)
    return job


def _wrong(job: Audit) -> list[tuple[str, int, int, int]]:
    return [(one.kind, *one[3:6]) for one in job.findings.listed() if one.is_wrong]


def test_a_sound_log_is_clean_and_counted(spark: SparkSession, tmp_path: Path) -> None:
    data = write_log(
        tmp_path, [batch(0, 0), batch(10, 10)], [batch(20, 20), batch(30, 0, epoch=1)]
    )

    job = _audited(spark, data)
    job.check_records(spark)

    assert job.findings.totals == {}
    assert job.findings.is_clean
    (counts,) = job.counts
    assert (counts.start, counts.end, counts.batches, counts.records) == (0, 40, 4, 40)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            [[batch(0, 0), batch(20, 20)], [batch(30, 30)]],
            [(kinds.MISSING, 10, 19, 10), (kinds.SEQUENCE_GAP, 10, 20, 10)],
        ),
        (
            [[batch(0, 0), batch(10, 10)], [batch(30, 30)]],
            [(kinds.MISSING, 20, 29, 10), (kinds.SEQUENCE_GAP, 20, 30, 10)],
        ),
        (
            [[batch(0, 0), batch(10, 10)], [batch(15, 20), batch(25, 30)]],
            [(kinds.DUPLICATE, 15, 19, 5)],
        ),
        (
            [[batch(0, 0), batch(10, 10), batch(10, 20)], [batch(20, 30)]],
            [(kinds.DUPLICATE, 10, 19, 10)],
        ),
        (
            [[batch(0, 0), batch(20, 10), batch(10, 20), batch(30, 30)]],
            [(kinds.DISORDER, 10, 10, 1)],
        ),
        (
            [[batch(0, 0), batch(10, 10)], [batch(20, 10)]],
            [(kinds.SEQUENCE_DUPLICATE, 20, 20, 10)],
        ),
        (
            [[batch(0, 0, epoch=4), batch(10, 10, epoch=4)], [batch(20, 0, epoch=3)]],
            [(kinds.EPOCH_REGRESS, 20, 20, 1)],
        ),
        (
            [[batch(0, 0)], [batch(10, 7, epoch=1)]],
            [(kinds.EPOCH_START, 10, 10, 1)],
        ),
    ],
    ids=["loss-in-a-file", "loss-between-files", "twice-in-two-files", "twice-in-one", "disorder",
         "sequence-again", "epoch-back", "epoch-start"],
)  # fmt: skip
def test_what_was_planted_is_found(
    spark: SparkSession,
    tmp_path: Path,
    files: list[list[Batch]],
    expected: list[tuple[str, int, int, int]],
) -> None:
    job = _audited(spark, write_log(tmp_path, *files))

    assert sorted(_wrong(job)) == sorted(expected)
    assert not job.findings.is_clean


def test_bytes_that_changed_are_found_when_records_are_decoded(
    spark: SparkSession, tmp_path: Path
) -> None:
    _, raw = bad = batch(10, 10)
    raw[-3] ^= 1
    data = write_log(tmp_path, [batch(0, 0), bad, batch(20, 20)])

    job = _audited(spark, data)
    assert job.findings.is_clean  # headers do not tell
    job.check_records(spark)

    assert _wrong(job) == [(kinds.DAMAGED, 10, 19, 1)]


class _Busy(NamedTuple):
    """A stopped gateway's data, of which a topic was compacted and a group has committed."""

    data_dir: Path
    compacted: str
    plain: str


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Busy]:
    with Gateway(tmp_path_factory.mktemp("audit") / "data", NODE_SETTINGS) as gateway:
        compacted = create_topic(gateway.bootstrap, partitions=2, configs=TOPIC_CONFIGS)
        plain = create_topic(gateway.bootstrap, partitions=2)
        producer = Producer(
            {
                "bootstrap.servers": gateway.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "batch.size": 20_000,
            }
        )
        for update in range(_UPDATES):
            for key in range(_KEYS):
                producer.produce(compacted, b"%d:%d" % (key, update) * 50, key=b"k%d" % key)
                producer.produce(plain, b"%d:%d" % (key, update) * 50)
            assert producer.flush(30) == 0
        for _ in range(64):  # fills the log's file, so that it is settled
            producer.produce(plain, bytes(60_000))
        assert producer.flush(30) == 0
        _commit(gateway, plain)
        wait_until(
            lambda: (
                gateway.metric("headgate_compaction_removed_records_total")
                >= _KEYS * (_UPDATES - 2)
            ),
            within_s=90,
            what="the topic is compacted",
        )
        gateway.stop()
        yield _Busy(gateway.data_dir, compacted, plain)
        gateway.restart()


def _commit(gateway: Gateway, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": "readers"})
    positions = [TopicPartition(topic, 0, 3), TopicPartition(topic, 1, 1_000_000)]
    consumer.commit(offsets=positions, asynchronous=False)
    consumer.close()


def test_a_real_log_is_clean_and_what_compaction_took_out_are_holes(
    spark: SparkSession, busy: _Busy
) -> None:
    job = _audited(spark, busy.data_dir)
    job.check_records(spark)

    assert _wrong(job) == []
    holes = {one.topic for one in job.findings.listed() if one.kind == kinds.HOLES}
    assert holes == {busy.compacted}
    counts = {
        name: sum(one.records for one in job.counts if one.topic == name)
        for name in (busy.compacted, busy.plain)
    }
    assert counts[busy.plain] == _KEYS * _UPDATES + 64
    assert counts[busy.compacted] < _KEYS * 3


def test_a_compacted_topic_that_is_not_known_as_one_has_lost_something(
    spark: SparkSession, busy: _Busy
) -> None:
    job = Audit(parse_options({"path": str(busy.data_dir), "topics": busy.compacted}), None)
    assert job.compacted, "the log itself says what was compacted"
    job.compacted = frozenset()

    job.run(spark, lambda _: None)

    assert kinds.MISSING in job.findings.totals


def test_a_position_beyond_the_end_is_found(busy: _Busy) -> None:
    job = Audit(parse_options({"path": str(busy.data_dir), "topics": busy.plain}), None)

    job.check_groups()

    (wrong,) = [one for one in job.findings.listed() if one.is_wrong]
    assert (wrong.kind, wrong.partition) == (kinds.COMMIT_BEYOND, 1)
    assert "group readers: 1000000 is committed" in wrong.example


def test_what_is_wrong_is_a_table_and_status_3(tmp_path: Path) -> None:
    data = write_log(tmp_path, [batch(0, 0), batch(20, 10)])

    done = run_alone("audit", at(data), "--deep", "--groups")

    assert done.status == 3, done.err
    assert "WRONG: 10 missing" in done.out
    assert "no batch has them" in done.out


def test_a_dry_run_starts_nothing_and_says_how_much_there_is(tmp_path: Path) -> None:
    data = write_log(tmp_path, [batch(0), batch(10)])

    done = run_alone("audit", at(data), "--dry-run", "--json", env={"JAVA_HOME": "/nowhere"})

    assert done.status == 0, done.err
    assert (done.json["partitions"], done.json["offsets"]) == (1, 20)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--topic", "no-such"], "no such topic"),
        (["--lake", "x", "--format", "csv"], "--format csv: there is delta"),
        (["--lake", "no-such-folder"], "no-such-folder holds no lake table"),
    ],
)
def test_what_cannot_be_audited_is_one_line(
    jobs: Jobs, tmp_path: Path, arguments: list[str], said: str
) -> None:
    done = jobs.run("audit", at(write_log(tmp_path, [batch(0)])), *arguments)

    assert done.status == 1
    (line,) = done.err.splitlines()
    assert said in line


def test_what_compaction_says_is_read_where_its_file_has_gone_to(tmp_path: Path) -> None:
    options = parse_options({"path": str(write_log(tmp_path, [batch(0), batch(10)]))})
    (view,) = views(options).values()
    gone = [one._replace(path=f"{one.path}.gone") for one in view.extents]

    found = records_of(view._replace(extents=gone), options)

    assert [record.offset for record in found] == list(range(20))
