"""Limits of MQTT after CONNACK: no packet and no read keeps the loop for long."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from adapters.mqtt import server
from adapters.mqtt.codec import FILTERS_MAX
from adapters.mqtt.connection.connection import MqttConnection
from adapters.mqtt.errors import MqttError, ReasonCode
from adapters.mqtt.packets import primitives, properties
from adapters.mqtt.packets.framing import SLICE_WORK, PacketReader
from adapters.mqtt.packets.mixed_topics_codec import MIXED_TOPICS_MAX
from adapters.mqtt.packets.publish_codec import WORK_BYTES
from adapters.mqtt.wire import Packet
from tests.adapters.mqtt.live import running
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Kind, Prop

MIB = 1024 * 1024
PROPERTIES_MAX = 100


def pairs(count: int) -> list[tuple[Prop, tuple[str, str]]]:
    return [(Prop.USER, ("", ""))] * count


def with_properties(kind: Kind, count: int) -> bytes:
    """Return a packet with so many user properties."""
    found = pairs(count)
    packet_id = (1).to_bytes(2)
    match kind:
        case Kind.PUBLISH:
            return wire.publish("t", b"x", found=found)
        case Kind.SUBSCRIBE:
            return wire.subscribe(1, [("a", 0)], found=found)
        case Kind.UNSUBSCRIBE:
            body = packet_id + wire.properties(found) + wire.text("a")
            return wire.packet(kind, body, flags=2)
        case Kind.DISCONNECT:
            return wire.disconnect(0, found=found)
        case Kind.AUTH:
            return wire.auth(0x19, [(Prop.AUTH_METHOD, "m"), *found])
        case _:
            flags = 2 if kind is Kind.PUBREL else 0
            return wire.packet(kind, packet_id + b"\0" + wire.properties(found), flags=flags)


def logged_in() -> PacketReader:
    """Return the reader of a client that is logged in."""
    reader = PacketReader(4 * MIB, FILTERS_MAX, properties_max=PROPERTIES_MAX)
    reader.receive(wire.connect("c"))
    return reader


KINDS = [
    Kind.PUBLISH,
    Kind.PUBACK,
    Kind.PUBREC,
    Kind.PUBREL,
    Kind.PUBCOMP,
    Kind.SUBSCRIBE,
    Kind.UNSUBSCRIBE,
    Kind.DISCONNECT,
    Kind.AUTH,
]


@pytest.mark.parametrize("kind", KINDS)
def test_no_more_properties_are_decoded_than_are_taken(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = 0
    decode_text = primitives.decode_text

    def counted(data: bytes, at: int) -> tuple[str, int]:
        nonlocal decoded
        decoded += 1
        return decode_text(data, at)

    reader = logged_in()
    assert len(reader.receive(with_properties(kind, PROPERTIES_MAX))) == 1
    monkeypatch.setattr(properties, "decode_text", counted)
    assert reader.receive(with_properties(kind, 200_000)) == []
    assert isinstance(reader.error, MqttError)
    assert reader.error.reason_code is ReasonCode.QUOTA_EXCEEDED
    assert decoded <= 2 * (PROPERTIES_MAX + 2)


def test_no_more_subscription_identifiers_are_decoded_than_properties_are_taken() -> None:
    reader = logged_in()
    found = [(Prop.SUBSCRIPTION_ID, 1)] * 200_000
    assert reader.receive(wire.publish("t", b"x", found=found)) == []
    assert isinstance(reader.error, MqttError)
    assert reader.error.reason_code is ReasonCode.QUOTA_EXCEEDED


async def test_a_packet_with_more_properties_closes_the_connection(tmp_path: Path) -> None:
    async with running(tmp_path, mqtt={"packet_properties_max": PROPERTIES_MAX}) as live:
        client = await live.connected("c")
        client.send(wire.subscribe(1, [("t", 0)]))
        await client.receive(Kind.SUBACK)
        client.send(with_properties(Kind.PUBLISH, PROPERTIES_MAX))
        found = (await client.receive(Kind.PUBLISH)).properties
        assert list(found) == pairs(PROPERTIES_MAX)
        client.send(with_properties(Kind.PUBLISH, PROPERTIES_MAX + 1))
        assert await client.ended_with() == [(Kind.DISCONNECT, ReasonCode.QUOTA_EXCEEDED)]


# --- what one read brings


def tiny(count: int) -> bytes:
    """Return messages of which none goes with the one before it."""
    return b"".join(wire.publish("t", b"", retain=bool(n % 2)) for n in range(count))


def slices_of(data: bytes) -> list[int]:
    """Return the number of packets of each slice of one read."""
    reader = logged_in()
    found = [len(reader.receive(data))]
    while reader.is_cut:
        found.append(len(reader.receive(b"")))
    assert reader.error is None
    assert not reader.has_partial
    return found


@pytest.mark.parametrize("packets", [tiny(1_000), wire.PINGREQ * 1_000])
def test_a_read_is_decoded_in_slices_of_bounded_packets(packets: bytes) -> None:
    found = slices_of(packets)
    assert sum(found) == 1_000
    assert max(found) <= SLICE_WORK


def test_messages_of_different_topics_are_decoded_in_slices() -> None:
    storm = b"".join(wire.publish(f"{n % 10}", b"") for n in range(200_000))
    found = slices_of(storm)
    assert max(found) <= SLICE_WORK
    assert sum(found) == -(-200_000 // MIXED_TOPICS_MAX)


def test_properties_of_a_read_are_decoded_in_slices() -> None:
    pieces = [with_properties(Kind.PUBLISH, PROPERTIES_MAX), wire.PINGREQ]
    bytes_each = len(pieces[0])
    found = slices_of(b"".join(pieces * 200))
    assert sum(found) == 400
    assert max(found) <= 2 * (1 + SLICE_WORK * WORK_BYTES // bytes_each)


def test_filters_of_a_read_are_decoded_in_slices() -> None:
    one = wire.subscribe(1, [("a", 0)] * FILTERS_MAX)
    assert slices_of(one * 3) == [1, 1, 1]


async def test_what_one_read_brings_is_served_over_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[int] = []
    turn = 0

    class Counted(MqttConnection):
        def _serve(self, packets: Sequence[Packet]) -> None:
            served.append(turn)
            super()._serve(packets)

    def turned() -> None:
        nonlocal turn
        turn += 1
        asyncio.get_running_loop().call_soon(turned)

    monkeypatch.setattr(server, "MqttConnection", Counted)
    async with running(tmp_path) as live:
        client = await live.connected("c")
        served.clear()
        turned()
        client.send(tiny(10_000), wire.PINGREQ)
        await client.receive(Kind.PINGRESP)
    assert len(served) >= 10_000 // SLICE_WORK
    assert max(Counter(served).values()) <= 2  # what was kept, and the slice that is next
