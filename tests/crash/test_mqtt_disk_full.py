"""A full disk under MQTT: publishes are refused, acknowledgements work, and it ends with room."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.crash.small_disk import DISK_BYTES
from tests.support import mqtt_wire as wire
from tests.support.mqtt_gateway import MqttGateway
from tests.support.mqtt_raw import RawClient, payloads
from tests.support.mqtt_wire import V3_1_1, Kind
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.crash,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk"),
]

SEGMENT_BYTES = 4 << 20
AGAIN_S_MAX = 20
FILLER = bytes(range(256)) * 400
QUOTA_EXCEEDED = 0x97
TAKEN = {0, 0x10}  # the latter: nobody subscribes to it
MESSAGES_MAX = 2 * DISK_BYTES // len(FILLER)


@pytest.fixture
def gateway(small_disk: Path, ballast: Path) -> Iterator[MqttGateway]:
    assert ballast.exists()
    settings = {
        "storage.segment_bytes": SEGMENT_BYTES,
        "storage.reserve_bytes": SEGMENT_BYTES // 2,
        "adapters.mqtt.session.checkpoint_ms": 50,
    }
    with MqttGateway(small_disk / "data", settings) as running:
        yield running


def answer_to(publisher: RawClient, *, qos: int = 1, retain: bool = False) -> int:
    """Publish much and return the code of the acknowledgement."""
    packet_id = publisher.next_id()
    publisher.send(wire.publish("filler", FILLER, qos=qos, packet_id=packet_id, retain=retain))
    answer = publisher.receive(Kind.PUBACK if qos == 1 else Kind.PUBREC)
    assert answer.packet_id == packet_id
    return answer.code


def is_taken(publisher: RawClient) -> bool:
    return answer_to(publisher) in TAKEN


def fill(publisher: RawClient) -> int:
    """Publish until that is refused; return how many were taken."""
    for taken in range(MESSAGES_MAX):
        code = answer_to(publisher)
        if code not in TAKEN:
            assert code == QUOTA_EXCEEDED
            assert taken > 0
            return taken
    pytest.fail("the disk took more than it has")


def test_publishes_are_refused_until_there_is_room(gateway: MqttGateway, ballast: Path) -> None:
    with (
        gateway.client() as publisher,
        gateway.client(version=V3_1_1) as older,
        gateway.client() as reader,
    ):
        publisher.connect()
        reader.connect()
        older.connect("older")
        fill(publisher)
        assert reader.subscribe(("filler", 1)) == [1]

        assert answer_to(publisher, qos=2) == QUOTA_EXCEEDED
        assert answer_to(publisher, retain=True) == QUOTA_EXCEEDED
        publisher.send(wire.publish("filler", FILLER))  # QoS 0 leaves, and is not kept
        assert publisher.ping() == []
        assert [message.qos for message in reader.messages(1)] == [0]
        older.send(wire.publish("filler", FILLER, qos=1, version=V3_1_1))
        assert older.until_closed() == []  # no acknowledgement: it will say it again
        assert reader.ping() == []  # nothing that was refused

        ballast.unlink()
        wait_until(partial(is_taken, publisher), within_s=AGAIN_S_MAX, what="there is room")
        [message] = reader.messages(1)
        assert (message.payload, message.retain) == (FILLER, False)


def test_what_was_acknowledged_before_is_kept(gateway: MqttGateway, ballast: Path) -> None:
    leave_session(gateway, "s", "filler", qos=1)
    with gateway.client() as publisher:
        publisher.connect()
        count = fill(publisher)
        answer_to(publisher)
    gateway.kill()
    ballast.unlink()
    gateway.restart()

    with gateway.come_back("s") as subscriber:
        assert payloads(subscriber.messages(count)) == [FILLER] * count
        assert subscriber.ping() == []
    with gateway.client() as publisher:
        publisher.connect()
        wait_until(partial(is_taken, publisher), within_s=AGAIN_S_MAX, what="there is room")
    with gateway.come_back("s") as subscriber:
        assert subscriber.receive(Kind.PUBLISH).payload == FILLER


def test_sessions_and_acknowledgements_still_work(gateway: MqttGateway, ballast: Path) -> None:
    leave_session(gateway, "s", "first", qos=2)
    leave_session(gateway, "t", "filler", qos=1)
    with gateway.come_back("p", is_present=False) as publisher:
        publisher.send(wire.publish("first", b"x", qos=2, packet_id=60_000))
        publisher.receive(Kind.PUBREC)
        count = fill(publisher)

        publisher.send(wire.ack(Kind.PUBREL, 60_000))
        assert publisher.receive(Kind.PUBCOMP).code == 0
        with gateway.come_back("s") as subscriber:
            assert payloads(subscriber.messages(1)) == [b"x"]
            assert subscriber.subscribe(("other", 1)) == [1]
        with gateway.come_back("t") as subscriber:
            assert len(subscriber.messages(count)) == count
            subscriber.send(wire.disconnect())
            assert subscriber.until_closed() == []
        gateway.come_back("new", is_present=False).drop()

        gateway.kill()
        ballast.unlink()
        gateway.restart()
    gateway.come_back("new").drop()
    for client_id in ("s", "t"):
        with gateway.come_back(client_id) as subscriber:
            assert subscriber.ping() == []  # all was acknowledged


def test_retained_messages_stay_as_they_were(gateway: MqttGateway, ballast: Path) -> None:
    with gateway.client() as publisher, gateway.client() as reader:
        publisher.connect()
        reader.connect()
        publisher.publish("r", b"before", qos=1, retain=True)
        fill(publisher)
        assert answer_to(publisher, retain=True) == QUOTA_EXCEEDED
        publisher.send(wire.publish("r", FILLER, qos=1, packet_id=7, retain=True))
        assert publisher.receive(Kind.PUBACK).code == QUOTA_EXCEEDED

        reader.subscribe(("r", 0), ("filler", 0))
        assert payloads(reader.ping()) == [b"before"]
        ballast.unlink()


def leave_session(gateway: MqttGateway, client_id: str, topic: str, *, qos: int) -> None:
    """Make a session with a subscription, and leave it."""
    with gateway.come_back(client_id, is_present=False) as subscriber:
        assert subscriber.subscribe((topic, qos)) == [qos]
