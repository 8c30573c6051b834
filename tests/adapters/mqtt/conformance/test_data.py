"""Chapters 1 and 2: strings, integers, flags, packet identifiers, property rules."""

import struct

import pytest

from tests.adapters.mqtt.conformance.conftest import Rig
from tests.adapters.mqtt.conformance.versions import BOTH
from tests.support import mqtt_wire as wire
from tests.support.mqtt_target import STRICT
from tests.support.mqtt_wire import V3_1_1, V5, Kind, Prop

MALFORMED = 0x81
PROTOCOL_ERROR = 0x82
ILL_FORMED = {
    "alone": b"a\xff",
    "surrogate": b"a\xed\xa0\x80",
    "overlong": b"a\xc1\xa1",
    "cut": b"a\xe2\x82",
}
NULL = b"a\x00b"
BOM = "\ufeff"


@BOTH
@pytest.mark.parametrize("data", ILL_FORMED.values(), ids=ILL_FORMED)
def test_ill_formed_utf8_in_a_topic_name_closes(rig: Rig, version: int, data: bytes) -> None:
    """5.0: 1.5.4-1, 3.3.2-1. 3.1.1: 1.4.0-1, 3.3.2-1."""
    client = rig.client(version=version)
    client.send(wire.publish(data, b"x", version=version))
    client.refused(MALFORMED, 0x90)


@BOTH
@pytest.mark.parametrize("data", ILL_FORMED.values(), ids=ILL_FORMED)
def test_ill_formed_utf8_in_a_filter_closes(rig: Rig, version: int, data: bytes) -> None:
    """5.0: 1.5.4-1, 3.8.3-1. 3.1.1: 1.4.0-1, 3.8.3-1."""
    client = rig.client(version=version)
    client.send(wire.subscribe(1, [(data, 0)], version=version))
    client.refused(MALFORMED)


@BOTH
def test_ill_formed_utf8_in_unsubscribe_closes(rig: Rig, version: int) -> None:
    """5.0: 1.5.4-1, 3.10.3-1. 3.1.1: 1.4.0-1, 3.10.3-1."""
    client = rig.client(version=version)
    client.send(wire.unsubscribe(1, [b"a\xff"], version=version))
    client.refused(MALFORMED)


@BOTH
@pytest.mark.parametrize("data", [b"a\xff", b"a\xed\xa0\x80"], ids=["alone", "surrogate"])
def test_ill_formed_utf8_in_a_client_identifier_closes(
    rig: Rig, version: int, data: bytes
) -> None:
    """5.0: 1.5.4-1, 3.1.3-4, 3.1.3-8. 3.1.1: 1.4.0-1, 3.1.3-4."""
    client = rig.raw(version)
    client.send(wire.connect(data, version=version))
    client.rejected(MALFORMED, 0x85, 2)


@BOTH
def test_ill_formed_utf8_in_a_user_name_closes(rig: Rig, version: int) -> None:
    """5.0: 1.5.4-1, 3.1.3-12. 3.1.1: 1.4.0-1, 3.1.3-11."""
    client = rig.raw(version)
    client.send(wire.connect(rig.name(), version=version, username=b"\xc3\x28", password=b""))
    client.rejected(MALFORMED, 0x86)


@BOTH
def test_ill_formed_utf8_in_a_will_topic_closes(rig: Rig, version: int) -> None:
    """5.0: 1.5.4-1, 3.1.3-11. 3.1.1: 1.4.0-1, 3.1.3-10."""
    client = rig.raw(version)
    will = wire.WillMessage(topic=b"a\xff")
    client.send(wire.connect(rig.name(), version=version, will=will))
    client.rejected(MALFORMED, 0x90)


@pytest.mark.parametrize("data", [*ILL_FORMED.values(), NULL], ids=[*ILL_FORMED, "null"])
@pytest.mark.parametrize("where", ["name", "value"])
def test_ill_formed_utf8_in_a_user_property_closes(rig: Rig, data: bytes, where: str) -> None:
    """5.0: 1.5.4-1, 1.5.4-2, 1.5.7-1."""
    name, value = (data, b"v") if where == "name" else (b"n", data)
    one = bytes([Prop.USER]) + wire.text(name) + wire.text(value)
    client = rig.client()
    client.send(wire.packet(Kind.PUBLISH, wire.text("a") + wire.varint(len(one)) + one))
    client.refused(MALFORMED)


@pytest.mark.parametrize("number", [Prop.CONTENT_TYPE, Prop.RESPONSE_TOPIC])
def test_ill_formed_utf8_in_a_text_property_closes(rig: Rig, number: int) -> None:
    """5.0: 3.3.2-13, 3.3.2-19."""
    client = rig.client()
    client.send(wire.publish("a", found=[(number, b"a\xff")]))
    client.refused(MALFORMED)


