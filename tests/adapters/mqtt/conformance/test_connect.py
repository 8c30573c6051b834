"""Sections 3.1 and 3.2: CONNECT and CONNACK."""

import struct

import pytest

from tests.adapters.mqtt.conformance.conftest import Rig
from tests.adapters.mqtt.conformance.versions import ALL, BOTH
from tests.support import mqtt_wire as wire
from tests.support.mqtt_target import OWN, STRICT
from tests.support.mqtt_wire import V3_1_1, V5, Kind, Prop, WillMessage

MALFORMED = 0x81
PROTOCOL_ERROR = 0x82
UNSUPPORTED = 0x84
ID_CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@ALL
def test_connect_is_answered_with_one_connack_and_first(rig: Rig, version: int) -> None:
    """5.0: 3.1.4-5, 3.2.0-1, 3.2.0-2, 3.2.2-1, 3.2.2-8. 3.1.1: 3.1.4-4, 3.2.0-1."""
    client = rig.raw(version)
    client.send(wire.connect(rig.name(), version=version), wire.PINGREQ)

    assert client.receive(Kind.CONNACK).code == 0
    assert client.receive().kind is Kind.PINGRESP
    assert client.ping() == []


@BOTH
@pytest.mark.parametrize("first", [wire.PINGREQ, wire.publish("a", b"x"), b"\xff" * 20])
def test_a_first_packet_that_is_not_connect_closes(
    rig: Rig, version: int, first: bytes
) -> None:
    """5.0: 3.1.0-1, 3.14.0-1. 3.1.1: 3.1.0-1."""
    client = rig.raw(version)
    client.send(first)
    client.rejected(MALFORMED, PROTOCOL_ERROR)


@BOTH
def test_a_second_connect_closes(rig: Rig, version: int) -> None:
    """5.0: 3.1.0-2, 3.14.2-2, 4.13.1-1, 4.13.2-1. 3.1.1: 3.1.0-2."""
    client = rig.client("twice", version)
    client.send(wire.connect(rig.name("twice"), version=version))
    client.refused(PROTOCOL_ERROR)


@pytest.mark.parametrize("name", ["MQTX", "mqtt", "", "MQIsdp", "HTTP"])
@BOTH
def test_another_protocol_name_closes(rig: Rig, version: int, name: str) -> None:
    """5.0: 3.1.2-1. 3.1.1: 3.1.2-1."""
    client = rig.raw(version)
    data = wire.connect(rig.name(), version=version)
    head = wire.text(name) + data[8:]
    client.send(wire.packet(Kind.CONNECT, head))
    client.rejected(UNSUPPORTED, 1)


@pytest.mark.parametrize("level", [0, 2, 6, 127])
def test_another_protocol_level_is_refused(rig: Rig, level: int) -> None:
    """5.0: 3.1.2-2. 3.1.1: 3.1.2-2."""
    client = rig.raw(V3_1_1)
    client.send(wire.connect(rig.name(), version=level, name="MQTT"))

    came = client.until_closed()
    assert [found.kind for found in came] == [Kind.CONNACK]
    assert came[0].body[:2] in {b"\x00\x01", bytes([0, UNSUPPORTED])}


@BOTH
def test_the_reserved_connect_flag_closes(rig: Rig, version: int) -> None:
    """5.0: 3.1.2-3, 3.1.4-1. 3.1.1: 3.1.2-3, 3.1.4-1, 3.2.2-6."""
    client = rig.raw(version)
    client.send(wire.connect(rig.name(), version=version, extra_flags=1))
    client.rejected(MALFORMED)


@STRICT
@BOTH
@pytest.mark.parametrize("flags", [0x08, 0x10, 0x20], ids=["qos 1", "qos 2", "retain"])
def test_will_flags_without_a_will_close(rig: Rig, version: int, flags: int) -> None:
    """5.0: 3.1.2-11, 3.1.2-13. 3.1.1: 3.1.2-11, 3.1.2-13, 3.1.2-15."""
    client = rig.raw(version)
    client.send(wire.connect(rig.name(), version=version, extra_flags=flags))
    client.rejected(MALFORMED, PROTOCOL_ERROR)


@BOTH
def test_a_will_of_qos_3_closes(rig: Rig, version: int) -> None:
    """5.0: 3.1.2-12. 3.1.1: 3.1.2-14."""
    client = rig.raw(version)
    client.send(wire.connect(rig.name(), version=version, will=WillMessage("a", qos=3)))
    client.rejected(MALFORMED)


