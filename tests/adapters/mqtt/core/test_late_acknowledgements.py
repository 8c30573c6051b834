"""A client is back, and acknowledges what it had before: that does not come to it again."""

from pathlib import Path

import pytest

from tests.adapters.mqtt.core.rig import Client, Rig, numbered, payloads, rig
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Kind, Prop, Received

ONE_AT_A_TIME = [(Prop.RECEIVE_MAXIMUM, 1)]


async def come_back(one: Rig, qos: int, count: int) -> Client:
    """Return a client that had messages 1 to ``count`` before, and now takes one at a time."""
    first = await one.client("s", kept=True)
    await first.subscribe(("t", qos))
    publisher = await one.client("p")
    await publisher.publish("t", numbered(count), qos=qos)
    assert [x.packet_id for x in await first.messages(count)] == list(range(1, count + 1))
    await first.drop()
    await one.gone("s")
    return await one.client("s", kept=True, found=ONE_AT_A_TIME)


def shown(found: Received) -> tuple[int, bytes, bool]:
    return found.packet_id, found.payload, found.dup


async def complete(client: Client, number: int) -> None:
    client.send(wire.ack(Kind.PUBREC, number))
    assert (await client.receive(Kind.PUBREL)).packet_id == number
    client.send(wire.ack(Kind.PUBCOMP, number))


async def test_a_qos_2_message_that_is_complete_does_not_come_again(
    tmp_path: Path,
) -> None:  # MQTT-4.3.3-5, MQTT-3.3.4-9
    async with rig(tmp_path) as one:
        client = await come_back(one, 2, 5)
        numbers = numbered(5)
        assert shown(await client.message()) == (1, numbers[0], True)
        await complete(client, 2)
        await complete(client, 4)
        await client.silent()
        for number in (1, 3):
            await complete(client, number)
            following = number + 2
            found = shown(await client.message())
            assert found == (following, numbers[following - 1], True)
            await client.silent()
        await complete(client, 5)
        await client.silent()


async def test_a_qos_2_message_is_not_published_after_its_pubrel(
    tmp_path: Path,
) -> None:  # MQTT-4.3.3-5
    async with rig(tmp_path) as one:
        client = await come_back(one, 2, 3)
        assert (await client.message()).packet_id == 1
        client.send(wire.ack(Kind.PUBREC, 2))
        assert (await client.receive(Kind.PUBREL)).packet_id == 2
        await complete(client, 1)
        # What this connection has not published takes no part of its window.
        assert shown(await client.message()) == (3, numbered(3)[2], True)
        await client.silent()
        client.send(wire.ack(Kind.PUBCOMP, 2))
        await complete(client, 3)
        await client.silent()


@pytest.mark.parametrize("number", [2, 3])
async def test_a_qos_1_message_that_is_acknowledged_does_not_come_again(
    tmp_path: Path, number: int
) -> None:  # MQTT-4.4.0-1
    async with rig(tmp_path) as one:
        client = await come_back(one, 1, 3)
        assert (await client.message()).packet_id == 1
        client.send(wire.ack(Kind.PUBACK, number))
        await client.silent()
        client.send(wire.ack(Kind.PUBACK, 1))
        left = 5 - number
        assert (await client.message()).packet_id == left
        client.send(wire.ack(Kind.PUBACK, left))
        publisher = await one.client("q")
        await publisher.publish("t", [b"new"])
        assert payloads(await client.take(1)) == [b"new"]


async def test_a_pubrel_does_not_come_for_what_is_complete(tmp_path: Path) -> None:
    """What was received before comes after the first message, which holds it up."""
    async with rig(tmp_path) as one:
        first = await one.client("s", kept=True)
        await first.subscribe(("t", 2))
        publisher = await one.client("p")
        await publisher.publish("t", numbered(3), qos=2)
        await first.messages(3)
        first.send(wire.ack(Kind.PUBREC, 3))
        await first.receive(Kind.PUBREL)
        await first.drop()
        await one.gone("s")
        client = await one.client("s", kept=True, found=ONE_AT_A_TIME)
        assert (await client.message()).packet_id == 1
        client.send(wire.ack(Kind.PUBCOMP, 3))
        await complete(client, 1)
        assert (await client.message()).packet_id == 2
        await complete(client, 2)
        await client.silent()
