"""Sections 3.8 to 3.12 and 3.14: subscribing, PINGREQ, DISCONNECT."""

import struct

import pytest

from tests.adapters.mqtt.conformance.conftest import Rig
from tests.adapters.mqtt.conformance.versions import ALL, BOTH
from tests.support import mqtt_wire as wire
from tests.support.mqtt_raw import RawClient, payloads
from tests.support.mqtt_target import OWN, STRICT
from tests.support.mqtt_wire import V3_1_1, V5, Kind, Prop, Received

MALFORMED = 0x81
PROTOCOL_ERROR = 0x82
NO_LOCAL = 0x04


@ALL
def test_subscribe_is_answered_for_each_filter_in_order(rig: Rig, version: int) -> None:
    """5.0: 2.2.1-6, 3.8.4-1, 3.8.4-2, 3.8.4-5, 3.8.4-6, 3.8.4-7, 3.9.3-1, 3.9.3-2.

    3.1.1: 2.3.1-7, 3.8.4-1, 3.8.4-2, 3.8.4-4, 3.8.4-5, 3.9.3-1, 3.9.3-2.
    """
    client = rig.client(version=version)
    filters = [(rig.topic(str(n)), n % 3) for n in range(9)]
    client.send(wire.subscribe(0xABCD, filters, version=version))

    answer = client.receive(Kind.SUBACK)
    assert answer.packet_id == 0xABCD
    assert answer.codes == [options for _, options in filters]


@BOTH
@pytest.mark.parametrize("flags", [0, 1, 3, 6, 10])
@pytest.mark.parametrize("kind", [Kind.SUBSCRIBE, Kind.UNSUBSCRIBE])
def test_wrong_flags_of_subscribing_close(
    rig: Rig, version: int, kind: Kind, flags: int
) -> None:
    """5.0: 2.1.3-1, 3.8.1-1, 3.10.1-1. 3.1.1: 2.2.2-2, 3.8.1-1, 3.10.1-1."""
    body = b"\0\1" + (b"\0" if version == V5 else b"") + b"\0\1a"
    body += b"\0" if kind is Kind.SUBSCRIBE else b""
    client = rig.client(version=version)
    client.send(wire.packet(kind, body, flags=flags))
    client.refused(MALFORMED)


@BOTH
def test_subscribe_without_a_filter_closes(rig: Rig, version: int) -> None:
    """5.0: 3.8.3-2. 3.1.1: 3.8.3-3."""
    client = rig.client(version=version)
    client.send(wire.subscribe(1, [], version=version))
    client.refused(PROTOCOL_ERROR, MALFORMED)


@BOTH
def test_unsubscribe_without_a_filter_closes(rig: Rig, version: int) -> None:
    """5.0: 3.10.3-2. 3.1.1: 3.10.3-2."""
    client = rig.client(version=version)
    client.send(wire.unsubscribe(1, [], version=version))
    client.refused(PROTOCOL_ERROR, MALFORMED)


@BOTH
@pytest.mark.parametrize("options", [0x03, 0x40, 0x80, 0xC1])
def test_reserved_bits_of_the_options_close(rig: Rig, version: int, options: int) -> None:
    """5.0: 3.8.3-5. 3.1.1: 3.8.3-4."""
    client = rig.client(version=version)
    client.send(wire.subscribe(1, [(rig.topic(), options)], version=version))
    client.refused(MALFORMED, PROTOCOL_ERROR)


BAD_FILTERS = ["", "a/#/b", "a#", "a/b#", "#/a", "a+", "a/+b", "+a/b", "a/b+/c", "##", "a/++"]


@BOTH
@pytest.mark.parametrize("topic_filter", BAD_FILTERS)
def test_a_filter_against_the_rules_is_refused(
    rig: Rig, version: int, topic_filter: str
) -> None:
    """5.0: 4.7.1-1, 4.7.1-2, 4.7.3-1. 3.1.1: 4.7.1-2, 4.7.1-3, 4.7.3-1."""
    client = rig.client(version=version)
    client.send(wire.subscribe(1, [(topic_filter, 0)], version=version), wire.PINGREQ)
    came = client.until_closed() if client.version == V3_1_1 else _suback_or_end(client)
    assert all(code >= 0x80 for found in came for code in found.codes), came


