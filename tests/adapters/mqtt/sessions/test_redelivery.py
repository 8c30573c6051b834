"""Messages acknowledged while redelivery waits for room are not sent again."""

from pathlib import Path
from typing import Any

import pytest

from tests.adapters.mqtt.restartable_node import (
    KEPT,
    Client,
    RestartableNode,
    numbered,
    payloads,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Kind, Prop


async def come_back(
    one: RestartableNode, receive_maximum: int, sent: list[bytes], *, qos: int, **options: Any
) -> Client:
    """Leave messages 1, 2, ... on their way to a client that comes back to a smaller window."""
    before = await one.client("s", kept=True)
    await before.subscribe(("t", 2))
    publisher = await one.client("p")
    await publisher.publish("t", sent, qos=qos, **options)
    await before.messages(len(sent))
    await before.drop()
    await one.gone("s")
    return await one.client("s", kept=True, found=[(Prop.RECEIVE_MAXIMUM, receive_maximum)])


async def complete(client: Client, packet_id: int) -> None:
    """Go through QoS 2, whether the message was sent again or not."""
    client.send(wire.ack(Kind.PUBREC, packet_id))
    assert (await client.receive(Kind.PUBREL)).packet_id == packet_id
    client.send(wire.ack(Kind.PUBCOMP, packet_id))


async def test_publish_does_not_come_after_its_pubcomp(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:  # MQTT-4.3.3-2
        back = await come_back(one, 1, numbered(5), qos=2)
        assert (await back.message()).packet_id == 1
        await complete(back, 2)
        await complete(back, 1)
        assert (await back.message()).packet_id == 3
        await back.silent()  # one at a time
        await complete(back, 3)
        assert payloads(await back.take(2)) == numbered(2, start=3)
        await back.silent()


async def test_publish_does_not_come_after_its_pubrel(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:  # MQTT-4.3.3-2
        back = await come_back(one, 1, numbered(3), qos=2)
        await back.message()
        back.send(wire.ack(Kind.PUBREC, 2))
        assert (await back.receive(Kind.PUBREL)).packet_id == 2
        await complete(back, 1)
        # It was not sent here: it takes no part of the window, and PUBREL does not come twice.
        assert (await back.message()).packet_id == 3
        await complete(back, 3)
        await back.silent()
        back.send(wire.ack(Kind.PUBCOMP, 2))
        await back.silent()
        session = one.session("s")
        assert session is not None
        assert session.outbox.count == 0


async def test_what_is_sent_again_takes_the_window_until_its_pubcomp(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:  # MQTT 5.0 section 4.9
        back = await come_back(one, 1, numbered(2), qos=2)
        await back.message()
        back.send(wire.ack(Kind.PUBREC, 1))
        await back.receive(Kind.PUBREL)
        await back.silent()
        back.send(wire.ack(Kind.PUBCOMP, 1))
        assert (await back.message()).packet_id == 2


async def test_what_puback_came_for_does_not_come_again(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:  # MQTT-4.3.2-2
        back = await come_back(one, 2, numbered(9), qos=1)
        assert [x.packet_id for x in await back.messages(2)] == [1, 2]
        back.send(*[wire.ack(Kind.PUBACK, number) for number in (4, 6, 7)])
        await back.silent()
        found = []
        for number in (1, 2, 3, 5, 8, 9):
            back.send(wire.ack(Kind.PUBACK, number))
            if number < 8:
                found.append((await back.message()).packet_id)
            await back.silent()
        assert found == [3, 5, 8, 9]


@pytest.mark.parametrize("qos", [1, 2])
async def test_redelivery_ends_with_what_is_acknowledged_unsent(
    tmp_path: Path, qos: int
) -> None:
    """Nothing is left to be sent again: what is new leaves."""
    async with restartable_node(tmp_path) as one:
        back = await come_back(one, 1, numbered(4), qos=qos)
        await back.message()
        for number in (4, 3, 2, 1):
            if qos == 2:
                await complete(back, number)
            else:
                back.send(wire.ack(Kind.PUBACK, number))
        await back.silent()
        publisher = await one.client("p")
        await publisher.publish("t", [b"new"], qos=qos)
        new = await back.message()
        assert (new.payload, new.dup) == (b"new", False)


async def test_retained_messages_that_are_acknowledged_do_not_come_again(
    tmp_path: Path,
) -> None:
    async with restartable_node(tmp_path) as one:
        publisher = await one.client("p")
        for at in range(4):
            await publisher.publish(f"r/{at}", [b"%d" % at], retain=True)
        before = await one.client("s", kept=True)
        await before.subscribe(("r/+", 1))
        await before.messages(4)
        await before.drop()
        await one.gone("s")
        back = await one.client("s", kept=True, found=[(Prop.RECEIVE_MAXIMUM, 1)])
        assert (await back.message()).payload == b"0"
        back.send(wire.ack(Kind.PUBACK, 2), wire.ack(Kind.PUBACK, 1))
        assert payloads(await back.take(2)) == [b"2", b"3"]
        await back.silent()


async def test_pubrec_that_follows_connect_at_once_is_answered_once(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        before = await one.client("s", kept=True)
        await before.subscribe(("t", 2))
        publisher = await one.client("p")
        await publisher.publish("t", numbered(2), qos=2)
        await before.messages(2)
        await before.drop()
        await one.gone("s")
        back = Client(await one.live.client(), "s")
        back.send(
            wire.connect("s", clean=False, found=KEPT, version=back.version),
            wire.ack(Kind.PUBREC, 1),
        )
        await back.receive(Kind.CONNACK)
        found = [await back.next() for _ in range(2)]
        kinds = {(x.kind, x.packet_id) for x in found if x is not None}
        assert kinds == {(Kind.PUBREL, 1), (Kind.PUBLISH, 2)}
        await back.silent()


async def test_the_expiry_interval_is_less_by_the_time_that_redelivery_waits(
    tmp_path: Path,
) -> None:
    async with restartable_node(tmp_path) as one:  # MQTT-3.3.2-6
        found = [(Prop.MESSAGE_EXPIRY, 100)]
        back = await come_back(one, 1, numbered(3), qos=1, found=found)
        first = await back.message()
        assert first.value(Prop.MESSAGE_EXPIRY) == 100
        one.clock.advance(40_000)
        await back.acknowledge(first)
        second = await back.message()
        assert second.value(Prop.MESSAGE_EXPIRY) == 60
        one.clock.advance(61_000)
        await back.acknowledge(second)
        await back.silent()
        assert one.adapter.node.counters.expired == 1


async def test_another_connection_goes_on_where_redelivery_waits(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        back = await come_back(one, 1, numbered(4), qos=2)
        await back.message()
        await complete(back, 3)
        again = await one.client("s", kept=True)
        found = await again.messages(3)
        assert [x.packet_id for x in found] == [1, 2, 4]
        assert all(x.dup for x in found)
        for number in (1, 2, 4):
            await complete(again, number)
        await again.silent()
        assert one.adapter.node.counters.redelivered == 1 + 3, "none to the one that has gone"
