"""Effects of a kill -9 on members of a shared subscription (MQTT 5.0 section 4.8.2)."""

from pathlib import Path

import pytest

from tests.support.mqtt_gateway import MqttGateway
from tests.support.mqtt_raw import payloads
from tests.support.mqtt_wire import Received

pytestmark = pytest.mark.crash

SHARED = ("$share/g/t/+", 2)
# Each strategy and each QoS; a soak has all of their pairs.
CASES = [
    ("round_robin", 1),
    ("round_robin", 2),
    ("sticky", 2),
    ("hash_topic", 1),
    pytest.param("sticky", 1, marks=pytest.mark.soak),
    pytest.param("hash_topic", 2, marks=pytest.mark.soak),
]
COUNT = 24
ACKNOWLEDGED = 3


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def publish_all(gateway: MqttGateway, *, qos: int) -> None:
    """Publish to many topics, so that each member has some by each strategy."""
    with gateway.client() as publisher:
        publisher.connect()
        for number, payload in enumerate(numbered(COUNT)):
            publisher.publish(f"t/{number}", payload, qos=qos)


def flush(gateway: MqttGateway) -> None:
    """Wait until all that was put until now is on the disk.

    What was put while an earlier append was being synced follows when that is done: the first
    message here waits for that, and the second for what follows.
    """
    with gateway.client() as publisher:
        publisher.connect()
        for payload in numbered(2):
            publisher.publish("flush", payload, qos=1)


def ids(messages: list[Received]) -> list[tuple[int, bytes]]:
    return [(message.packet_id, message.payload) for message in messages]


@pytest.mark.parametrize(("strategy", "qos"), CASES)
def test_what_nobody_holds_goes_to_others_and_what_is_kept_stays(
    tmp_path: Path, strategy: str, qos: int
) -> None:
    settings = {
        "adapters.mqtt.shared_strategy": strategy,
        "adapters.mqtt.session.checkpoint_ms": 3_600_000,  # what is written is written at once
    }
    with MqttGateway(tmp_path / "data", settings) as gateway:
        with gateway.client() as gone, gateway.come_back("kept", is_present=False) as kept:
            gone.connect("gone")
            for member in (gone, kept):
                member.subscribe(SHARED)
            publish_all(gateway, qos=qos)
            flush(gateway)  # QoS 2 leaves when it is written down
            had, its_own = gone.ping(), kept.ping()
            assert sorted(payloads([*had, *its_own]), key=int) == numbered(COUNT)
            for message in had[:ACKNOWLEDGED]:
                gone.accept(message)
            gone.ping()
            flush(gateway)
            gateway.kill()
            gateway.restart()

        with gateway.client() as other:
            other.connect("other")
            other.subscribe_past_messages(SHARED)
            left = had[ACKNOWLEDGED:] if qos == 1 else []  # QoS 2 may go to nobody else
            came = other.messages(len(left))
            assert sorted(payloads(came)) == sorted(payloads(left))
            assert other.ping() == []
        with gateway.come_back("kept") as kept:
            again = kept.messages(len(its_own))
            assert ids(again) == ids(its_own)
            assert all(message.dup for message in again)
            assert kept.ping() == []
