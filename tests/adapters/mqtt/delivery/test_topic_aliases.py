"""Topic aliases of messages that are delivered after others that set them."""

from pathlib import Path

from tests.adapters.mqtt.disk_faults import RARELY
from tests.adapters.mqtt.restartable_node import (
    RestartableNode,
    numbered,
    payloads,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Prop, Received
from tests.support.waiting import until

ALIASES = ((Prop.TOPIC_ALIAS_MAXIMUM, 5),)


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


def produce_both(one: RestartableNode) -> None:
    """Append QoS 1 and then QoS 0 to one topic; both are delivered in one turn."""
    for qos in (b"1", b"0"):
        one.produce([(b"t", qos)], headers=[("mqtt.qos", qos)])


async def test_qos_0_does_not_use_an_alias_before_the_packet_that_sets_it(
    tmp_path: Path,
) -> None:  # MQTT-3.3.2-7
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s", kept=True, found=ALIASES)
        await subscriber.subscribe(("t", 1))
        produce_both(one)
        found = await subscriber.messages(2)
        assert topics_of(found) == ["t", "t"]
        assert payloads(found) == [b"1", b"0"]
        assert [x.value(Prop.TOPIC_ALIAS) for x in found] == [1, 1]


async def test_nothing_that_waits_behind_qos_2_sets_an_alias(tmp_path: Path) -> None:
    async with restartable_node(tmp_path, mqtt=RARELY) as one:  # MQTT-3.3.2-7
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
