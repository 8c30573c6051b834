"""PUBREL from a client that has not waited for PUBREC."""

from pathlib import Path

import pytest

from tests.adapters.mqtt.restartable_node import Client, payloads, restartable_node
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Kind


def hasty(number: int, payload: bytes, topic: str = "t") -> bytes:
    publish = wire.publish(topic, payload, qos=2, packet_id=number)
    return publish + wire.ack(Kind.PUBREL, number)


async def answers(client: Client, count: int) -> list[tuple[Kind, int]]:
    found = [await client.next() for _ in range(count)]
    return [(one.kind, one.packet_id) for one in found if one is not None]


@pytest.mark.parametrize("kept", [False, True])
async def test_pubrec_goes_before_pubcomp(tmp_path: Path, *, kept: bool) -> None:
    async with restartable_node(tmp_path) as one:
        client = await one.client("c", kept=kept)
        client.send(hasty(1, b"1") + hasty(2, b"2"))
        found = await answers(client, 4)
        for number in (1, 2):
            kinds = [kind for kind, packet_id in found if packet_id == number]
            assert kinds == [Kind.PUBREC, Kind.PUBCOMP]


async def test_its_identifier_is_free_also_after_a_crash(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        reader = await one.client("r", kept=True)
        await reader.subscribe(("t", 1))
        client = await one.client("c", kept=True)
        client.send(hasty(1, b"1"))
        await answers(client, 2)

        await one.restart(crash=True)

        back = await one.client("c", kept=True)
        await back.publish("t", [b"2"], qos=2)  # with identifier 1, too
        reader = await one.client("r", kept=True)
        assert payloads(await reader.take(2)) == [b"1", b"2"]


async def test_pubrel_of_others_does_not_wait(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        client = await one.client("c")
        client.send(wire.publish("t", b"1", qos=2, packet_id=1))
        assert await answers(client, 1) == [(Kind.PUBREC, 1)]
        one.live.storage.held = True
        client.send(wire.publish("t", b"2", qos=2, packet_id=2) + wire.ack(Kind.PUBREL, 1))
        assert await answers(client, 1) == [(Kind.PUBCOMP, 1)]
        one.live.storage.release()
        assert await answers(client, 1) == [(Kind.PUBREC, 2)]
