"""PUBLISH and its acknowledgements: order, windows, aliases, refusals, back-pressure."""

from pathlib import Path
from typing import Any

import pytest

from gateway.config.auth import AuthRule
from gateway.model import DEFAULT_NAMESPACE, TopicName
from tests.adapters.mqtt.live import PASSWORD, running
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import V3_1_1, V5, Kind, Prop
from tests.support.waiting import until

DENY_NO = [{"effect": "deny", "filter": "no/#"}]


async def test_acknowledgements_come_in_the_order_of_messages(tmp_path: Path) -> None:
    """MQTT-4.6.0-2, MQTT-4.6.0-3: a refusal does not overtake what the log has not got yet."""
    async with running(tmp_path, mqtt={"acl": DENY_NO}) as live:
        client = await live.connected()
        live.storage.held = True
        client.send(
            wire.publish("a", b"1", qos=1, packet_id=3),
            wire.publish("no/a", b"2", qos=1, packet_id=2),
            wire.publish("b", b"3", qos=2, packet_id=1),
        )
        client.send(wire.PINGREQ)
        await client.receive(Kind.PINGRESP)  # before any of them
        live.storage.release()
        answers = [await client.next() for _ in range(3)]
        got = [(one.kind, one.packet_id, one.code) for one in answers if one is not None]
        assert got == [(Kind.PUBACK, 3, 0), (Kind.PUBACK, 2, 0x87), (Kind.PUBREC, 1, 0)]


