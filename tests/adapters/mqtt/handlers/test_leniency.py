"""Leniency of other servers: small clients, unused bits of 3.1, an answer to nothing.

Over sockets. Each case is one that a client or suite made for another server relies on.
"""

from pathlib import Path

import pytest

from tests.adapters.mqtt.live import Client, Live, running
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import V3_1, V3_1_1, V5, Kind, Prop, WillMessage


def with_flags(data: bytes, flags: int) -> bytes:
    """Return a packet with these bits 3 to 0 of its first byte."""
    return bytes((data[0] & 0xF0 | flags,)) + data[1:]


async def ping_is_answered(client: Client) -> None:
    client.send(wire.PINGREQ)
    await client.receive(Kind.PINGRESP)


async def test_connack_leaves_out_what_its_absence_says_too(tmp_path: Path) -> None:
    """Sections 3.2.2.3.3 to 3.2.2.3.13: Maximum QoS, Retain Available and those after it."""
    async with running(tmp_path) as live:
        said = {number for number, _ in (await (await live.client()).connect()).properties}
        assert said == {
            Prop.RECEIVE_MAXIMUM,
            Prop.MAXIMUM_PACKET_SIZE,
            Prop.TOPIC_ALIAS_MAXIMUM,
        }


async def test_limits_at_their_defaults_are_left_out_too(tmp_path: Path) -> None:
    limits = {"session": {"receive_max": 65_535}, "topic_alias_max": 0}
    async with running(tmp_path, mqtt=limits) as live:
        answer = await (await live.client()).connect()
        assert [number for number, _ in answer.properties] == [Prop.MAXIMUM_PACKET_SIZE]


async def test_a_client_that_takes_packets_of_16_bytes_gets_in(tmp_path: Path) -> None:
    """MQTT-3.1.2-24: CONNACK has no more than that."""
    async with running(tmp_path) as live:
        client = await live.connected(found=[(Prop.MAXIMUM_PACKET_SIZE, 16)])
        client.send(wire.subscribe(1, [("a", 0)]), wire.publish("a", b"x"))
        await client.receive(Kind.SUBACK)
        assert (await client.receive(Kind.PUBLISH)).payload == b"x"


@pytest.mark.parametrize(("alias", "code"), [(3, 0x82), (0, 0x94), (65, 0x94)])
async def test_an_alias_that_is_not_known_is_a_protocol_error(
    tmp_path: Path, alias: int, code: int
) -> None:
    """Section 3.3.2.3.4; MQTT-3.3.2-8, MQTT-3.3.2-9 for those that can never be."""
    async with running(tmp_path) as live:
        client = await live.connected()
        client.send(wire.publish("", b"x", found=[(Prop.TOPIC_ALIAS, alias)]))
        assert await client.ended_with() == [(Kind.DISCONNECT, code)]


async def test_a_topic_with_wildcards_is_invalid(tmp_path: Path) -> None:
    """MQTT-3.3.2-2."""
    async with running(tmp_path) as live:
        client = await live.connected()
        client.send(wire.publish("a/+", b"x"))
        assert await client.ended_with() == [(Kind.DISCONNECT, 0x90)]


@pytest.mark.parametrize(("code", "is_answered"), [(0x00, True), (0x10, True), (0x80, False)])
async def test_a_refusal_of_nothing_is_not_answered(
    tmp_path: Path, code: int, *, is_answered: bool
) -> None:
    """Section 4.3.3: after a PUBREC with 0x80 or more there is no PUBREL."""
    async with running(tmp_path) as live:
        client = await live.connected()
        client.send(wire.ack(Kind.PUBREC, 9, code))
        if is_answered:
            answer = await client.receive(Kind.PUBREL)
            assert (answer.packet_id, answer.code) == (9, 0x92)
        await ping_is_answered(client)


