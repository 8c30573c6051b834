"""Inbound QoS 2 under a rewrite, a refusal, a repetition; aliases of what leaves later."""

from pathlib import Path

import pytest

from tests.adapters.mqtt.core.disks import RARELY
from tests.adapters.mqtt.core.rig import Rig, numbered, payloads, rig, until
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Kind, Prop, Received

ALIASES = ((Prop.TOPIC_ALIAS_MAXIMUM, 5),)


async def test_a_rewrite_does_not_bring_a_released_identifier_back(tmp_path: Path) -> None:
    """Records that the rewrite put into the open round come before the removal, not after."""
    async with rig(tmp_path, mqtt=RARELY) as one:
        publisher = await one.client("p", kept=True)
        publisher.send(wire.publish("t", b"1", qos=2, packet_id=9))
        await publisher.receive(Kind.PUBREC)
        session = one.session("p")
        assert session is not None
        inbound = one.adapter.node.publishing._inbound
        coalescer = one.adapter.node.publishing._coalescer
        one.live.storage.held = True
        publisher.send(wire.publish("t", b"2", qos=1, packet_id=1))
        await until(lambda: coalescer._rounds_in_flight > 0)
        inbound.shards[0]._rewrite_room_bytes = 1
        inbound.shards[0]._rewrite_when_due()
        assert inbound.is_rewriting
        publisher.send(wire.ack(Kind.PUBREL, 9))
        await until(lambda: not session.inbound)
        one.live.storage.release()
        await publisher.receive(Kind.PUBACK)
        await publisher.receive(Kind.PUBCOMP)
        await until(lambda: not inbound.is_rewriting)
        await one.restart(crash=True)
        assert not one.adapter.node.publishing._inbound.values
        back = await one.client("p", kept=True)
        back.send(wire.publish("t", b"3", qos=2, packet_id=9))
        await back.receive(Kind.PUBREC)
        assert one.partition().log_end_offset == 3


@pytest.mark.parametrize("kept", [False, True])
async def test_what_the_log_refuses_is_not_retained(tmp_path: Path, *, kept: bool) -> None:
    async with rig(tmp_path) as one:
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
    async with rig(tmp_path) as one:
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


# --- aliases


def topics_of(found: list[Received]) -> list[str]:
    """Return the topics as a client knows them; an alias that was never set is its error."""
    aliases: dict[object, str] = {}
    topics = []
    for one in found:
        alias = one.value(Prop.TOPIC_ALIAS)
        if one.topic and alias is not None:
            aliases[alias] = one.topic
        assert one.topic or alias in aliases, f"alias {alias!r} was not set"
        topics.append(one.topic or aliases[alias])
    return topics


def produce_both(one: Rig) -> None:
    """Append QoS 1 and then QoS 0 to one topic; both are delivered in one turn."""
    for qos in (b"1", b"0"):
        one.produce([(b"t", qos)], headers=[("mqtt.qos", qos)])


async def test_qos_0_does_not_use_an_alias_before_the_packet_that_sets_it(
    tmp_path: Path,
) -> None:  # MQTT-3.3.2-7
    async with rig(tmp_path) as one:
        subscriber = await one.client("s", kept=True, found=ALIASES)
        await subscriber.subscribe(("t", 1))
        produce_both(one)
        found = await subscriber.messages(2)
        assert topics_of(found) == ["t", "t"]
        assert payloads(found) == [b"1", b"0"]
        assert [x.value(Prop.TOPIC_ALIAS) for x in found] == [1, 1]


async def test_nothing_that_waits_behind_qos_2_sets_an_alias(tmp_path: Path) -> None:
    async with rig(tmp_path, mqtt=RARELY) as one:  # MQTT-3.3.2-7
        found_max = (*ALIASES, (Prop.RECEIVE_MAXIMUM, 3))
        subscriber = await one.client("s", kept=True, found=found_max)
        await subscriber.subscribe(("#", 2))
        publisher = await one.client("p")
        await publisher.publish("filler", numbered(3))
        fillers = await subscriber.messages(3)
        await publisher.publish("a", [b"a"], qos=2)
        await publisher.publish("b", [b"b"], qos=1)
        await one.delivered()
        one.live.storage.held = True
        session = one.session("s")
        assert session is not None
        for filler in fillers:
            await subscriber.acknowledge(filler)
        await until(lambda: session.outbox.next_seq == 5)
        await until(lambda: session.journal._waiting > 0)
        publisher.send(wire.publish("a", b"0"), wire.publish("b", b"0"))
        early = await subscriber.messages(2)
        one.live.storage.release()
        late = await subscriber.messages(2)
        assert topics_of([*fillers, *early, *late])[3:] == ["a", "b", "a", "b"]
        assert payloads(late) == [b"a", b"b"]
        assert [x.value(Prop.TOPIC_ALIAS) for x in late] == [None, None]
