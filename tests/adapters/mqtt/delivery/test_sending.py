"""Retained messages with small windows, aliases, sizes, and receivers that do not read."""

from pathlib import Path

import pytest

from tests.adapters.mqtt.restartable_node import (
    numbered,
    payloads,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import V3_1_1, Kind, Prop
from tests.support.waiting import until

SMALL = ((Prop.RECEIVE_MAXIMUM, 7),)
MIB = 1024 * 1024


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_retained_messages_keep_to_the_window(tmp_path: Path, qos: int) -> None:
    async with restartable_node(tmp_path) as one:
        publisher = await one.client("p")
        for at in range(100):
            await publisher.publish(f"r/{at:03}", [b"%d" % at], qos=2, retain=True)
        subscriber = await one.client("s", kept=True, found=SMALL)
        await subscriber.subscribe(("r/+", qos))
        if qos:
            first = await subscriber.messages(7)
            await subscriber.silent()
            for found in first:
                await subscriber.acknowledge(found)
            if qos == 2:
                for found in first:
                    await subscriber.receive(Kind.PUBREL)
                    subscriber.send(wire.ack(Kind.PUBCOMP, found.packet_id))
            every = first + await subscriber.take(93)
        else:
            every = await subscriber.messages(100)
        assert payloads(every) == numbered(100)
        assert all(x.retain for x in every)  # MQTT-3.3.1-8
        await subscriber.silent()


@pytest.mark.parametrize("crash", [False, True])
async def test_retained_messages_on_their_way_come_again(
    tmp_path: Path, *, crash: bool
) -> None:
    async with restartable_node(tmp_path) as one:
        publisher = await one.client("p")
        for at in range(10):
            await publisher.publish(f"r/{at}", [b"%d" % at], retain=True)
        subscriber = await one.client("s", kept=True, found=SMALL)
        await subscriber.subscribe(("r/+", 1))
        first = await subscriber.messages(7)
        await one.restart(crash=crash)
        publisher = await one.client("p")
        await publisher.publish("r/2", [b""], retain=True)
        back = await one.client("s", kept=True, found=SMALL)
        again = await back.take(7)
        assert [(x.packet_id, x.payload) for x in again if x.retain] == [
            (x.packet_id, x.payload) for x in first if x.payload != b"2"
        ]
        assert all(x.dup for x in again[:6])


async def test_an_unsubscribed_scan_ends(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        publisher = await one.client("p")
        for at in range(20):
            await publisher.publish(f"r/{at:02}", [b"%d" % at], retain=True)
        subscriber = await one.client("s", found=SMALL)
        await subscriber.subscribe(("r/+", 1))
        first = await subscriber.messages(7)
        await subscriber.unsubscribe("r/+")
        for found in first:
            await subscriber.acknowledge(found)
        await subscriber.silent()


@pytest.mark.parametrize("qos", [0, 1])
async def test_an_alias_is_set_only_by_a_packet_that_leaves(tmp_path: Path, qos: int) -> None:
    async with restartable_node(tmp_path) as one:  # MQTT-3.3.2-7, MQTT-3.1.2-24
        limits = [(Prop.TOPIC_ALIAS_MAXIMUM, 2), (Prop.MAXIMUM_PACKET_SIZE, 100)]
        subscriber = await one.client("s", found=limits)
        await subscriber.subscribe(("t", qos))
        publisher = await one.client("p")
        await publisher.publish("t", [b"x" * 200], qos=qos)
        await publisher.publish("t", [b"a", b"x" * 200, b"b"], qos=qos)
        await publisher.publish("t", [b"c", b"d"], qos=qos)
        aliases: dict[object, str] = {}
        for wanted in (b"a", b"b", b"c", b"d"):
            found = await subscriber.message()
            alias = found.value(Prop.TOPIC_ALIAS)
            if found.topic and alias is not None:
                aliases[alias] = found.topic
            assert (found.topic or aliases[alias]) == "t"
            assert found.payload == wanted
            assert found.size_bytes <= 100
            await subscriber.acknowledge(found)
        await subscriber.silent()


async def test_aliases_are_used_while_behind(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        limits = [(Prop.TOPIC_ALIAS_MAXIMUM, 1), *SMALL]
        subscriber = await one.client("s", kept=True, found=limits)
        await subscriber.subscribe(("#", 1))
        publisher = await one.client("p")
        await publisher.publish("a/long/topic", numbered(20))
        await publisher.publish("another", numbered(3))
        found = await subscriber.take(23)
        assert found[0].topic == "a/long/topic"
        assert {x.value(Prop.TOPIC_ALIAS) for x in found[:20]} == {1}
        assert {x.topic for x in found[7:20]} == {""}
        assert {x.topic for x in found[20:]} == {"another"}
        await subscriber.drop()
        await one.gone("s")
        await publisher.publish("a/long/topic", [b"x"])
        back = await one.client("s", kept=True)  # MQTT-3.3.2-7: it knows no aliases
        assert [x.topic for x in await back.take(1)] == ["a/long/topic"]


async def test_what_is_too_large_counts_as_delivered(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:  # MQTT-3.1.2-25
        limits = [(Prop.MAXIMUM_PACKET_SIZE, 100), *SMALL]
        subscriber = await one.client("s", kept=True, found=limits)
        await subscriber.subscribe(("t", 1))
        publisher = await one.client("p")
        sent = [b"%d" % at if at % 3 else b"x" * 200 for at in range(30)]
        await publisher.publish("t", sent)
        found = await subscriber.take(20)
        assert payloads(found) == [x for x in sent if len(x) < 100]
        await subscriber.silent()
        assert one.adapter.node.counters.too_large == 10


async def test_who_does_not_read_is_read_for_later(tmp_path: Path) -> None:
    limits = {"receiver_bytes_max": 64 * 1024, "session": {"inflight_max": 1000}}
    async with restartable_node(tmp_path, mqtt=limits) as one:
        subscriber = await one.client("s", version=V3_1_1)
        await subscriber.subscribe(("t", 1))
        publisher = await one.client("p")
        size = 100_000
        for at in range(120):
            await publisher.publish("t", [b"%d" % at + b"." * size])
        await one.delivered()
        session = one.session("s")
        assert session is not None
        assert session.behind, "more than the system's buffers take"
        found = await subscriber.take(120)
        assert [int(x.payload.rstrip(b".")) for x in found] == list(range(120))
        await until(lambda: not session.behind)


async def test_redelivery_waits_for_a_client_that_does_not_read(tmp_path: Path) -> None:
    limits = {"receiver_bytes_max": 64 * 1024, "receiver_bytes_hard_max": 16 * MIB}
    async with restartable_node(tmp_path, mqtt=limits) as one:
        subscriber = await one.client("s", kept=True)
        await subscriber.subscribe(("t", 1))
        publisher = await one.client("p")
        for at in range(120):
            await publisher.publish("t", [b"%d" % at + b"." * 100_000])
            await subscriber.message()
        await subscriber.drop()
        await one.gone("s")
        back = await one.client("s", kept=True)
        await back.message()
        [connection] = [
            found
            for found in one.adapter.listener.connections
            if found.peer_host and getattr(found, "client_id", "") == "s"
        ]
        assert connection.out_bytes < MIB
        assert len(await back.messages(119)) == 119