@BOTH
@pytest.mark.parametrize(
    "flags", [0x04, 0x80, 0xC0], ids=["will", "user name", "user name and password"]
)
def test_fields_that_the_flags_announce_must_be_there(
    rig: Rig, version: int, flags: int
) -> None:
    """5.0: 3.1.2-9, 3.1.2-17, 3.1.2-19, 3.1.3-1. 3.1.1: 3.1.2-9, 3.1.2-19, 3.1.2-21."""
    client = rig.raw(version)
    client.send(wire.connect(rig.name(), version=version, extra_flags=flags))
    client.rejected(MALFORMED, PROTOCOL_ERROR)


@STRICT
@BOTH
def test_fields_that_no_flag_announces_close(rig: Rig, version: int) -> None:
    """5.0: 3.1.2-16, 3.1.2-18. 3.1.1: 3.1.2-18, 3.1.2-20."""
    client = rig.raw(version)
    data = wire.connect(rig.name(), version=version)
    client.send(wire.packet(Kind.CONNECT, data[2:] + wire.text("surplus")))
    client.rejected(MALFORMED, PROTOCOL_ERROR)


@STRICT
def test_a_password_without_a_user_name_closes_in_3(rig: Rig) -> None:
    """3.1.1: 3.1.2-22."""
    client = rig.raw(V3_1_1)
    client.send(wire.connect(rig.name(), version=V3_1_1, password=b"secret"))
    client.rejected()


def test_a_password_without_a_user_name_is_allowed_in_5(rig: Rig) -> None:
    """5.0: 3.1.2-19."""
    client = rig.raw()
    client.send(wire.connect(rig.name(), password=b"secret"))
    answer = client.receive(Kind.CONNACK)
    assert answer.code in {0, 0x86, 0x87}


@BOTH
def test_a_connect_without_a_client_identifier_field_closes(rig: Rig, version: int) -> None:
    """5.0: 3.1.3-3, 3.1.4-1. 3.1.1: 3.1.3-3, 3.1.4-1."""
    client = rig.raw(version)
    body = wire.text("MQTT") + struct.pack(">BBH", version, 2, 0)
    client.send(wire.packet(Kind.CONNECT, body + (b"\0" if version == V5 else b"")))
    client.rejected(MALFORMED, PROTOCOL_ERROR, 0x85)


@ALL
@pytest.mark.parametrize("characters", [ID_CHARACTERS[at : at + 23] for at in (0, 23, 39)])
def test_client_identifiers_of_23_letters_and_digits_are_allowed(
    rig: Rig, version: int, characters: str
) -> None:
    """5.0: 3.1.3-5. 3.1.1: 3.1.3-5."""
    rig.raw(version).connect(characters)


@BOTH
def test_an_empty_client_identifier_gets_one_of_its_own(rig: Rig, version: int) -> None:
    """5.0: 3.1.3-6, 3.1.3-7, 3.2.2-16. 3.1.1: 3.1.3-6."""
    first, second = rig.raw(version), rig.raw(version)
    answers = [first.connect(""), second.connect("")]

    assert first.ping() == second.ping() == []
    if version == V5:
        given = [answer.value(Prop.ASSIGNED_CLIENT_ID) for answer in answers]
        assert all(given)
        assert given[0] != given[1]


def test_an_empty_client_identifier_with_a_session_is_rejected_in_3(rig: Rig) -> None:
    """3.1.1: 3.1.3-8, 3.1.3-9, 3.2.2-4, 3.2.2-5."""
    client = rig.raw(V3_1_1)
    client.connect("", clean=False, code=2)
    assert client.until_closed() == []


def test_an_assigned_identifier_can_be_used_to_resume(rig: Rig) -> None:
    """5.0: 3.1.3-7, 3.1.3-2."""
    first = rig.raw()
    given = first.connect("", found=[(Prop.SESSION_EXPIRY, 60)]).value(Prop.ASSIGNED_CLIENT_ID)
    assert isinstance(given, str)
    first.drop()

    assert rig.raw().connect(given, clean=False).session_present