async def test_nothing_is_acknowledged_before_the_log_has_it(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.connected()
        live.storage.held = True
        client.send(wire.publish("a", b"1", qos=1, packet_id=3), wire.PINGREQ)
        assert (await client.next()).kind is Kind.PINGRESP  # type: ignore[union-attr]
        live.storage.release()
        assert (await client.receive(Kind.PUBACK)).packet_id == 3


@pytest.mark.parametrize("qos", [1, 2])
async def test_more_than_the_receive_maximum_is_refused(tmp_path: Path, qos: int) -> None:
    """MQTT-3.3.4-9; section 4.9."""
    async with running(tmp_path, mqtt={"session": {"receive_max": 2}}) as live:
        client = await live.connected()
        live.storage.held = True
        sent = [wire.publish("a", b"x", qos=qos, packet_id=number) for number in (1, 2, 3)]
        client.send(*sent)
        live.storage.release()
        assert (await client.ended_with())[-1] == (Kind.DISCONNECT, 0x93)


async def test_the_window_opens_with_each_acknowledgement(tmp_path: Path) -> None:
    async with running(tmp_path, mqtt={"session": {"receive_max": 1}}) as live:
        client = await live.connected()
        for number in (1, 2, 3):
            client.send(wire.publish("a", b"x", qos=1, packet_id=number))
            await client.receive(Kind.PUBACK)
            client.send(wire.publish("a", b"x", qos=2, packet_id=number))
            await client.receive(Kind.PUBREC)
            client.send(wire.ack(Kind.PUBREL, number))
            assert (await client.receive(Kind.PUBCOMP)).code == 0


async def test_pubrel_of_an_unknown_identifier_is_told_so(tmp_path: Path) -> None:
    """Section 3.7.2.1."""
    async with running(tmp_path) as live:
        client = await live.connected()
        client.send(wire.ack(Kind.PUBREL, 9))
        assert (await client.receive(Kind.PUBCOMP)).code == 0x92


@pytest.mark.parametrize("alias", [0, 3])
async def test_an_alias_out_of_range_is_refused(tmp_path: Path, alias: int) -> None:
    """MQTT-3.3.2-8, MQTT-3.3.2-9: 0, above the maximum; never set: ``test_leniency``."""
    async with running(tmp_path, mqtt={"topic_alias_max": 2}) as live:
        client = await live.connected()
        client.send(wire.publish("", b"x", found=[(Prop.TOPIC_ALIAS, alias)]))
        assert await client.ended_with() == [(Kind.DISCONNECT, 0x94)]


async def test_an_alias_stands_for_its_topic_and_stays_here(tmp_path: Path) -> None:
    """MQTT-3.3.2-10, MQTT-3.3.2-11, MQTT-3.3.2-12."""
    async with running(tmp_path) as live:
        client = await live.connected()
        client.send(wire.subscribe(1, [("a/#", 0)]))
        await client.receive(Kind.SUBACK)
        client.send(
            wire.publish("a/1", b"x", found=[(Prop.TOPIC_ALIAS, 5)]),
            wire.publish("", b"y", found=[(Prop.TOPIC_ALIAS, 5)]),
            wire.publish("a/2", b"z", found=[(Prop.TOPIC_ALIAS, 5)]),
            wire.publish("", b"w", found=[(Prop.TOPIC_ALIAS, 5)]),
        )
        came = [await client.receive(Kind.PUBLISH) for _ in range(4)]
        assert [(one.topic, one.payload) for one in came] == [
            ("a/1", b"x"), ("a/1", b"y"), ("a/2", b"z"), ("a/2", b"w"),
        ]  # fmt: skip
        assert all(one.value(Prop.TOPIC_ALIAS) is None for one in came)


@pytest.mark.parametrize(
    ("topic", "code"),
    [("$SYS/x", 0x90), ("$delayed/a", 0x90), ("$delayed/5/no/a", 0x87), ("no/a", 0x87)],
)
@pytest.mark.parametrize("qos", [1, 2])
async def test_what_may_not_be_published_is_refused_with_a_reason(
    tmp_path: Path, topic: str, code: int, qos: int
) -> None:
    async with running(tmp_path, mqtt={"acl": DENY_NO}) as live:
        client = await live.connected()
        client.send(wire.publish(topic, b"x", qos=qos))
        answer = await client.receive(Kind.PUBACK if qos == 1 else Kind.PUBREC)
        assert answer.code == code
        assert answer.value(Prop.REASON_STRING)


async def test_reasons_are_left_out_where_they_are_not_wanted_or_do_not_fit(
    tmp_path: Path,
) -> None:
    """MQTT-3.1.2-29, MQTT-3.4.2-2."""
    for found in ((Prop.REQUEST_PROBLEM_INFO, 0), (Prop.MAXIMUM_PACKET_SIZE, 40)):
        async with running(tmp_path, mqtt={"acl": DENY_NO}) as live:
            client = await live.connected(found=[found])
            client.send(wire.publish("no/" + 30 * "a", b"x", qos=1))
            answer = await client.receive(Kind.PUBACK)
            assert (answer.code, answer.value(Prop.REASON_STRING)) == (0x87, None)


async def test_in_3_a_refused_publish_is_acknowledged_and_counted(tmp_path: Path) -> None:
    """MQTT 3.1.1: MQTT-3.3.5-2, as Mosquitto does."""
    async with running(tmp_path, mqtt={"acl": DENY_NO}) as live:
        client = await live.connected(version=V3_1_1)
        client.send(wire.publish("no/a", b"x", qos=1, version=V3_1_1))
        await client.receive(Kind.PUBACK)
        assert live.adapter.node.counters.publish_refused == 1


async def test_a_refused_qos_0_is_counted_and_the_connection_goes_on(tmp_path: Path) -> None:
    async with running(tmp_path, mqtt={"acl": DENY_NO}) as live:
        client = await live.connected()
        client.send(wire.publish("no/a", b"x"), wire.PINGREQ)
        await client.receive(Kind.PINGRESP)
        assert live.adapter.node.counters.publish_refused == 1


async def test_the_gateways_rules_guard_the_topic_of_the_log(tmp_path: Path) -> None:
    rule = AuthRule.model_validate(
        {
            "principal": "ada",
            "operation": "write",
            "resource": "topic",
            "pattern": "literal",
            "name": "mqtt",
        }
    )
    word: dict[str, Any] = {"password": PASSWORD.encode()}
    async with running(tmp_path, users=("ada", "bob"), rules=(rule,)) as live:
        ada = await live.connected("a", username="ada", **word)
        bob = await live.connected("b", username="bob", **word)
        for client, code in ((ada, 0), (bob, 0x87)):
            client.send(wire.publish("x", b"x", qos=1))
            assert (await client.receive(Kind.PUBACK)).code == code
        ada.send(wire.subscribe(1, [("x", 0)]))
        assert (await ada.receive(Kind.SUBACK)).codes == [0x87]


async def test_unacknowledged_bytes_hold_reads_until_the_log_has_them(tmp_path: Path) -> None:
    async with running(tmp_path, mqtt={"unacknowledged_bytes_max": 65_536}) as live:
        client = await live.connected(version=V5)
        live.storage.held = True
        client.send(wire.publish("a", bytes(70_000), qos=1, packet_id=1))
        await until(lambda: live.connection().is_held_but_for())
        live.storage.release()
        assert (await client.receive(Kind.PUBACK)).packet_id == 1
        assert not live.connection().is_held_but_for()


async def test_a_full_log_holds_publishers_and_loses_nothing(tmp_path: Path) -> None:
    broker = {"wal_queued_bytes_max": 1 << 20, "wal_queued_bytes_low": 1 << 19}
    async with running(tmp_path, broker=broker) as live:
        client = await live.connected()
        live.storage.held = True
        client.send(
            *(wire.publish("a", bytes(100_000), qos=1, packet_id=n) for n in range(1, 21))
        )
        await until(lambda: live.connection().is_held_but_for("unacknowledged"))
        live.storage.release()
        got = [(await client.receive(Kind.PUBACK)).packet_id for _ in range(20)]
        assert got == list(range(1, 21))


@pytest.mark.parametrize("qos", [1, 2])
async def test_the_largest_packet_is_kept(tmp_path: Path, qos: int) -> None:
    """Its record is larger than itself, and in a topic made for it there is room."""
    async with running(tmp_path, mqtt={"packet_bytes_max": 2 << 20}) as live:
        client = await live.connected(version=V3_1_1)
        topic = "t" * 60_000
        beside = len(wire.publish(topic, b"x" * (1 << 20), qos=qos, packet_id=1)) - (1 << 20)
        payload = b"x" * ((2 << 20) - beside)
        client.send(wire.publish(topic, payload, qos=qos, packet_id=1))
        assert (await client.next()).kind is (Kind.PUBACK if qos == 1 else Kind.PUBREC)  # type: ignore[union-attr]
        found = live.kernel.topics.get(TopicName(DEFAULT_NAMESPACE, "mqtt"))
        assert live.kernel.broker.partition(found, 0).high_watermark == 1


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("qos", [1, 2])
async def test_what_its_topic_does_not_take_is_not_acknowledged(
    tmp_path: Path, qos: int, *, retain: bool
) -> None:
    """A 3.x acknowledgement cannot say no; 5.0 hears it."""
    async with running(tmp_path) as live:
        name = TopicName(DEFAULT_NAMESPACE, "mqtt")
        await live.kernel.topics.alter_configs(name, {"max.message.bytes": "1000"})
        packet: dict[str, Any] = {"qos": qos, "packet_id": 7, "retain": retain}
        old = await live.connected("old", version=V3_1_1)
        old.send(wire.publish("a", b"x" * 1_000, **packet))
        assert await old.ended_with() == []
        new = await live.connected("new")
        new.send(wire.publish("a", b"x" * 1_000, version=V5, **packet))
        refusal = await new.receive(Kind.PUBACK if qos == 1 else Kind.PUBREC)
        assert (refusal.packet_id, refusal.code) == (7, 0x97)


@pytest.mark.parametrize("cut", range(3))
async def test_a_delayed_topic_at_fault_is_refused_whatever_its_letters(
    tmp_path: Path, cut: int
) -> None:
    async with running(tmp_path) as live:
        client = await live.connected()
        topic = "$delayed/x" + "a" * cut + "/" + "\u20ac" * 40
        client.send(wire.publish(topic, b"", qos=1, packet_id=1, version=V5))
        assert (await client.receive(Kind.PUBACK)).code == 0x90
