"""After a kill -9 a returning client gets all it missed, in order, without needless reads."""

import os
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from gateway.cli.settings import client_of, settings_of
from tests.support.mqtt_gateway import MqttGateway
from tests.support.mqtt_wire import Received
from tests.support.waiting import wait_until

pytestmark = pytest.mark.crash

TOPICS = ("t/a", "t/b", "t/c", "other")
COUNT = 60
KEYED = {
    "storage.segment_bytes": 1 << 20,
    "storage.reserve_bytes": 0,
    "storage.settle_after_bytes": 0,
    "broker.producer_snapshot_bytes": 1 << 20,
}
RECORDS = 12_000


def facts(messages: list[Received]) -> list[tuple[int, str, bytes, int]]:
    return [(one.packet_id, one.topic, one.payload, one.qos) for one in messages]


@pytest.mark.parametrize("qos", [1, 2])
def test_topics_that_took_turns_come_again_as_they_came(tmp_path: Path, qos: int) -> None:
    with MqttGateway(tmp_path / "data") as gateway:
        with gateway.come_back("reader", is_present=False) as reader:
            reader.subscribe(("t/+", qos))
        # One batch holds them all: by MQTT each would wait for the one before, and be its own.
        producer = Producer({"bootstrap.servers": gateway.bootstrap, "linger.ms": 500})
        for n in range(COUNT):
            topic = TOPICS[n % 3 if n < COUNT // 2 else n % 4]
            headers = [("mqtt.qos", b"2" if n % 20 < 10 else b"1")]
            producer.produce("mqtt", b"%d" % n, topic.encode(), headers=headers)
        assert producer.flush(60) == 0
        gateway.kill()
        gateway.restart()
        wanted = [n for n in range(COUNT) if n < COUNT // 2 or n % 4 != 3]
        with gateway.come_back("reader") as reader:
            first = reader.messages(len(wanted), accept=False)
            assert [int(one.payload) for one in first] == wanted
            assert all(
                one.qos == min(qos, 2 if int(one.payload) % 20 < 10 else 1) for one in first
            )
            for message in first[:7]:
                reader.accept(message)
            reader.ping()
        with gateway.come_back("reader") as reader:
            again = reader.messages(len(wanted) - 7, accept=False)
            assert facts(again) == facts(first[7:])
            gateway.kill()
            gateway.restart()
        with gateway.come_back("reader") as reader:
            end = reader.messages_until(again[-1].payload)
            assert facts(end)[1 - len(again) :] == facts(again[:-1])
            assert reader.ping() == []


def index_keys(gateway: MqttGateway) -> None:
    entry = ConfigEntry("key.index", "true", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "mqtt", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result()


def test_of_an_indexed_backlog_little_is_read(tmp_path: Path) -> None:
    with MqttGateway(tmp_path / "data", KEYED) as gateway:
        index_keys(gateway)
        with gateway.come_back("reader", is_present=False) as reader:
            reader.subscribe(("rare/x", 1), ("wild/+/y", 1), ("by/header", 1))
        producer = Producer({"bootstrap.servers": gateway.bootstrap, "batch.size": 100_000})
        rare = {
            2_000: (b"rare/x", []),
            2_001: (b"wild/1/y", []),
            2_002: (b"wild/1/z", []),
            2_003: (b"key", [("mqtt.topic", b"by/header")]),
            RECORDS - 1: (b"rare/x", []),
        }
        for n in range(RECORDS):
            key, headers = rare.get(n, (b"all/%d" % (n % 50), []))
            producer.produce("mqtt", os.urandom(1_000), key, headers=headers)
            producer.poll(0)
        assert producer.flush(60) == 0
        admin = client_of(settings_of(None, [f"node.data_dir={tmp_path / 'data'}"]))

        def is_indexed() -> bool:
            step = admin.send("POST", "topics", "mqtt", "find", body={"key": "rare/x"})
            return bool(step["read_bytes"] < RECORDS * 250)

        # What came last is indexed last: until then all of that is read.
        wait_until(is_indexed, within_s=60, what="an index of what was settled")
        gateway.kill()
        gateway.restart()

        with gateway.come_back("reader") as reader:
            came = reader.messages(4)
            assert [one.topic for one in came] == ["rare/x", "wild/1/y", "by/header", "rare/x"]
            assert reader.ping() == []
        assert 0 < gateway.metric("headgate_mqtt_scanned_records_total") < RECORDS / 2