@BOTH
def test_a_clean_start_discards_the_session(rig: Rig, version: int) -> None:
    """5.0: 3.1.2-4, 3.1.4-4, 3.2.2-2. 3.1.1: 3.1.2-6, 3.1.4-3, 3.2.2-1."""
    first = rig.resumed("s", version)
    first.subscribe((rig.topic(), 1))
    first.drop()

    again = rig.raw(version)
    assert not again.connect(rig.name("s"), clean=True).session_present
    again.subscribe((rig.topic("m"), 1))
    rig.client().publish(rig.topic(), b"to the old session", qos=1)
    assert rig.before_marker(again, rig.topic("m")) == []


@BOTH
def test_a_session_is_resumed(rig: Rig, version: int) -> None:
    """5.0: 3.1.2-5, 3.1.2-23, 3.1.3-2, 3.2.2-3. 3.1.1: 3.1.2-4, 3.1.3-2, 3.2.2-2, 3.1.2-5."""
    first = rig.resumed("s", version)
    first.subscribe((rig.topic(), 1))
    first.drop()
    rig.client().publish(rig.topic(), b"while it was away", qos=1)

    again = rig.raw(version)
    found = [(Prop.SESSION_EXPIRY, 60)]
    assert again.connect(rig.name("s"), clean=False, found=found).session_present
    assert again.messages(1)[0].payload == b"while it was away"


@BOTH
def test_without_a_session_a_new_one_is_made(rig: Rig, version: int) -> None:
    """5.0: 3.1.2-6, 3.2.2-3. 3.1.1: 3.1.2-4, 3.2.2-3."""
    assert not rig.raw(version).connect(rig.name("new"), clean=False).session_present


def test_a_clean_session_of_3_ends_with_its_connection(rig: Rig) -> None:
    """3.1.1: 3.1.2-6."""
    first = rig.client("s", V3_1_1)
    first.subscribe((rig.topic(), 1))
    first.drop()

    assert not rig.raw(V3_1_1).connect(rig.name("s"), clean=False).session_present


def test_a_session_without_expiry_ends_with_its_connection(rig: Rig) -> None:
    """5.0: 4.1.0-2."""
    rig.client("s", clean=False).drop()
    assert not rig.raw().connect(rig.name("s"), clean=False).session_present


def test_a_session_is_there_before_its_expiry_and_gone_after(rig: Rig) -> None:
    """5.0: 4.1.0-2, 3.1.2-23."""
    rig.client("s", clean=False, found=[(Prop.SESSION_EXPIRY, 60)]).drop()
    second = rig.raw()
    soon = [(Prop.SESSION_EXPIRY, 1)]
    assert second.connect(rig.name("s"), clean=False, found=soon).session_present
    watcher = rig.subscriber()
    will = WillMessage(rig.topic(), b"ended", properties=[(Prop.WILL_DELAY, 60)])
    second.send(wire.disconnect())
    second.until_closed()
    rig.client("w", found=[(Prop.SESSION_EXPIRY, 2)], will=will).drop()

    assert watcher.receive(Kind.PUBLISH).payload == b"ended"  # a second after the other
    assert not rig.raw().connect(rig.name("s"), clean=False).session_present


def test_an_expiry_in_disconnect_replaces_that_of_connect(rig: Rig) -> None:
    """5.0: 3.1.2-23."""
    first = rig.client("s", clean=False, found=[(Prop.SESSION_EXPIRY, 60)])
    first.send(wire.disconnect(found=[(Prop.SESSION_EXPIRY, 0)]))
    first.until_closed()

    assert not rig.raw().connect(rig.name("s"), clean=False).session_present


def test_an_expiry_in_disconnect_after_none_in_connect_closes(rig: Rig) -> None:
    """5.0: 4.13.1-1."""
    client = rig.client("s")
    client.send(wire.disconnect(found=[(Prop.SESSION_EXPIRY, 60)]))
    client.refused(PROTOCOL_ERROR)
    assert not rig.raw().connect(rig.name("s"), clean=False).session_present


@BOTH
def test_a_second_connection_of_a_client_ends_the_first(rig: Rig, version: int) -> None:
    """5.0: 3.1.4-3, 3.1.3-2. 3.1.1: 3.1.4-2, 3.1.3-2."""
    first = rig.client("same", version)
    second = rig.client("same", version)

    first.refused(0x8E)
    assert second.ping() == []


def test_nothing_is_processed_after_a_rejected_connect(rig: Rig) -> None:
    """5.0: 3.1.4-2, 3.1.4-6, 3.2.2-7. 3.1.1: 3.1.4-5."""
    subscriber = rig.subscriber(options=1)
    client = rig.raw(V3_1_1)
    client.send(
        wire.connect("", version=V3_1_1, clean=False),
        wire.publish(rig.topic(), b"stowaway", version=V3_1_1),
    )
    client.rejected(2)

    assert rig.before_marker(subscriber, rig.topic()) == []


