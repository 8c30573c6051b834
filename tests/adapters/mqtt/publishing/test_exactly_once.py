"""Inbound QoS 2 under a rewrite, a refusal and a repetition."""

from pathlib import Path

import pytest

from tests.adapters.mqtt.disk_faults import RARELY
from tests.adapters.mqtt.restartable_node import (
    payloads,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Kind, Prop
from tests.support.waiting import until

ALIASES = ((Prop.TOPIC_ALIAS_MAXIMUM, 5),)


async def test_a_rewrite_does_not_bring_a_released_identifier_back(tmp_path: Path) -> None:
    """Records that the rewrite put into the open round come before the removal, not after."""
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        publisher = await one.client("p", kept=True)
        publisher.send(wire.publish("t", b"1", qos=2, packet_id=9))
        await publisher.receive(Kind.PUBREC)
        session = one.session("p")
        assert session is not None
        inbound = one.adapter.node.publishing._inbound.stream
        coalescer = one.adapter.node.publishing._coalescer
        one.live.storage.held = True
        publisher.send(wire.publish("t", b"2", qos=1, packet_id=1))
        await until(lambda: coalescer._rounds_in_flight > 0)
        inbound.partitions[0]._rewrite_room_bytes = 1
        inbound.partitions[0]._rewrite_when_due()
        assert inbound.is_rewriting
        publisher.send(wire.ack(Kind.PUBREL, 9))
        await until(lambda: not session.inbound.shards)
        one.live.storage.release()
        await publisher.receive(Kind.PUBACK)
        await publisher.receive(Kind.PUBCOMP)
        await until(lambda: not inbound.is_rewriting)
        await one.restart(crash=True)
        assert not one.adapter.node.publishing._inbound.stream.values
        back = await one.client("p", kept=True)
        back.send(wire.publish("t", b"3", qos=2, packet_id=9))
        await back.receive(Kind.PUBREC)
        assert one.partition().log_end_offset == 3


@pytest.mark.parametrize("kept", [False, True])
async def test_what_the_log_refuses_is_not_retained(tmp_path: Path, *, kept: bool) -> None:
    async with restartable_node(tmp_path) as one:
        publisher = await one.client("p", kept=kept)
        await publisher.publish("t", [b"small"], qos=2, retain=True)
        name = one.partition().topic.name
        await one.kernel.topics.alter_configs(name, {"max.message.bytes": "300"})
        publisher.send(wire.publish("t", b"x" * 500, qos=2, packet_id=9, retain=True))
        assert (await publisher.receive(Kind.PUBREC)).code >= 0x80
        assert one.partition().log_end_offset == 1
        subscriber = await one.client("s")
        await subscriber.subscribe(("t", 1))
        assert payloads(await subscriber.take(1)) == [b"small"]
        await one.restart(crash=True)
        subscriber = await one.client("s")
        await subscriber.subscribe(("t", 1))
        assert payloads(await subscriber.take(1)) == [b"small"]


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("second", [b"once", b"once, longer"])
async def test_an_identifier_twice_in_one_read_is_one_message(
    tmp_path: Path, second: bytes, *, kept: bool
) -> None:  # MQTT-4.3.3-10
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s")
        await subscriber.subscribe(("t", 2))
        publisher = await one.client("p", kept=kept)
        publisher.send(
            wire.publish("t", b"once", qos=2, packet_id=9),
            wire.publish("t", second, qos=2, packet_id=9),
        )
        for _ in range(2):
            found = await publisher.receive(Kind.PUBREC)
            assert (found.packet_id, found.code) == (9, 0)
        assert one.partition().log_end_offset == 1
        assert one.adapter.node.counters.duplicates == 1
        assert payloads(await subscriber.take(1)) == [b"once"]
        await subscriber.silent()
