"""Kafka Streams, exactly once: killed amid transactions, and started again."""

from collections import defaultdict
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from gateway.testing.process import Program
from tests.support.toolchain import streams_classpath
from tests.support.topics import create_topic, fresh_name
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.java]

KEYS = 10
RECORDS = 2_000
PARTITIONS = 2
DONE_S_MAX = 300


class Counts:
    """The counts that committed transactions have written, by key, in order."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.by_key: defaultdict[str, list[int]] = defaultdict(list)
        self.total = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": fresh_name("g"),
                "isolation.level": "read_committed",
            }
        )
        self._consumer.assign([TopicPartition(topic, n, 0) for n in range(PARTITIONS)])

    def read(self) -> int:
        """Read what is there; return how many counts there were until now."""
        for record in self._consumer.consume(1_000, timeout=0.2):
            assert record.error() is None, record.error()
            count = int.from_bytes(record.value(), "big")
            self.by_key[record.key().decode()].append(count)
            self.total += 1
        return self.total

    def close(self) -> None:
        self._consumer.close()


def test_each_record_is_counted_once_through_a_kill(bootstrap: str, tmp_path: Path) -> None:
    source = create_topic(bootstrap, partitions=PARTITIONS)
    target = create_topic(bootstrap, partitions=PARTITIONS)
    application = fresh_name("counts")
    producer = Producer({"bootstrap.servers": bootstrap})
    counts = Counts(bootstrap, target)

    def send(numbers: range) -> None:
        for number in numbers:
            producer.produce(source, str(number), key=f"key-{number % KEYS}")
            producer.poll(0)
        assert producer.flush(60) == 0

    def start() -> Program:
        return Program(
            ["java", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", streams_classpath(),
             "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
             "Counts", bootstrap, application, source, target, str(tmp_path)],
        )  # fmt: skip

    def wait_for(count: int, program: Program) -> None:
        wait_until(
            lambda: not program.is_running or counts.read() >= count,
            within_s=DONE_S_MAX,
            what=f"{count} counts",
        )
        assert program.is_running, program.tail()

    send(range(RECORDS // 2))
    program = start()
    try:
        wait_for(1, program)
        send(range(RECORDS // 2, RECORDS))
        program.kill()
        program = start()
        wait_for(RECORDS, program)
        counts.read()
    finally:
        program.kill()
        counts.close()

    expected = list(range(1, RECORDS // KEYS + 1))
    assert dict(counts.by_key) == {f"key-{number}": expected for number in range(KEYS)}
