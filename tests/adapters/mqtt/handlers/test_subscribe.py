"""SUBSCRIBE and UNSUBSCRIBE: a code for each filter."""

from pathlib import Path

import pytest

from tests.adapters.mqtt.live import running
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import V3_1_1, V5, Kind, Prop

NO_LOCAL = 0x04
DENY_NO = [{"effect": "deny", "filter": "no/#"}]


async def test_each_filter_has_its_code_in_order(tmp_path: Path) -> None:
    """MQTT-3.8.4-6, MQTT-3.9.3-1."""
    async with running(tmp_path, mqtt={"acl": DENY_NO}) as live:
        client = await live.connected()
        filters = [("a", 2), ("a/#/b", 0), ("no/x", 1), ("$share/g/b", 1), ("#", 0), ("b", 0)]
        client.send(wire.subscribe(7, filters))
        answer = await client.receive(Kind.SUBACK)
        assert (answer.packet_id, answer.codes) == (7, [2, 0x8F, 0x87, 1, 0x87, 0])
        assert answer.value(Prop.REASON_STRING)


async def test_in_3_a_denied_filter_is_a_failure_and_a_bad_one_the_end(tmp_path: Path) -> None:
    """MQTT 3.1.1: MQTT-3.9.3-2, MQTT-4.8.0-1."""
    async with running(tmp_path, mqtt={"acl": DENY_NO}) as live:
        client = await live.connected(version=V3_1_1)
        client.send(wire.subscribe(7, [("no/x", 1), ("a", 1)], version=V3_1_1))
        assert (await client.receive(Kind.SUBACK)).codes == [0x80, 1]
        client.send(wire.subscribe(8, [("a#", 1)], version=V3_1_1))
        assert await client.ended_with() == []


async def test_subscriptions_of_one_session_are_bounded(tmp_path: Path) -> None:
    async with running(tmp_path, mqtt={"session": {"subscriptions_max": 2}}) as live:
        client = await live.connected()
        client.send(wire.subscribe(1, [("a", 0), ("a", 1), ("b", 0), ("c", 0)]))
        assert (await client.receive(Kind.SUBACK)).codes == [0, 1, 0, 0x97]
        client.send(wire.subscribe(2, [("b", 1), ("d", 0)]))
        assert (await client.receive(Kind.SUBACK)).codes == [1, 0x97]


@pytest.mark.parametrize("topic_filter", ["$share/g/a", "$queue/a"])
async def test_no_local_on_a_shared_subscription_is_a_protocol_error(
    tmp_path: Path, topic_filter: str
) -> None:
    """MQTT-3.8.3-4."""
    async with running(tmp_path) as live:
        client = await live.connected()
        client.send(wire.subscribe(1, [(topic_filter, NO_LOCAL)]))
        assert await client.ended_with() == [(Kind.DISCONNECT, 0x82)]


@pytest.mark.parametrize(("handling", "first", "again"), [(0, 1, 1), (1, 1, 0), (2, 0, 0)])
async def test_retain_handling(tmp_path: Path, handling: int, first: int, again: int) -> None:
    """MQTT-3.3.1-9, MQTT-3.3.1-10, MQTT-3.3.1-11."""
    async with running(tmp_path) as live:
        client = await live.connected()
        client.send(wire.publish("a", b"kept", qos=1, retain=True))
        await client.receive(Kind.PUBACK)
        for count in (first, again):
            client.send(wire.subscribe(2, [("a", handling << 4)]))
            await client.receive(Kind.SUBACK)
            for _ in range(count):
                assert (await client.receive(Kind.PUBLISH)).retain
            client.send(wire.PINGREQ)
            await client.receive(Kind.PINGRESP)


async def test_unsubscribe_says_what_there_was(tmp_path: Path) -> None:
    """MQTT-3.10.4-5, MQTT-3.11.3-1."""
    async with running(tmp_path) as live:
        client = await live.connected()
        client.send(wire.subscribe(1, [("a", 0), ("$share/g/a", 0)]))
        await client.receive(Kind.SUBACK)
        client.send(wire.unsubscribe(2, ["$share/g/a", "b", "a#", "a", "a"]))
        answer = await client.receive(Kind.UNSUBACK)
        assert (answer.packet_id, answer.codes) == (2, [0, 0x11, 0x8F, 0, 0x11])


async def test_an_answer_that_the_client_cannot_take_ends_the_connection(
    tmp_path: Path,
) -> None:
    """MQTT-3.1.2-24."""
    async with running(tmp_path) as live:
        client = await live.connected(version=V5, found=[(Prop.MAXIMUM_PACKET_SIZE, 64)])
        client.send(wire.subscribe(1, [(f"a/{number}", 0) for number in range(100)]))
        assert await client.ended_with() == [(Kind.DISCONNECT, 0x95)]