@BOTH
def test_a_null_character_in_a_topic_name_closes(rig: Rig, version: int) -> None:
    """5.0: 1.5.4-2, 4.7.3-2. 3.1.1: 1.4.0-2, 4.7.3-2."""
    client = rig.client(version=version)
    client.send(wire.publish(NULL, version=version))
    client.refused(MALFORMED, 0x90)


@BOTH
def test_a_null_character_in_a_filter_closes(rig: Rig, version: int) -> None:
    """5.0: 1.5.4-2, 4.7.3-2. 3.1.1: 1.4.0-2, 4.7.3-2."""
    client = rig.client(version=version)
    client.send(wire.subscribe(1, [(NULL, 0)], version=version))
    client.refused(MALFORMED, 0x8F)


@BOTH
def test_a_byte_order_mark_is_a_character_like_any_other(rig: Rig, version: int) -> None:
    """5.0: 1.5.4-3, 4.7.3-4. 3.1.1: 1.4.0-3, 4.7.3-4."""
    subscriber = rig.client(version=version)
    subscriber.subscribe((BOM + rig.stem, 1), (rig.stem, 1))
    rig.client(version=version).publish(BOM + rig.stem, b"marked", qos=1)

    assert rig.before_marker(subscriber, rig.stem)[0].topic == BOM + rig.stem


@BOTH
def test_topic_names_are_not_normalized(rig: Rig, version: int) -> None:
    """5.0: 4.7.3-4. 3.1.1: 4.7.3-4."""
    composed, combined = rig.topic("\u00c5"), rig.topic("A\u030a")
    subscriber = rig.client(version=version)
    subscriber.subscribe((composed, 1), (rig.topic("m"), 1))
    rig.client(version=version).publish(combined, b"other", qos=1)

    assert rig.before_marker(subscriber, rig.topic("m")) == []


@STRICT
def test_a_packet_length_longer_than_needed_closes(rig: Rig) -> None:
    """5.0: 1.5.5-1."""
    client = rig.client()
    client.send(b"\xc0\x80\x00")
    client.refused(MALFORMED)


@BOTH
def test_a_packet_length_of_five_bytes_closes(rig: Rig, version: int) -> None:
    """5.0: 1.5.5-1, 4.13.1-1. 3.1.1: 4.8.0-1."""
    client = rig.client(version=version)
    client.send(b"\x30\xff\xff\xff\xff\x7f")
    client.refused(MALFORMED)


@STRICT
def test_a_property_length_longer_than_needed_closes(rig: Rig) -> None:
    """5.0: 1.5.5-1."""
    client = rig.client()
    client.send(wire.packet(Kind.PUBLISH, wire.text("a") + b"\x80\x00x"))
    client.refused(MALFORMED)


FLAGGED = {
    "PUBACK": wire.packet(Kind.PUBACK, b"\0\1", flags=1),
    "PUBREC": wire.packet(Kind.PUBREC, b"\0\1", flags=2),
    "PUBCOMP": wire.packet(Kind.PUBCOMP, b"\0\1", flags=8),
    "PINGREQ": wire.packet(Kind.PINGREQ, flags=4),
}


@STRICT
@BOTH
@pytest.mark.parametrize("data", FLAGGED.values(), ids=FLAGGED)
def test_reserved_flags_close(rig: Rig, version: int, data: bytes) -> None:
    """5.0: 2.1.3-1. 3.1.1: 2.2.2-1, 2.2.2-2."""
    client = rig.client(version=version)
    client.send(data)
    client.refused(MALFORMED)


@BOTH
@pytest.mark.parametrize(("data", "code"), [(b"\x00\x00", 0), (b"\xf0\x00", 0)])
def test_a_packet_type_that_is_reserved_closes(
    rig: Rig, version: int, data: bytes, code: int
) -> None:
    """5.0: 4.13.1-1. 3.1.1: 4.8.0-1."""
    client = rig.client(version=version)
    client.send(data)
    client.refused(MALFORMED, PROTOCOL_ERROR, code)


@STRICT
@BOTH
@pytest.mark.parametrize("kind", [Kind.CONNACK, Kind.SUBACK, Kind.UNSUBACK, Kind.PINGRESP])
def test_a_packet_that_only_a_server_sends_closes(rig: Rig, version: int, kind: Kind) -> None:
    """5.0: 4.13.1-1. 3.1.1: 4.8.0-1."""
    body = {Kind.PINGRESP: b"", Kind.CONNACK: b"\0\0"}.get(kind, b"\0\1\0\0")
    client = rig.client(version=version)
    client.send(wire.packet(kind, body))
    client.refused(MALFORMED, PROTOCOL_ERROR)


@BOTH
@pytest.mark.parametrize("qos", [1, 2])
def test_a_publish_with_packet_identifier_zero_closes(rig: Rig, version: int, qos: int) -> None:
    """5.0: 2.2.1-3. 3.1.1: 2.3.1-1."""
    client = rig.client(version=version)
    client.send(wire.publish(rig.topic(), qos=qos, packet_id=0, version=version))
    client.refused(MALFORMED, PROTOCOL_ERROR)