@pytest.mark.parametrize("flags", [1, 8, 15])
async def test_flags_that_3_1_does_not_use_say_nothing(tmp_path: Path, flags: int) -> None:
    """MQTT 3.1 section 2.1: not used, so not looked at; QoS is, where it says 1."""
    async with running(tmp_path) as live:
        client = await live.client(V3_1)
        client.send(with_flags(wire.connect("c", version=V3_1), flags))
        assert (await client.receive(Kind.CONNACK)).code == 0
        used = 2 | flags & 9
        client.send(with_flags(wire.subscribe(1, [("a", 2)], version=V3_1), used))
        await client.receive(Kind.SUBACK)
        client.send(wire.publish("a", b"x", qos=2, packet_id=5, version=V3_1))
        await client.receive(Kind.PUBREC)
        client.send(with_flags(wire.ack(Kind.PUBREL, 5), used))
        came = {(await client.next()).kind for _ in range(2)}  # type: ignore[union-attr]
        assert came == {Kind.PUBCOMP, Kind.PUBLISH}
        client.send(with_flags(wire.ack(Kind.PUBREC, 1), flags))
        await client.receive(Kind.PUBREL)
        client.send(with_flags(wire.ack(Kind.PUBCOMP, 1), flags))
        client.send(with_flags(wire.PINGREQ, flags))
        await client.receive(Kind.PINGRESP)
        client.send(with_flags(wire.unsubscribe(2, ["a"], version=V3_1), used))
        await client.receive(Kind.UNSUBACK)
        client.send(with_flags(wire.disconnect(version=V3_1), flags))
        assert await client.ended_with() == []


@pytest.mark.parametrize("version", [V3_1_1, V5])
@pytest.mark.parametrize("data", [wire.PINGREQ, wire.ack(Kind.PUBREL, 5)])
async def test_later_versions_reserve_them(tmp_path: Path, version: int, data: bytes) -> None:
    """MQTT-2.1.3-1."""
    async with running(tmp_path) as live:
        client = await live.connected(version=version)
        client.send(with_flags(data, 9))
        said = [(Kind.DISCONNECT, 0x81)] if version == V5 else []
        assert await client.ended_with() == said


@pytest.mark.parametrize("extra", [0x01, 0x08, 0x20, 0x39])
async def test_connect_flags_without_meaning_say_nothing_in_3_1(
    tmp_path: Path, extra: int
) -> None:
    """MQTT 3.1 section 3.1: bit 0 is not used, and those of a will need one."""
    async with running(tmp_path) as live:
        await live.connected(version=V3_1, extra_flags=extra)
        client = await live.client(V3_1_1)
        client.send(wire.connect("d", version=V3_1_1, extra_flags=extra))
        assert await client.ended_with() == []


async def test_a_will_of_3_1_still_has_no_qos_3(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.client(V3_1)
        client.send(wire.connect("c", version=V3_1, will=WillMessage("a", b"", qos=3)))
        assert await client.ended_with() == []


async def granted(live: Live, version: int, options: int) -> list[int] | None:
    """Return the codes of SUBACK, or None when the connection was closed instead."""
    client = await live.connected(version=version)
    client.send(wire.subscribe(1, [("a", options)], version=version))
    answer = await client.next()
    return None if answer is None else answer.codes


async def test_the_upper_bits_of_a_requested_qos_say_nothing_in_3_1(tmp_path: Path) -> None:
    """MQTT 3.1 section 3.8."""
    async with running(tmp_path) as live:
        assert await granted(live, V3_1, 0xFD) == [1]
        assert await granted(live, V3_1, 0x03) is None
        assert await granted(live, V3_1_1, 0x05) is None


async def test_dup_at_qos_0_says_nothing_in_3_1_and_goes_no_further(tmp_path: Path) -> None:
    """MQTT 3.1 section 2.1: DUP applies to messages with a QoS above 0."""
    async with running(tmp_path) as live:
        receiver = await live.connected("r", version=V3_1)
        receiver.send(wire.subscribe(1, [("a", 0)], version=V3_1))
        await receiver.receive(Kind.SUBACK)
        sender = await live.connected("s", version=V3_1)
        for payload in (b"1", b"2", b"3"):
            sender.send(wire.publish("a", payload, dup=True, version=V3_1))
            found = await receiver.receive(Kind.PUBLISH)
            assert (found.payload, found.dup) == (payload, False)