def _suback_or_end(client: RawClient) -> list[wire.Received]:
    """Take SUBACK with an error, or DISCONNECT and the end: 5.0 allows both."""
    first = client.receive()
    if first.kind is Kind.SUBACK:
        assert first.codes == [0x8F]
        return [first]
    assert first.kind is Kind.DISCONNECT
    assert client.until_closed() == []
    return []


MATCHING = {
    "#": ["a", "a/b", "a/b/c", "/", "a/"],
    "a/#": ["a", "a/b", "a/b/c", "a/"],
    "a/b/#": ["a/b", "a/b/c"],
    "+": ["a"],
    "+/b": ["a/b"],
    "a/+": ["a/b", "a/"],
    "a/+/c": ["a/b/c"],
    "+/+": ["a/b", "/", "a/"],
    "/+": ["/"],
    "a/b": ["a/b"],
    "A/b": [],
    "a/b/": [],
    "+/+/#": ["a/b", "a/b/c", "/", "a/"],
}


@BOTH
@pytest.mark.parametrize("levels", MATCHING)
def test_a_filter_matches_what_it_should(rig: Rig, version: int, levels: str) -> None:
    """5.0: 4.7.1-1, 4.7.1-2, 3.3.2-3. 3.1.1: 4.7.1-2, 4.7.1-3, 3.3.2-3."""
    subscriber = rig.client(version=version)
    subscriber.subscribe((rig.topic(levels), 1))
    marker = f"{rig.stem}-marker"
    subscriber.subscribe((marker, 1))
    publisher = rig.client(version=version)
    for name in ("a", "a/b", "a/b/c", "/", "a/"):
        publisher.publish(rig.topic(name), name.encode(), qos=1)

    came = payloads(rig.before_marker(subscriber, marker))
    assert came == [name.encode() for name in MATCHING[levels]]


@BOTH
@pytest.mark.parametrize("topic_filter", ["#", "+/+", "+/#", "+"])
def test_a_wildcard_at_the_beginning_does_not_match_dollar_topics(
    rig: Rig, version: int, topic_filter: str
) -> None:
    """5.0: 4.7.2-1. 3.1.1: 4.7.2-1."""
    subscriber = rig.client(version=version)
    subscriber.send(wire.subscribe(1, [(topic_filter, 1)], version=version))
    marker = rig.stem if topic_filter in {"+", "#", "+/#"} else rig.topic("m")
    rig.client(version=version).publish(marker, b"marker", qos=1)
    reader = rig.client(version=version)
    reader.subscribe(("$SYS/#", 0))
    assert reader.receive(Kind.PUBLISH).topic.startswith("$SYS/")

    while True:  # retained messages of other tests may come, none of $SYS
        found = subscriber.receive()
        if found.kind is Kind.PUBLISH:
            assert not found.topic.startswith("$")
            subscriber.accept(found)
            if found.payload == b"marker" and found.topic == marker:
                break


@BOTH
def test_topic_names_and_filters_of_65535_bytes_or_a_refusal(rig: Rig, version: int) -> None:
    """5.0: 4.7.3-3. 3.1.1: 4.7.3-3."""
    long = rig.stem + "x" * (65_535 - len(rig.stem))
    subscriber = rig.client(version=version)
    assert subscriber.subscribe((long, 1)) == [1]
    rig.client(version=version).publish(long, b"long", qos=1)

    assert subscriber.messages(1)[0].topic == long


@BOTH
def test_the_same_filter_replaces_the_subscription(rig: Rig, version: int) -> None:
    """5.0: 3.8.4-3. 3.1.1: 3.8.4-3."""
    subscriber = rig.client(version=version)
    assert subscriber.subscribe((rig.topic(), 2)) == [2]
    assert subscriber.subscribe((rig.topic(), 0)) == [0]
    rig.client(version=version).publish(rig.topic(), b"x", qos=2)

    [message] = subscriber.messages(1)
    assert message.qos == 0
    assert subscriber.ping() == []


