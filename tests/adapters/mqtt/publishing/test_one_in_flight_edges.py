"""Packets that differ from a one-in-flight client's last one go the common way."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.records.codec import decode_batch
from tests.adapters.mqtt.publishing.test_one_in_flight_batches import (
    has_one_in_flight,
    one_by_one,
    one_in_flight_client,
    server_side,
    stored,
)
from tests.adapters.mqtt.restartable_node import (
    RestartableNode,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Kind, Prop
from tests.support.waiting import until

ODD: Final[Mapping[str, dict[str, Any]]] = {
    "DUP": {"qos": 1, "dup": True},
    "retained": {"qos": 1, "retain": True},
    "QoS 2": {"qos": 2},
    "another topic": {"qos": 1, "topic": "u"},
    "a property": {"qos": 1, "found": ((Prop.CONTENT_TYPE, "x"),)},
    "a large one": {"qos": 1, "payload": b"x" * 5_000},
}


async def does_not_go_alone(one: RestartableNode, packet: bytes) -> bool:
    """Send what is like nothing before it, and say whether the other way has it."""
    client = await one_in_flight_client(one)
    one.live.storage.held = True
    client.send(packet)
    await until(lambda: server_side(one, "p").inbound.is_pending)
    went_alone = has_one_in_flight(one, "p")
    one.live.storage.release()
    assert (await client.receive(Kind.PUBACK)).code == 0
    return not went_alone


@pytest.mark.parametrize("odd", ODD)
async def test_an_odd_packet_goes_the_other_way_and_is_delivered_as_it_is(
    tmp_path: Path, odd: str
) -> None:
    options = {"topic": "t", "payload": b"third", "packet_id": 9, **ODD[odd]}
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s")
        client = await one_in_flight_client(one)
        await subscriber.subscribe(("#", 2))
        one.live.storage.held = True
        client.send(wire.publish(**options))
        await until(lambda: server_side(one, "p").inbound.is_pending)
        assert not has_one_in_flight(one, "p")
        one.live.storage.release()
        answer = await client.next()
        assert answer is not None
        assert answer.kind is (Kind.PUBREC if options["qos"] == 2 else Kind.PUBACK)
        assert answer.packet_id == 9
        (found,) = await subscriber.take(1)
        assert (found.topic, found.payload) == (options["topic"], options["payload"])
        assert found.qos == options["qos"]
        assert found.value(Prop.CONTENT_TYPE) == dict(options.get("found", ())).get(
            Prop.CONTENT_TYPE
        )
        retained = await one.client("late")
        await retained.subscribe(("t", 0))
        retained.send(wire.PINGREQ)
        came = await retained.next()
        assert came is not None
        assert came.kind is (Kind.PUBLISH if options.get("retain") else Kind.PINGRESP)


async def test_properties_of_the_same_size_are_kept_apart(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s")
        await subscriber.subscribe(("t", 0))
        client = await one.client("p")
        kinds = ["aa", "aa", "aa", "bb", "bb", "aa"]
        for kind in kinds:
            await client.publish("t", [b"."], found=((Prop.CONTENT_TYPE, kind),))
        came = await subscriber.take(len(kinds))
        assert [found.value(Prop.CONTENT_TYPE) for found in came] == kinds


async def test_a_publishers_topic_alias_is_not_the_subscribers(
    tmp_path: Path,
) -> None:  # MQTT-3.3.2-11
    alias = ((Prop.TOPIC_ALIAS, 1),)
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s")
        await subscriber.subscribe(("#", 0))
        client = await one.client("p")
        for topic in ("t", "t", "t", "t", "", "", "", ""):
            await client.publish(topic, [b"."], found=alias)
            assert server_side(one, "p").publisher is None
        came = await subscriber.take(8)
        assert [found.topic for found in came] == ["t"] * 8
        assert all(found.value(Prop.TOPIC_ALIAS) is None for found in came)


async def test_each_message_expires_an_interval_after_it_came(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        client = await one.client("p")
        came_unix_ms = []
        for _ in range(4):
            await client.publish("t", [b"."], found=((Prop.MESSAGE_EXPIRY, 60),))
            came_unix_ms.append(one.clock.unix_ms())
            one.clock.advance(10_000)
        batches = one.kernel.broker.read(one.partition(), 0, bytes_max=100_000)
        assert batches is not None
        expires = [
            int(dict(record.headers)["expires-at"] or b"")
            for batch in batches
            for record in decode_batch(batch)
        ]
        assert expires == [came + 60_000 for came in came_unix_ms]


async def test_a_packet_above_the_maximum_is_refused(tmp_path: Path) -> None:  # MQTT-3.1.2-24
    async with restartable_node(tmp_path, mqtt={"packet_bytes_max": 1_024}) as one:
        client = await one_in_flight_client(one)
        client.send(wire.publish("t", b"x" * 2_000, qos=1, packet_id=3))
        assert (Kind.DISCONNECT, 0x95) in await client.ended_with()
        assert len(stored(one)) == 2


async def test_nothing_goes_alone_while_the_log_has_more_than_it_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with restartable_node(tmp_path) as one:
        monkeypatch.setattr(one.adapter.node.one_in_flight, "_is_saturated", lambda: True)
        assert await does_not_go_alone(one, wire.publish("t", b"third", qos=1))


async def test_an_identifier_may_end_with_an_byte_of_zero(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        client = await one_in_flight_client(one)
        one.live.storage.held = True
        client.send(wire.publish("t", b"third", qos=1, packet_id=0x0100))
        await until(lambda: one.partition().log_end_offset == 3)
        assert has_one_in_flight(one, "p")
        one.live.storage.release()
        assert (await client.receive(Kind.PUBACK)).packet_id == 0x0100


async def test_nothing_goes_alone_before_its_predecessor_is_acknowledged(
    tmp_path: Path,
) -> None:  # MQTT-4.6.0-2
    async with restartable_node(tmp_path) as one:
        client = await one.client("p")
        await client.publish("t", [b"first"])
        one.live.storage.held = True
        client.send(wire.publish("t", b"second", qos=1, packet_id=2))
        await until(lambda: server_side(one, "p").publisher is not None)
        connection = server_side(one, "p")
        received = connection.bytes_received
        client.send(wire.publish("t", b"third", qos=1, packet_id=3))
        await until(lambda: connection.bytes_received > received)
        assert not has_one_in_flight(one, "p")
        assert len(connection.inbound._in_turn) == 2
        one.live.storage.release()
        assert [(await client.receive(Kind.PUBACK)).packet_id for _ in range(2)] == [2, 3]


async def test_nothing_goes_alone_with_qos_2_on_its_way(tmp_path: Path) -> None:
    """QoS 2 messages without PUBREL count for the Receive Maximum, messages of this path do not."""
    async with restartable_node(tmp_path) as one:
        client = await one.client("p")
        client.send(wire.publish("t", b"exactly once", qos=2, packet_id=900))
        await client.receive(Kind.PUBREC)
        await one_by_one(client, "t", [b"1", b"2", b"3"])
        assert server_side(one, "p").publisher is None


async def test_who_does_not_wait_for_the_answer_goes_the_other_way_from_then_on(
    tmp_path: Path,
) -> None:
    async with restartable_node(tmp_path) as one:
        client = await one_in_flight_client(one)
        one.live.storage.held = True
        client.send(wire.publish("t", b"3", qos=1, packet_id=3))
        await until(lambda: has_one_in_flight(one, "p"))
        client.send(wire.publish("t", b"4", qos=1, packet_id=4))
        await until(lambda: server_side(one, "p").publisher is None)
        one.live.storage.release()
        assert [(await client.receive(Kind.PUBACK)).packet_id for _ in range(2)] == [3, 4]
        await client.publish("t", [b"5"])
        assert server_side(one, "p").publisher is None


async def test_what_is_denied_is_refused_each_time(tmp_path: Path) -> None:
    acl = [{"effect": "deny", "filter": "no/#"}]
    async with restartable_node(tmp_path, mqtt={"acl": acl}) as one:
        client = await one.client("p")
        for packet_id in range(1, 6):
            client.send(wire.publish("no/t", b".", qos=1, packet_id=packet_id))
            answer = await client.receive(Kind.PUBACK)
            assert (answer.packet_id, answer.code) == (packet_id, 0x87)


async def test_delayed_messages_are_delayed_each_time(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        client = await one_in_flight_client(one)
        await one_by_one(client, "$delayed/60/t", [b"1", b"2", b"3", b"4"])
        assert len(stored(one)) == 2


async def test_subscribers_of_a_shared_batch_get_each_message_under_its_topic(
    tmp_path: Path,
) -> None:
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s")
        clients = [
            await one_in_flight_client(one, f"p{number}", f"t{number}") for number in range(6)
        ]
        await subscriber.subscribe(("#", 1))
        one.live.storage.held = True
        for number, client in enumerate(clients):
            client.send(
                wire.publish(f"t{number}", b"%d" % number, qos=1, packet_id=100 + number)
            )
        await until(lambda: all(has_one_in_flight(one, f"p{n}") for n in range(6)))
        one.live.storage.release()
        for number, client in enumerate(clients):
            assert (await client.receive(Kind.PUBACK)).packet_id == 100 + number
        came = await subscriber.take(6)
        assert sorted((found.topic, found.payload) for found in came) == [
            (f"t{number}", b"%d" % number) for number in range(6)
        ]
