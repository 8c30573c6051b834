"""Kills while topics are settled and compacted: the latest record of each key survives."""

import itertools
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.gateway import Gateway
from tests.support.topics import create_topic, fresh_name
from tests.support.waiting import wait_until

pytestmark = pytest.mark.crash

SETTINGS = {
    "storage.segment_bytes": 1 << 20,
    "storage.reserve_bytes": 1 << 19,
    "storage.settle_after_bytes": 0,
    "storage.settle_after_ms": 0,
    "broker.producer_snapshot_bytes": 1 << 20,
    "compaction.interval_ms": 10,
}
CONFIGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
PARTITIONS = 3
KEYS = 300
KILLS = 4
RECORDS = 9_000
READ_S_MAX = 30
ROUNDS = "headgate_compaction_rounds_total"


class Load:
    """Updates of keys, numbered; remembers what was sent and what was acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._numbers = itertools.count(1)
        self._random = random.Random(7)
        self._topic = topic
        self._bootstrap = bootstrap
        self.acked: dict[bytes, int] = {}
        self.sent: dict[bytes, set[int]] = {}
        self.records = 0

    def producer(self) -> Producer:
        """Return a producer whose batches are compressed and small."""
        return Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "compression.type": self._random.choice(["none", "lz4", "zstd"]),
                "linger.ms": 5,
                "message.timeout.ms": 60_000,
            }
        )

    def send(self, producer: Producer, count: int) -> None:
        """Send so many records; who acknowledges them is heard in ``poll``."""
        for _ in range(count):
            number = next(self._numbers)
            index = self._random.randrange(KEYS)
            key = b"key-%d" % index
            self.sent.setdefault(key, set()).add(number)
            producer.produce(
                self._topic,
                partition=index % PARTITIONS,
                key=key,
                value=b"%d %s" % (number, self._random.randbytes(400)),
                on_delivery=partial(self._on_delivery, key, number),
            )
            self.records += 1
            producer.poll(0)

    def _on_delivery(self, key: bytes, number: int, error: object, _record: Any) -> None:
        if error is None:
            self.acked[key] = max(self.acked.get(key, 0), number)


def replay(bootstrap: str, topic: str) -> tuple[dict[bytes, int], int]:
    """Read all; return the number in each key's last record, and how many records there are."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": fresh_name("g"),
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    latest: dict[bytes, int] = {}
    last_offsets = [-1] * PARTITIONS
    count, ended = 0, 0
    while ended < PARTITIONS:
        record = consumer.poll(READ_S_MAX)
        assert record is not None, "a partition does not end"
        if record.error():
            ended += 1
            continue
        assert record.offset() > last_offsets[record.partition()]
        last_offsets[record.partition()] = record.offset()
        latest[record.key()] = int(record.value().split(b" ", 1)[0])
        count += 1
    consumer.close()
    return latest, count


def check(load: Load, latest: dict[bytes, int]) -> None:
    for key, number in load.acked.items():
        assert key in latest, f"{key!r} is lost"
        assert latest[key] >= number, f"{key!r}: {latest[key]} is not the last one, {number}"
    for key, number in latest.items():
        assert number in load.sent[key]


def test_the_latest_of_each_key_survives_kills_during_compaction(tmp_path: Path) -> None:
    with Gateway(tmp_path / "data", SETTINGS) as gateway:
        topic = create_topic(gateway.bootstrap, partitions=PARTITIONS, configs=CONFIGS)
        load = Load(gateway.bootstrap, topic)
        for kill in range(KILLS):
            producer = load.producer()
            load.send(producer, RECORDS // 2)
            producer.flush(60)
            wanted = gateway.metric(ROUNDS) + PARTITIONS
            load.send(producer, RECORDS // 2)
            wait_until(
                partial(_has_reached, gateway, producer, wanted),
                within_s=60,
                what="compaction is under way",
            )
            if kill % 2:
                load.send(producer, 500)  # the kill comes among them
            gateway.kill()
            gateway.restart()
            producer.flush(60)
            latest, count = replay(gateway.bootstrap, topic)
            check(load, latest)
            assert count < load.records
        gateway.stop()
        gateway.run_command("log", "verify", str(gateway.data_dir))


def _has_reached(gateway: Gateway, producer: Producer, rounds: float) -> bool:
    producer.poll(0)
    return gateway.metric(ROUNDS) >= rounds