@BOTH
def test_packets_right_behind_connect_are_processed(rig: Rig, version: int) -> None:
    """5.0: 3.1.4-5. 3.1.1: 3.1.4-4."""
    client = rig.raw(version)
    client.send(
        wire.connect(rig.name(), version=version),
        wire.subscribe(1, [(rig.topic(), 0)], version=version),
        wire.publish(rig.topic(), b"early", version=version),
    )
    kinds = [client.receive().kind for _ in range(3)]
    assert kinds == [Kind.CONNACK, Kind.SUBACK, Kind.PUBLISH]


BAD_PROPERTIES = {
    "receive maximum 0": [(Prop.RECEIVE_MAXIMUM, 0)],
    "maximum packet size 0": [(Prop.MAXIMUM_PACKET_SIZE, 0)],
    "request problem information 2": [(Prop.REQUEST_PROBLEM_INFO, 2)],
    "request response information 2": [(Prop.REQUEST_RESPONSE_INFO, 2)],
    "session expiry twice": [(Prop.SESSION_EXPIRY, 1), (Prop.SESSION_EXPIRY, 1)],
    "not for connect": [(Prop.TOPIC_ALIAS, 1)],
}


@pytest.mark.parametrize("found", BAD_PROPERTIES.values(), ids=BAD_PROPERTIES)
def test_properties_of_connect_that_break_a_rule_close(
    rig: Rig, found: wire.Properties
) -> None:
    """5.0: 3.1.4-1, 3.1.4-2, 3.14.0-1."""
    client = rig.raw()
    client.send(wire.connect(rig.name(), found=found))
    client.rejected(MALFORMED, PROTOCOL_ERROR)


@STRICT
@pytest.mark.parametrize("one", [(Prop.WILL_DELAY, 1), (Prop.AUTH_DATA, b"x")])
def test_what_is_a_wills_or_needs_a_method_closes(
    rig: Rig, one: tuple[int, wire.Value]
) -> None:
    """5.0: 3.1.4-1."""
    client = rig.raw()
    client.send(wire.connect(rig.name(), found=[one]))
    client.rejected(MALFORMED, PROTOCOL_ERROR)


@pytest.mark.parametrize("asked", [(), ((Prop.REQUEST_RESPONSE_INFO, 0),)])
def test_response_information_comes_only_when_asked_for(
    rig: Rig, asked: wire.Properties
) -> None:
    """5.0: 3.1.2-28."""
    assert rig.raw().connect(rig.name(), found=asked).values(Prop.RESPONSE_INFO) == []


@OWN
def test_connack_does_not_exceed_the_maximum_packet_size(rig: Rig) -> None:
    """5.0: 3.1.2-24, 3.2.2-19, 3.2.2-20."""
    client = rig.raw()
    client.send(wire.connect("", found=[(Prop.MAXIMUM_PACKET_SIZE, 10)]))
    assert all(found.size_bytes <= 10 for found in client.until_closed())


@BOTH
def test_a_client_that_is_silent_for_one_and_a_half_keep_alives_is_closed(
    rig: Rig, version: int
) -> None:
    """5.0: 3.1.2-22, 3.2.2-22. 3.1.1: 3.1.2-24."""
    watcher = rig.subscriber()
    will = WillMessage(rig.topic(), b"silent")
    client = rig.client(version=version, keep_alive_s=1, will=will)

    assert watcher.receive(Kind.PUBLISH, within_s=15).payload == b"silent"
    client.refused(0x8D)


@BOTH
def test_keep_alive_zero_never_closes_and_pings_keep_alive(rig: Rig, version: int) -> None:
    """5.0: 3.1.2-22, 3.12.4-1. 3.1.1: 3.1.2-24, 3.12.4-1."""
    forever = rig.client(version=version, keep_alive_s=0)
    watcher = rig.subscriber()
    will = WillMessage(rig.topic(), b"over", properties=[(Prop.WILL_DELAY, 2)])
    rig.client(will=will, found=[(Prop.SESSION_EXPIRY, 60)]).drop()

    assert watcher.receive(Kind.PUBLISH).payload == b"over"  # two seconds later
    assert forever.ping() == []