@BOTH
def test_a_packet_with_a_filter_twice_counts_as_two_subscriptions(
    rig: Rig, version: int
) -> None:
    """5.0: 3.8.4-5. 3.1.1: 3.8.4-4."""
    subscriber = rig.client(version=version)
    assert subscriber.subscribe((rig.topic(), 0), (rig.topic(), 1)) == [0, 1]
    rig.client(version=version).publish(rig.topic(), b"x", qos=1)

    assert [message.qos for message in rig.before_marker(subscriber, rig.topic())] == [1]


def test_overlapping_subscriptions_of_5_deliver_with_all_identifiers(rig: Rig) -> None:
    """5.0: 3.3.4-2, 3.3.4-3, 3.3.4-4, 3.3.4-5."""
    subscriber = rig.client()
    filters = {"a/b": (0, 1), "a/+": (2, 2), "a/#": (1, 268_435_455), "+/b": (0, 0)}
    for levels, (options, number) in filters.items():
        found = [(Prop.SUBSCRIPTION_ID, number)] if number else []
        subscriber.subscribe((rig.topic(levels), options), found=found)
    marker = f"{rig.stem}-marker"
    subscriber.subscribe((marker, 1))
    rig.client().publish(rig.topic("a/b"), b"x", qos=2)

    came = rig.before_marker(subscriber, marker)
    numbers = [number for message in came for number in message.values(Prop.SUBSCRIPTION_ID)]
    assert sorted(str(number) for number in numbers) == ["1", "2", "268435455"]
    assert max(message.qos for message in came) == 2


@STRICT
@BOTH
def test_overlapping_subscriptions_deliver_once_with_the_highest_qos(
    rig: Rig, version: int
) -> None:
    """5.0: 3.3.4-2. 3.1.1: 3.3.5-1."""
    subscriber = rig.client(version=version)
    subscriber.subscribe((rig.topic("#"), 0), (rig.topic("t"), 1), (rig.topic("+"), 2))
    rig.client(version=version).publish(rig.topic(), b"x", qos=2)

    assert [message.qos for message in rig.before_marker(subscriber, rig.topic())] == [2]


def test_the_subscription_identifier_comes_with_its_messages(rig: Rig) -> None:
    """5.0: 3.3.4-3."""
    subscriber = rig.client()
    subscriber.subscribe((rig.topic(), 1), found=[(Prop.SUBSCRIPTION_ID, 7)])
    rig.client().publish(rig.topic(), b"x", qos=1)
    assert subscriber.messages(1)[0].values(Prop.SUBSCRIPTION_ID) == [7]
    subscriber.subscribe((rig.topic(), 1))
    rig.client().publish(rig.topic(), b"x", qos=1)

    assert subscriber.messages(1)[0].values(Prop.SUBSCRIPTION_ID) == []


@pytest.mark.parametrize("data", [b"\x0b\x00", b"\x0b\x01\x0b\x02"], ids=["zero", "two"])
def test_a_subscription_identifier_against_the_rules_closes(rig: Rig, data: bytes) -> None:
    """5.0: 4.13.1-1."""
    body = b"\0\1" + wire.varint(len(data)) + data + wire.text("a") + b"\0"
    client = rig.client()
    client.send(wire.packet(Kind.SUBSCRIBE, body, flags=2))
    client.refused(PROTOCOL_ERROR, MALFORMED)


def test_no_local_keeps_ones_own_messages_away(rig: Rig) -> None:
    """5.0: 3.8.3-3."""
    client = rig.client()
    client.subscribe((rig.topic(), 1 | NO_LOCAL), (rig.topic("own"), 1))
    client.publish(rig.topic(), b"own", qos=1)
    rig.client().publish(rig.topic(), b"other's", qos=1)

    assert payloads(rig.before_marker(client, rig.topic())) == [b"other's"]


