"""Delays as MQTT clients see them: ``$delayed/<seconds>/<topic>``, and Kafka records that wait."""

import asyncio
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.interop.mqtt.programs import link
from tests.interop.mqtt.programs.link import V3_1_1, V5, Endpoint
from tests.interop.mqtt.programs.with_paho import PahoLink
from tests.support.mqtt_target import OWN, Target

pytestmark = [
    pytest.mark.interop,
    pytest.mark.xdist_group("mqtt-interop"),
    # Sockets that paho leaves to the garbage collector are its own affair.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    OWN,
]

LOG = "mqtt"
DELAY_S = 3  # what is not delayed comes before
ANSWER_S_MAX = 60.0


@pytest.mark.parametrize("version", [V3_1_1, V5], ids=["3.1.1", "5.0"])
def test_messages_come_when_their_seconds_are_over(
    target: Target, stem: str, version: int
) -> None:
    async def run() -> list[tuple[link.Message, float]]:
        client = PahoLink(Endpoint(target.port, version), stem)
        await client.open(clean=True)
        await client.subscribe(f"{stem}/#", 2)
        begin_s = time.monotonic()
        await client.publish(link.Message(f"{stem}/now", b"now", 1))
        for qos in (0, 1, 2):
            await client.publish(link.Message(f"$delayed/1/{stem}/a", b"%d" % qos, qos))
        came = []
        for _ in range(4):
            message = await client.inbox.next()
            came.append((message, time.monotonic() - begin_s))
        await client.close()
        return came

    came = asyncio.run(run())

    assert [message.topic for message, _ in came] == [f"{stem}/now", *[f"{stem}/a"] * 3]
    assert sorted(message.payload for message, _ in came[1:]) == [b"0", b"1", b"2"]
    assert came[1][1] >= 1


def set_delays(bootstrap: str, value: str) -> None:
    change = ConfigEntry("delay.enable", value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, LOG, incremental_configs=[change])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(ANSWER_S_MAX)


@pytest.fixture
def delaying(target: Target) -> Iterator[Target]:
    """The target, whose log delays what Kafka producers ask it to."""
    set_delays(target.bootstrap, "true")
    yield target
    set_delays(target.bootstrap, "false")


def test_records_of_one_kafka_batch_of_which_some_are_delayed(
    delaying: Target, stem: str
) -> None:
    """Each comes once: what is due in order, and at once; the others when it is time."""
    due_s = time.time() + DELAY_S
    header = ("deliver-at", str(int(due_s * 1_000)).encode())

    def produce() -> None:
        producer = Producer({"bootstrap.servers": delaying.bootstrap, "linger.ms": 200})
        for value in (b"d0", b"a", b"d1", b"b", b"d2"):
            headers = [header] if value[:1] == b"d" else []
            producer.produce(
                LOG, partition=0, key=f"{stem}/x".encode(), value=value, headers=headers
            )
        assert producer.flush(ANSWER_S_MAX) == 0

    async def run() -> list[tuple[bytes, float]]:
        client = PahoLink(Endpoint(delaying.port, V5), stem)
        await client.open(clean=True)
        await client.subscribe(f"{stem}/#", 1)
        await asyncio.to_thread(produce)
        await client.publish(link.Message(f"{stem}/x", b"after", 1))
        came = [((await client.inbox.next()).payload, time.time()) for _ in range(6)]
        await client.close()
        return came

    came = asyncio.run(run())

    assert [payload for payload, _ in came] == [b"a", b"b", b"after", b"d0", b"d1", b"d2"]
    assert came[3][1] >= due_s - 0.001
