"""What a client may send by MQTT after CONNACK: no packet, and no read, keeps the loop for long."""

from pathlib import Path

import pytest

from adapters.mqtt.codec import FILTERS_MAX
from adapters.mqtt.errors import MqttError, ReasonCode
from adapters.mqtt.packets import primitives, properties
from adapters.mqtt.packets.framing import PacketReader
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