@BOTH
@pytest.mark.parametrize("kind", ["subscribe", "unsubscribe"])
def test_subscribing_with_packet_identifier_zero_closes(
    rig: Rig, version: int, kind: str
) -> None:
    """5.0: 2.2.1-3. 3.1.1: 2.3.1-1."""
    client = rig.client(version=version)
    if kind == "subscribe":
        client.send(wire.subscribe(0, [("a", 0)], version=version))
    else:
        client.send(wire.unsubscribe(0, ["a"], version=version))
    client.refused(MALFORMED, PROTOCOL_ERROR)


@BOTH
def test_the_server_gives_each_message_an_unused_nonzero_identifier(
    rig: Rig, version: int
) -> None:
    """5.0: 2.2.1-4, 4.3.2-1, 4.3.3-1. 3.1.1: 2.3.1-1, 2.3.1-4, 4.3.2-1, 4.3.3-1."""
    subscriber = rig.subscriber(options=2, version=version)
    publisher = rig.client(version=version)
    for n in range(10):
        publisher.publish(rig.topic(), b"%d" % n, qos=1 + n % 2)

    came = subscriber.messages(10, accept=False)
    ids = [message.packet_id for message in came]
    assert 0 not in ids
    assert len(set(ids)) == len(ids)


def test_a_message_without_properties_says_so_with_length_zero(rig: Rig) -> None:
    """5.0: 2.2.2-1, 2.2.1-2."""
    subscriber = rig.subscriber(options=0)
    rig.client().publish(rig.topic(), b"\x00", qos=1)

    message = subscriber.receive(Kind.PUBLISH)
    assert message.body == wire.text(rig.topic()) + b"\0" + b"\x00"


TWICE = {
    "payload format": (Prop.PAYLOAD_FORMAT, 1),
    "expiry": (Prop.MESSAGE_EXPIRY, 5),
    "content type": (Prop.CONTENT_TYPE, "a"),
    "response topic": (Prop.RESPONSE_TOPIC, "a"),
    "correlation": (Prop.CORRELATION_DATA, b"a"),
    "alias": (Prop.TOPIC_ALIAS, 1),
}


@pytest.mark.parametrize("one", TWICE.values(), ids=TWICE)
def test_a_property_that_may_come_once_closes_when_it_comes_twice(
    rig: Rig, one: tuple[int, wire.Value]
) -> None:
    """5.0: 4.13.1-1."""
    client = rig.client()
    client.send(wire.publish(rig.topic(), found=[one, one]))
    client.refused(PROTOCOL_ERROR, MALFORMED)


@pytest.mark.parametrize("number", [Prop.SESSION_EXPIRY, Prop.REASON_STRING, 0x7E, 0])
def test_a_property_that_is_not_for_its_packet_closes(rig: Rig, number: int) -> None:
    """5.0: 4.13.1-1."""
    value: wire.Value = "x" if number == Prop.REASON_STRING else 1
    client = rig.client()
    client.send(wire.publish(rig.topic(), found=[(number, value)]))
    client.refused(MALFORMED, PROTOCOL_ERROR)


@pytest.mark.parametrize("length", [3, 60])
def test_properties_that_do_not_fill_their_length_close(rig: Rig, length: int) -> None:
    """5.0: 4.13.1-1."""
    body = wire.text("a") + bytes([length, Prop.MESSAGE_EXPIRY]) + struct.pack(">I", 9)
    client = rig.client()
    client.send(wire.packet(Kind.PUBLISH, body))
    client.refused(MALFORMED)


@BOTH
def test_a_body_that_ends_too_early_closes(rig: Rig, version: int) -> None:
    """5.0: 4.13.1-1. 3.1.1: 4.8.0-1."""
    client = rig.client(version=version)
    client.send(wire.packet(Kind.PUBLISH, b"\0\x09a", flags=2))
    client.refused(MALFORMED)


@pytest.mark.parametrize("version", [V3_1_1, V5])
def test_packets_may_come_in_any_cut(rig: Rig, version: int) -> None:
    """5.0: 4.2-1. 3.1.1: 7.1.1-1."""
    subscriber = rig.subscriber(version=version)
    client = rig.raw(version)
    data = wire.connect(rig.name("cut"), version=version)
    data += wire.publish(rig.topic(), b"cut", qos=1, version=version) + wire.PINGREQ
    for at in range(len(data)):
        client.send(data[at : at + 1])

    kinds = [client.receive().kind for _ in range(3)]
    assert sorted(kinds) == [Kind.CONNACK, Kind.PUBACK, Kind.PINGRESP]
    assert subscriber.messages(1)[0].payload == b"cut"