def test_no_local_is_about_the_client_not_the_connection(rig: Rig) -> None:
    """5.0: 3.8.3-3."""
    first = rig.resumed("s")
    first.subscribe((rig.topic(), 1 | NO_LOCAL))
    first.publish(rig.topic(), b"own", qos=1)
    first.drop()
    again = rig.resumed("s")
    again.publish(rig.topic(), b"own", qos=1)

    assert rig.before_marker(again, rig.topic()) == []


@BOTH
def test_unsubscribe_is_answered_and_ends_delivery(rig: Rig, version: int) -> None:
    """5.0: 2.2.1-6, 3.10.4-1, 3.10.4-2, 3.10.4-4, 3.10.4-5, 3.10.4-6, 3.11.3-1, 3.11.3-2.

    3.1.1: 2.3.1-7, 3.10.4-1, 3.10.4-2, 3.10.4-4, 3.10.4-5, 3.10.4-6.
    """
    client = rig.client(version=version)
    filters = [rig.topic("a"), rig.topic("b/+"), rig.topic("never"), rig.topic("stays")]
    client.subscribe(*((name, 1) for name in (filters[0], filters[1], filters[3])))
    client.send(wire.unsubscribe(0x1234, filters[:3], version=version))

    answer = client.receive(Kind.UNSUBACK)
    assert answer.packet_id == 0x1234
    assert answer.codes == ([0, 0, 0x11] if version == V5 else [])
    for name in ("a", "b/c", "never"):
        rig.client(version=version).publish(rig.topic(name), b"x", qos=1)
    assert rig.before_marker(client, rig.topic("stays")) == []


@BOTH
def test_unsubscribing_compares_filters_by_character(rig: Rig, version: int) -> None:
    """5.0: 3.10.4-1. 3.1.1: 3.10.4-1."""
    client = rig.client(version=version)
    client.subscribe((rig.topic("a/b"), 1))
    client.send(wire.unsubscribe(1, [rig.topic("a/+"), rig.topic("#")], version=version))
    client.receive(Kind.UNSUBACK)
    rig.client(version=version).publish(rig.topic("a/b"), b"still", qos=1)

    assert client.messages(1)[0].payload == b"still"


@BOTH
def test_what_was_sent_is_completed_after_unsubscribe(rig: Rig, version: int) -> None:
    """5.0: 3.10.4-3. 3.1.1: 3.10.4-3."""
    client = rig.subscriber(options=2, version=version)
    rig.client(version=version).publish(rig.topic(), b"x", qos=2)
    [message] = client.messages(1, accept=False)
    client.send(wire.unsubscribe(9, [rig.topic()], version=version))
    client.receive(Kind.UNSUBACK)
    client.send(wire.ack(Kind.PUBREC, message.packet_id))

    assert client.receive(Kind.PUBREL).packet_id == message.packet_id


@pytest.mark.parametrize("qos", [1, 2])
@BOTH
def test_replacing_a_subscription_loses_nothing(rig: Rig, version: int, qos: int) -> None:
    """5.0: 3.8.4-4. 3.1.1: 3.8.4-3."""
    away = rig.resumed("s", version)
    away.subscribe((rig.topic(), qos))
    away.drop()
    rig.client(version=version).publish(rig.topic(), b"x", qos=qos)
    back = rig.resumed("s", version)
    back.subscribe_past_messages((rig.topic(), 0))

    [message] = back.messages(1)
    assert (message.payload, message.qos) == (b"x", qos)


def behind_its_window(rig: Rig) -> tuple[RawClient, RawClient, Received]:
    """Return a subscriber that holds the first of three messages back, its publisher, and that."""
    client = rig.client(found=[(Prop.RECEIVE_MAXIMUM, 1)])
    client.subscribe((rig.topic(), 1))
    publisher = rig.client()
    for payload in (b"1", b"2", b"3"):
        publisher.publish(rig.topic(), payload, qos=1)
    [first] = client.messages(1, accept=False)
    return client, publisher, first


