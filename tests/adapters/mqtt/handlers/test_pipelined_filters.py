"""SUBSCRIBE and UNSUBSCRIBE in one read with publishes of the same client: they come in order."""

from pathlib import Path

import pytest

from tests.adapters.mqtt.publishing.test_one_in_flight_batches import server_side
from tests.adapters.mqtt.restartable_node import (
    Client,
    RestartableNode,
    payloads,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Kind
from tests.support.waiting import until


async def came_to(one: RestartableNode, client: Client) -> list[bytes]:
    """Return what has come when all is kept, handed out and acknowledged."""
    found = []
    client.send(wire.publish("end", b"end", qos=1, packet_id=99))
    while True:
        packet = await client.next()
        assert packet is not None
        if packet.kind is Kind.PUBLISH:
            found.append(packet)
            await client.acknowledge(packet)
        elif packet.kind is Kind.PUBREL:
            client.send(wire.ack(Kind.PUBCOMP, packet.packet_id))
        elif packet.kind is Kind.PUBREC:
            client.send(wire.ack(Kind.PUBREL, packet.packet_id))
        elif packet.kind is Kind.PUBACK and packet.packet_id == 99:
            await one.delivered()  # QoS 2 leaves when its identifiers are kept
            client.send(wire.publish("end", b"end", qos=1, packet_id=98))
        elif packet.kind is Kind.PUBACK and packet.packet_id == 98:
            client.send(wire.PINGREQ)
        elif packet.kind is Kind.PINGRESP:
            return payloads(found)


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_filters_match_what_comes_while_they_are_there(
    tmp_path: Path, qos: int, *, kept: bool
) -> None:
    async with restartable_node(tmp_path) as one:
        client = await one.client("c", kept=kept)
        subscribe, unsubscribe = wire.subscribe(50, [("t", 2)]), wire.unsubscribe(51, ["t"])

        def publish(number: int) -> bytes:
            return wire.publish("t", b"%d" % number, qos=qos, packet_id=number)

        client.send(publish(1) + subscribe + publish(2))
        assert await came_to(one, client) == [b"2"]
        client.send(publish(3) + unsubscribe + publish(4))
        assert await came_to(one, client) == [b"3"]
        client.send(publish(5) + subscribe + publish(6) + unsubscribe + publish(7) + subscribe)
        assert await came_to(one, client) == [b"6"]
        client.send(
            publish(8) + unsubscribe + publish(9) + publish(10) + subscribe + publish(11)
        )
        assert await came_to(one, client) == [b"8", b"11"]


@pytest.mark.parametrize("qos", [0, 1])
async def test_what_is_retained_before_comes_once(tmp_path: Path, qos: int) -> None:
    async with restartable_node(tmp_path) as one:
        client = await one.client("c")
        retained = wire.publish("t", b"kept", qos=qos, packet_id=1, retain=True)
        client.send(retained + wire.subscribe(50, [("t", 1)]))
        assert await came_to(one, client) == [b"kept"]


@pytest.mark.parametrize("filters", [1, 100])
async def test_nobody_else_waits(tmp_path: Path, filters: int) -> None:
    async with restartable_node(tmp_path) as one:
        stays, other = await one.client("stays"), await one.client("other")
        one.live.storage.held = True
        subscribe = wire.subscribe(50, [(f"t/{number}", 0) for number in range(filters)])
        stays.send(wire.publish("x", b"1", qos=1, packet_id=1) + subscribe + wire.PINGREQ)
        await until(lambda: server_side(one, "stays").inbound.when_kept is not None)
        await other.subscribe(("t/#", 0))

        one.live.storage.release()

        wanted = [Kind.PUBACK, Kind.SUBACK, Kind.PINGRESP]
        assert [(await stays.receive(kind)).kind for kind in wanted] == wanted
        await stays.publish("t/0", [b"2"], qos=0)
        assert payloads(await stays.take(1) + await other.take(1)) == [b"2", b"2"]


async def test_all_that_was_published_before_is_answered_first(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        client = await one.client("c")
        client.send(
            wire.publish("t", b"1", qos=1, packet_id=1)
            + wire.publish("t", b"2", qos=2, packet_id=2)
            + wire.publish("u", b"3", qos=1, packet_id=3)
            + wire.subscribe(50, [("t", 0)])
        )
        found = [await client.next() for _ in range(4)]
        kinds = [one.kind for one in found if one is not None]
        assert kinds == [Kind.PUBACK, Kind.PUBREC, Kind.PUBACK, Kind.SUBACK]
