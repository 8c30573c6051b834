"""Clients that wait for each PUBACK: their messages go a shorter way, with the same promises."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from adapters.mqtt.connection.connection import MqttConnection
from adapters.mqtt.records.one_in_flight_messages import OneInFlightMessages
from gateway.coalescer import BATCH_RECORDS_MAX
from gateway.records.codec import decode_batch
from gateway.records.singles import RecordFrame, SingleRecords
from tests.adapters.mqtt.disk_faults import full_disk
from tests.adapters.mqtt.restartable_node import (
    Client,
    RestartableNode,
    payloads,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import V3_1_1, V5, Kind, Prop, WillMessage
from tests.support.waiting import until


def server_side(one: RestartableNode, name: str) -> MqttConnection:
    session = one.session(name)
    assert session is not None
    return cast("MqttConnection", session.connection)


def has_one_in_flight(one: RestartableNode, name: str) -> bool:
    publisher = server_side(one, name).publisher
    return publisher is not None and publisher.data is not None


async def one_by_one(client: Client, topic: str, bodies: Sequence[bytes]) -> None:
    for body in bodies:
        await client.publish(topic, [body])


async def one_in_flight_client(
    one: RestartableNode, name: str = "p", topic: str = "t", **options: object
) -> Client:
    """Return a client whose next message goes the short way."""
    client = await one.client(name, **options)  # type: ignore[arg-type]  # passed on
    await one_by_one(client, topic, [b"first", b"second"])
    assert server_side(one, name).publisher is not None
    return client


def stored(one: RestartableNode) -> list[tuple[bytes | None, bytes | None]]:
    """Return key and value of all that the log has."""
    partition = one.partition()
    batches = one.kernel.broker.read(partition, 0, bytes_max=10_000_000)
    assert batches is not None
    return [(found.key, found.value) for batch in batches for found in decode_batch(batch)]


@pytest.mark.parametrize("version", [V3_1_1, V5])
async def test_nothing_is_acknowledged_before_the_log_has_it(
    tmp_path: Path, version: int
) -> None:  # MQTT-4.3.2-2
    async with restartable_node(tmp_path) as one:
        client = await one_in_flight_client(one, version=version)
        one.live.storage.held = True
        client.send(wire.publish("t", b"third", qos=1, packet_id=77, version=version))
        await until(lambda: one.partition().log_end_offset == 3)
        assert has_one_in_flight(one, "p")
        client.send(wire.PINGREQ)
        await client.receive(Kind.PINGRESP)
        one.live.storage.release()
        assert (await client.receive(Kind.PUBACK)).packet_id == 77
        assert stored(one)[2] == (b"t", b"third")


async def test_messages_of_all_sizes_are_kept_as_they_are(tmp_path: Path) -> None:
    """Remaining Lengths of one and two bytes, and packets that are too large for the way."""
    bodies = [b"x" * size for size in (*range(110, 130), 0, 1, 5_000, 4_080, 4_090, 1, 1)]
    async with restartable_node(tmp_path) as one:
        client = await one_in_flight_client(one)
        await one_by_one(client, "t", bodies)
        assert [value for _, value in stored(one)[2:]] == bodies


async def test_subscribers_get_them_with_their_properties(tmp_path: Path) -> None:
    found = ((Prop.CONTENT_TYPE, "text"), (Prop.USER, ("a", "1")))
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s")
        await subscriber.subscribe(("#", 1))
        clients = [await one.client(f"p{number}") for number in range(3)]
        for turn in range(4):
            for number, client in enumerate(clients):
                await client.publish(f"t/{number}", [b"%d.%d" % (number, turn)], found=found)
        came = await subscriber.take(12)
        assert [(one.topic, one.payload) for one in came] == [
            (f"t/{number}", b"%d.%d" % (number, turn))
            for turn in range(4)
            for number in range(3)
        ]
        assert came[0].values(Prop.USER) == [found[1][1]]
        assert all(message.properties == came[0].properties for message in came)
        assert came[-1].qos == 1


async def test_what_comes_before_its_acknowledgement_is_answered_after_it(
    tmp_path: Path,
) -> None:  # MQTT-4.6.0-2
    acl = [{"effect": "deny", "filter": "no/#"}]
    async with restartable_node(tmp_path, mqtt={"acl": acl}) as one:
        client = await one_in_flight_client(one)
        one.live.storage.held = True
        client.send(wire.publish("t", b"1", qos=1, packet_id=11))
        await until(lambda: has_one_in_flight(one, "p"))
        client.send(wire.publish("no/t", b"2", qos=1, packet_id=12))
        client.send(wire.publish("t", b"3", qos=1, packet_id=13))
        client.send(wire.PINGREQ)
        await client.receive(Kind.PINGRESP)
        one.live.storage.release()
        answers = [await client.receive(Kind.PUBACK) for _ in range(3)]
        assert [(answer.packet_id, answer.code) for answer in answers] == [
            (11, 0), (12, 0x87), (13, 0),
        ]  # fmt: skip
        assert [value for _, value in stored(one)[2:]] == [b"1", b"3"]


async def test_it_counts_for_the_receive_maximum(tmp_path: Path) -> None:  # MQTT-3.3.4-9
    async with restartable_node(tmp_path, mqtt={"session": {"receive_max": 2}}) as one:
        client = await one_in_flight_client(one)
        one.live.storage.held = True
        for packet_id in (1, 2, 3):
            client.send(wire.publish("t", b"x", qos=1, packet_id=packet_id))
            await until(lambda: server_side(one, "p").inbound.is_pending)
        assert (Kind.DISCONNECT, 0x93) in await client.ended_with()


async def test_the_will_comes_after_the_last_message(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        client = await one_in_flight_client(one, will=WillMessage("t", b"will"))
        one.live.storage.held = True
        client.send(wire.publish("t", b"last", qos=1, packet_id=9))
        await until(lambda: has_one_in_flight(one, "p"))
        client.send(wire.publish("t", b"very last", qos=1, packet_id=10))
        await until(lambda: not has_one_in_flight(one, "p"))
        await client.drop()
        await one.gone("p")
        one.live.storage.release()
        await until(lambda: one.partition().high_watermark == 5)
        assert [value for _, value in stored(one)[2:]] == [b"last", b"very last", b"will"]


@pytest.mark.parametrize("version", [V3_1_1, V5])
async def test_a_full_disk_acknowledges_nothing(tmp_path: Path, version: int) -> None:
    """5.0 is told; a 3.x client is closed, and says it again on its next connection."""
    async with restartable_node(tmp_path) as one:
        client = await one_in_flight_client(one, version=version)
        with full_disk(one):
            client.send(wire.publish("t", b"no", qos=1, packet_id=5, version=version))
            if version == V5:
                assert (await client.receive(Kind.PUBACK)).code >= 0x80
            else:
                assert await client.ended_with() == []
        if version == V5:
            await client.publish("t", [b"yes"])
            assert [value for _, value in stored(one)[2:]] == [b"yes"]
        assert one.adapter.node.counters.publish_refused == 1


async def test_one_that_is_too_large_for_the_topic_is_refused_and_no_other(
    tmp_path: Path,
) -> None:
    async with restartable_node(tmp_path) as one:
        await (await one.client("c")).publish("c", [b"."])
        name = one.partition().topic.name
        await one.kernel.topics.alter_configs(name, {"max.message.bytes": "300"})
        first, large, small = [
            await one_in_flight_client(one, name) for name in ("a", "b", "c")
        ]
        one.live.storage.held = True
        first.send(wire.publish("t", b"1", qos=1, packet_id=3))
        await until(lambda: one.partition().log_end_offset == 8)
        large.send(wire.publish("t", b"x" * 500, qos=1, packet_id=3))
        small.send(wire.publish("t", b"2", qos=1, packet_id=3))
        await until(lambda: all(has_one_in_flight(one, name) for name in "abc"))
        one.live.storage.release()
        assert (await large.receive(Kind.PUBACK)).code >= 0x80
        assert [(await client.receive(Kind.PUBACK)).code for client in (first, small)] == [0, 0]
        assert [value for _, value in stored(one)[7:]] == [b"1", b"2"]


async def test_more_than_a_batch_of_them_is_delivered_once(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        client = await one_in_flight_client(one)
        subscriber = await one.client("s")
        await subscriber.subscribe(("t", 1))
        publisher = server_side(one, "p").publisher
        assert publisher is not None
        bodies = [b"%03d" % number for number in range(BATCH_RECORDS_MAX + 44)]
        records = SingleRecords(
            [RecordFrame(b"t", publisher.headers, 3)] * len(bodies),
            bodies,
            one.clock.unix_ms(),
            OneInFlightMessages([publisher] * len(bodies), bodies),
        )
        one.adapter.node.publishing._coalescer.add(one.partition(), records, lambda _: None)
        assert payloads(await subscriber.take(len(bodies))) == bodies
        await client.publish("t", [b"last"])
        assert payloads(await subscriber.take(1)) == [b"last"]


async def test_rules_that_change_meanwhile_hold(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        client = await one_in_flight_client(one)
        access = one.adapter.node.access
        access.default = False
        one.kernel.authorizer.revision += 1  # type: ignore[misc]  # as a rule book does
        client.send(wire.publish("t", b"no", qos=1, packet_id=5))
        assert (await client.receive(Kind.PUBACK)).code == 0x87


async def test_a_topic_that_is_deleted_and_made_again_gets_the_next_message(
    tmp_path: Path,
) -> None:
    async with restartable_node(tmp_path) as one:
        client = await one_in_flight_client(one)
        old = one.partition()
        await one.kernel.topics.delete(old.topic.name)
        await until(lambda: one.kernel.topics.find(old.topic.name) is not None)
        await client.publish("t", [b"after"])
        assert stored(one) == [(b"t", b"after")]


async def test_packet_identifier_zero_is_a_protocol_error(tmp_path: Path) -> None:
    """MQTT-2.2.1-3, for a packet that is else as those before."""
    async with restartable_node(tmp_path) as one:
        client = await one_in_flight_client(one)
        client.send(wire.publish("t", b"third", qos=1, packet_id=0))
        assert await client.ended_with() == [(Kind.DISCONNECT, 0x82)]


async def test_a_length_longer_than_needed_is_malformed(tmp_path: Path) -> None:
    """MQTT-1.5.5-1, for a packet that is else as those before."""
    async with restartable_node(tmp_path) as one:
        client = await one_in_flight_client(one)
        body = wire.publish("t", b"x" * 121, qos=1, packet_id=3)[2:]
        assert len(body) == 127
        client.send(b"\x32\xff\x00" + body)
        assert await client.ended_with() == [(Kind.DISCONNECT, 0x81)]


async def test_a_drain_acknowledges_it(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        client = await one_in_flight_client(one)
        connection = server_side(one, "p")
        one.live.storage.held = True
        client.send(wire.publish("t", b"last", qos=1, packet_id=6))
        await until(lambda: has_one_in_flight(one, "p"))
        connection.hurry()
        assert connection.has_unsaved_work()
        one.live.storage.release()
        assert [kind for kind, _ in await client.ended_with()] == [
            Kind.PUBACK, Kind.DISCONNECT,
        ]  # fmt: skip


async def test_who_takes_no_acknowledgements_leaves_the_short_way(tmp_path: Path) -> None:
    """The other way looks at what is queued for him, and holds him at ``receiver_bytes_max``."""
    async with restartable_node(tmp_path) as one:
        client = await one_in_flight_client(one)
        connection = server_side(one, "p")
        connection.pause_writing()
        client.send(wire.publish("t", b"x", qos=1, packet_id=4))
        await until(lambda: one.partition().high_watermark == 3)
        assert connection.publisher is None
        connection.resume_writing()
        assert (await client.receive(Kind.PUBACK)).packet_id == 4
        await client.publish("t", [b"y"])
        assert connection.publisher is not None


async def test_many_clients_share_a_batch(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        clients = [
            await one_in_flight_client(one, f"p{number}", f"t{number}") for number in range(20)
        ]
        one.live.storage.held = True
        clients[0].send(wire.publish("t0", b"0", qos=1, packet_id=3))
        await until(lambda: one.partition().log_end_offset == 41)
        for number, client in enumerate(clients[1:], start=1):
            client.send(wire.publish(f"t{number}", b"%d" % number, qos=1, packet_id=3))
        await until(lambda: all(has_one_in_flight(one, f"p{n}") for n in range(20)))
        appended = one.kernel.broker.writer.batches_appended
        one.live.storage.release()
        for client in clients:
            assert (await client.receive(Kind.PUBACK)).packet_id == 3
        assert one.kernel.broker.writer.batches_appended == appended + 1
        assert sorted(stored(one)[40:]) == sorted(
            (b"t%d" % number, b"%d" % number) for number in range(20)
        )


@pytest.mark.parametrize("no_local", [False, True])
async def test_no_local_knows_who_published_it(
    tmp_path: Path, *, no_local: bool
) -> None:  # MQTT-3.8.3-3
    async with restartable_node(tmp_path) as one:
        client = await one_in_flight_client(one)
        client.send(wire.subscribe(1, [("t", 0 | no_local << 2)]))
        await client.receive(Kind.SUBACK)
        kinds: list[Kind] = []
        for _ in range(3):
            client.send(wire.publish("t", b"mine", qos=1, packet_id=8))
            while (found := await client.next()) is not None:
                kinds.append(found.kind)
                if found.kind is Kind.PUBACK:
                    break
        await one.delivered()
        client.send(wire.PINGREQ)
        while (found := await client.next()) is not None and found.kind is not Kind.PINGRESP:
            kinds.append(found.kind)
        assert kinds.count(Kind.PUBLISH) == (0 if no_local else 3)