@pytest.mark.parametrize("options", [0, 1])
def test_replacing_a_subscription_loses_nothing_behind_the_window(
    rig: Rig, options: int
) -> None:
    """5.0: 3.8.4-4."""
    client, _, first = behind_its_window(rig)
    found = [(Prop.SUBSCRIPTION_ID, 5)]
    client.send(wire.subscribe(9, [(rig.topic(), options)], found=found))
    client.receive(Kind.SUBACK)
    client.send(wire.ack(Kind.PUBACK, first.packet_id))

    assert [(m.payload, m.qos) for m in client.messages(2)] == [(b"2", 1), (b"3", 1)]


@OWN
def test_what_was_matched_comes_after_unsubscribe(rig: Rig) -> None:
    """Section 3.10.4 allows it, and Mosquitto does the same."""
    client, publisher, first = behind_its_window(rig)
    client.send(wire.unsubscribe(9, [rig.topic()]))
    client.receive(Kind.UNSUBACK)
    publisher.publish(rig.topic(), b"new", qos=1)
    client.send(wire.ack(Kind.PUBACK, first.packet_id))

    assert payloads(client.messages(2)) == [b"2", b"3"]
    assert client.ping() == []


@ALL
def test_pingreq_is_answered(rig: Rig, version: int) -> None:
    """5.0: 3.12.4-1. 3.1.1: 3.12.4-1."""
    client = rig.client(version=version)
    client.send(wire.PINGREQ * 3)
    for _ in range(3):
        client.receive(Kind.PINGRESP)


@STRICT
@BOTH
def test_reserved_flags_of_disconnect_close_and_publish_the_will(
    rig: Rig, version: int
) -> None:
    """5.0: 3.14.1-1. 3.1.1: 3.14.1-1."""
    watcher = rig.subscriber()
    will = wire.WillMessage(rig.topic(), b"gone")
    client = rig.client(version=version, will=will)
    client.send(wire.packet(Kind.DISCONNECT, flags=1))

    assert watcher.messages(1)[0].payload == b"gone"
    client.refused(MALFORMED)


@BOTH
def test_disconnect_is_followed_by_the_end_and_nothing_else(rig: Rig, version: int) -> None:
    """5.0: 3.14.4-1, 3.14.4-2. 3.1.1: 4.8.0-1."""
    subscriber = rig.subscriber(options=1)
    client = rig.client(version=version)
    client.send(
        wire.disconnect(version=version),
        wire.publish(rig.topic(), b"late", qos=1, version=version),
    )
    assert client.until_closed() == []

    assert rig.before_marker(subscriber, rig.topic()) == []


@STRICT
def test_a_server_only_reason_in_disconnect_closes(rig: Rig) -> None:
    """5.0: 3.14.2-1."""
    client = rig.client()
    client.send(wire.packet(Kind.DISCONNECT, b"\x03"))
    client.refused(MALFORMED, PROTOCOL_ERROR)


@OWN
def test_problem_information_is_left_out_when_not_wanted(rig: Rig) -> None:
    """5.0: 3.1.2-29, 3.9.2-1, 3.9.2-2, 3.11.2-1, 3.11.2-2, 3.4.2-2, 3.4.2-3."""
    client = rig.client(found=[(Prop.REQUEST_PROBLEM_INFO, 0)])
    client.send(
        wire.subscribe(1, [("$share/g", 0), (rig.topic(), 0)]),
        wire.unsubscribe(2, [rig.topic("never")]),
        wire.publish(rig.topic(), qos=1, packet_id=3),
        wire.ack(Kind.PUBREL, 4),
    )
    for kind in (Kind.SUBACK, Kind.UNSUBACK):
        answer = client.receive()
        if answer.kind is Kind.DISCONNECT:
            return
        assert answer.kind is kind
        assert answer.properties == []


@BOTH
def test_a_packet_identifier_at_its_edge_is_answered(rig: Rig, version: int) -> None:
    """5.0: 2.2.1-6. 3.1.1: 2.3.1-7."""
    client = rig.client(version=version)
    for packet_id in (1, 65_535):
        client.send(wire.unsubscribe(packet_id, ["a"], version=version))
        assert client.receive(Kind.UNSUBACK).body[:2] == struct.pack(">H", packet_id)
