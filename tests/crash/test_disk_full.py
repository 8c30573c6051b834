"""A full disk during produce, commit and delete: retriable errors, nothing lost, a way out."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.crash.load import committed, read_all
from tests.crash.small_disk import DISK_BYTES
from tests.support.gateway import Gateway
from tests.support.kafka_wire import Connection, batch
from tests.support.topics import create_topic, fresh_name

pytestmark = [
    pytest.mark.crash,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk"),
]

SEGMENT_BYTES = 4 << 20
VALUE = bytes(range(256)) * 400
STORAGE_ERROR = 56  # KAFKA_STORAGE_ERROR, which clients retry
BATCHES_MAX = 2 * DISK_BYTES // len(VALUE)


@pytest.fixture
def gateway(small_disk: Path) -> Iterator[Gateway]:
    settings = {
        "storage.segment_bytes": SEGMENT_BYTES,
        "storage.reserve_bytes": SEGMENT_BYTES // 2,
    }
    with Gateway(small_disk / "data", settings) as running:
        yield running


def fill(connection: Connection, topic: str) -> int:
    """Produce until the disk is full; return how many records were acknowledged."""
    for acknowledged in range(BATCHES_MAX):
        code, offset = connection.produce(topic, 0, batch([b"%d " % acknowledged + VALUE]))
        if code:
            assert code == STORAGE_ERROR
            assert acknowledged > 0
            return acknowledged
        assert offset == acknowledged
    pytest.fail("the disk took more than it has")


def check(gateway: Gateway, topic: str, count: int) -> None:
    stored = read_all(gateway.bootstrap, topic, 1)
    numbers = [int(value.split(b" ", 1)[0]) for _place, value in sorted(stored.items())]
    assert numbers == list(range(count))


def test_produce_is_refused_and_nothing_is_lost(gateway: Gateway) -> None:
    topic = create_topic(gateway.bootstrap)
    with Connection(gateway.kafka_port) as connection:
        count = fill(connection, topic)
        again, _offset = connection.produce(topic, 0, batch([VALUE]))

    assert again == STORAGE_ERROR
    check(gateway, topic, count)
    gateway.kill()
    gateway.restart()
    check(gateway, topic, count)


def test_commits_still_work(gateway: Gateway) -> None:
    topic = create_topic(gateway.bootstrap)
    with Connection(gateway.kafka_port) as connection:
        count = fill(connection, topic)

    group = fresh_name("g")
    consumer = Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, count)], asynchronous=False)
    consumer.close()

    assert committed(gateway.bootstrap, topic, group, 1) == {0: count}
    gateway.kill()
    gateway.restart()
    assert committed(gateway.bootstrap, topic, group, 1) == {0: count}


def test_deleting_a_topic_makes_room(gateway: Gateway) -> None:
    full, other = create_topic(gateway.bootstrap), create_topic(gateway.bootstrap)
    with Connection(gateway.kafka_port) as connection:
        fill(connection, full)

        admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
        admin.delete_topics([full])[full].result(30)

        for number in range(BATCHES_MAX):
            code, offset = connection.produce(other, 0, batch([VALUE]))
            if not code:
                assert offset == 0, number
                return
        pytest.fail("there was no room after the delete")
