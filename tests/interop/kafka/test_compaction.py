"""A compacted topic, compacted by the running gateway, replayed by stock clients."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer

from tests.interop.kafka.clients import CONFLUENT, Client
from tests.interop.kafka.programs.protocol import Message
from tests.support.gateway import Gateway
from tests.support.topics import create_topic
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("compaction")]

# Small files, settled and compacted as soon as they can be.
SETTINGS = {
    "storage.segment_bytes": 1 << 20,
    "storage.reserve_bytes": 1 << 19,
    "storage.settle_after_bytes": 0,
    "storage.settle_after_ms": 0,
    "broker.producer_snapshot_bytes": 1 << 20,
    "compaction.interval_ms": 100,
}
CONFIGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
COMPRESSIONS = ["none", "gzip", "snappy", "lz4", "zstd"]
PARTITIONS = 2
KEYS = 200
UPDATES = 12
COMPACTED_S_MAX = 180


class Compacted(NamedTuple):
    """A gateway with a fully compacted topic, and the topic's expected records."""

    gateway: Gateway
    topic: str
    latest: list[Message]  # in order of partition and offset


def fill(gateway: Gateway, topic: str) -> list[Message]:
    """Write each key many times, by every compression; return its latest records."""
    latest: dict[bytes | None, Message] = {}
    for update in range(UPDATES):
        producer = Producer(
            {
                "bootstrap.servers": gateway.bootstrap,
                "compression.type": COMPRESSIONS[update % len(COMPRESSIONS)],
                "enable.idempotence": update % 2 == 0,
                "linger.ms": 20,
            }
        )

        for key in range(KEYS):
            if key % 7 == 0 and update > 8:
                continue  # these end early, so that their batches keep some records only
            is_gone = key % 5 == 0 and update == UPDATES - 1
            message = Message(
                value=None if is_gone else b"%d:%d " % (key, update) * 100,
                key=b"key-%d" % key,
                headers=(("update", b"%d" % update),),
                timestamp_ms=1_700_000_000_000 + update * 1000 + key,
                partition=key % PARTITIONS,
            )
            producer.produce(
                topic,
                partition=message.partition,
                key=message.key,
                value=message.value,
                headers=list(message.headers),
                timestamp=message.timestamp_ms,
                on_delivery=partial(_remember, latest, message),
            )
        assert producer.flush(30) == 0
    return sorted(latest.values(), key=lambda message: (message.partition, message.offset))


def _remember(
    latest: dict[bytes | None, Message], message: Message, error: object, told: Any
) -> None:
    assert error is None
    latest[message.key] = replace(message, offset=told.offset())


def close_segments(gateway: Gateway) -> None:
    """Fill the log's files through another topic, so that earlier files are complete."""
    producer = Producer({"bootstrap.servers": gateway.bootstrap})
    for _ in range(64):
        producer.produce("ballast", value=bytes(60_000))
        producer.poll(0)
    assert producer.flush(30) == 0


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compacted]:
    gateway = Gateway(tmp_path_factory.mktemp("compaction") / "data", SETTINGS)
    with gateway:
        topic = create_topic(gateway.bootstrap, partitions=PARTITIONS, configs=CONFIGS)
        create_topic(gateway.bootstrap, name="ballast")
        latest = fill(gateway, topic)
        close_segments(gateway)
        superseded = KEYS * UPDATES - len(latest) - len(range(0, KEYS, 7)) * (UPDATES - 9)
        wait_until(
            lambda: gateway.metric("headgate_compaction_removed_records_total") >= superseded,
            within_s=COMPACTED_S_MAX,
            what=f"{superseded} records are compacted away",
        )
        yield Compacted(gateway, topic, latest)


def check_replay(client: Client, compacted: Compacted) -> None:
    seen = client.consume(
        compacted.gateway.bootstrap,
        compacted.topic,
        count=len(compacted.latest),
        partitions=PARTITIONS,
    )
    for partition in range(PARTITIONS):
        expected = [m for m in compacted.latest if m.partition == partition]
        found = [m for m in seen if m.partition == partition]
        assert found == expected
        assert [m.offset for m in found] == [m.offset for m in expected]


def test_a_client_replays_exactly_the_latest_of_each_key(
    client: Client, compacted: Compacted
) -> None:
    check_replay(client, compacted)


def test_what_was_compacted_survives_a_kill(compacted: Compacted) -> None:
    compacted.gateway.kill()
    compacted.gateway.restart()

    check_replay(CONFLUENT, compacted)
