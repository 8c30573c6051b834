"""Section 3.3: PUBLISH, its flags, properties and aliases, and what subscribers see of them."""

import pytest

from tests.adapters.mqtt.conformance.conftest import Rig
from tests.adapters.mqtt.conformance.versions import BOTH
from tests.support import mqtt_wire as wire
from tests.support.mqtt_raw import payloads
from tests.support.mqtt_target import OWN, STRICT
from tests.support.mqtt_wire import V3_1_1, V5, Kind, Prop

MALFORMED = 0x81
PROTOCOL_ERROR = 0x82
ALIAS_INVALID = 0x94


@BOTH
def test_qos_3_closes(rig: Rig, version: int) -> None:
    """5.0: 3.3.1-4. 3.1.1: 3.3.1-4."""
    client = rig.client(version=version)
    client.send(wire.publish(rig.topic(), qos=3, version=version))
    client.refused(MALFORMED)


@STRICT
@BOTH
def test_dup_at_qos_0_closes(rig: Rig, version: int) -> None:
    """5.0: 3.3.1-2. 3.1.1: 3.3.1-2."""
    client = rig.client(version=version)
    client.send(wire.publish(rig.topic(), dup=True, version=version))
    client.refused(MALFORMED, PROTOCOL_ERROR)


@BOTH
@pytest.mark.parametrize("qos", [1, 2])
def test_dup_is_not_passed_on(rig: Rig, version: int, qos: int) -> None:
    """5.0: 3.3.1-3, 4.3.2-2, 4.3.3-2. 3.1.1: 3.3.1-3, 4.3.2-1, 4.3.3-1."""
    subscriber = rig.subscriber(version=version)
    publisher = rig.client(version=version)
    publisher.send(wire.publish(rig.topic(), b"x", qos=qos, dup=True, version=version))
    if qos == 2:
        publisher.send(wire.ack(Kind.PUBREL, 1))

    [message] = subscriber.messages(1)
    assert (message.qos, message.dup) == (qos, False)


@BOTH
def test_qos_0_goes_out_without_dup_and_identifier(rig: Rig, version: int) -> None:
    """5.0: 2.2.1-2, 3.3.1-2, 4.3.1-1. 3.1.1: 2.3.1-5, 3.3.1-2, 4.3.1-1."""
    subscriber = rig.subscriber(options=2, version=version)
    rig.client(version=version).publish(rig.topic(), b"payload")

    message = subscriber.receive(Kind.PUBLISH)
    assert message.flags == 0
    end = b"payload" if version == V3_1_1 else b"\0payload"
    assert message.body == wire.text(rig.topic()) + end


@BOTH
@pytest.mark.parametrize("topic", ["a/#", "#", "a/+/b", "+", "a+", "a#b"])
def test_a_wildcard_in_a_topic_name_closes(rig: Rig, version: int, topic: str) -> None:
    """5.0: 3.3.2-2, 4.7.0-1. 3.1.1: 3.3.2-2, 4.7.1-1."""
    client = rig.client(version=version)
    client.send(wire.publish(topic, b"x", version=version))
    client.refused(MALFORMED, 0x90)


@BOTH
def test_an_empty_topic_name_closes(rig: Rig, version: int) -> None:
    """5.0: 4.7.3-1. 3.1.1: 4.7.3-1."""
    client = rig.client(version=version)
    client.send(wire.publish("", b"x", version=version))
    client.refused(MALFORMED, PROTOCOL_ERROR, 0x90)


@BOTH
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("options", [0, 1, 2])
def test_qos_is_the_lower_of_published_and_granted(
    rig: Rig, version: int, qos: int, options: int
) -> None:
    """5.0: 3.8.4-8, 3.3.2-3, 3.3.4-1. 3.1.1: 3.8.4-6, 3.3.2-3, 3.3.4-1."""
    subscriber = rig.subscriber(options=options, version=version)
    rig.client(version=version).publish(rig.topic(), b"x", qos=qos)

    [message] = subscriber.messages(1)
    assert (message.topic, message.payload) == (rig.topic(), b"x")
    assert message.qos == min(qos, options)


@BOTH
def test_an_empty_payload_arrives(rig: Rig, version: int) -> None:
    """5.0: 4.5.0-1. 3.1.1: 4.5.0-1."""
    subscriber = rig.subscriber(version=version)
    rig.client(version=version).publish(rig.topic(), b"", qos=1)
    assert subscriber.messages(1)[0].payload == b""


@BOTH
def test_a_large_payload_arrives_whole(rig: Rig, version: int) -> None:
    """5.0: 4.2-1. 3.1.1: 7.1.1-1."""
    payload = bytes(range(256)) * 2_000
    subscriber = rig.subscriber(version=version)
    rig.client(version=version).publish(rig.topic(), payload, qos=1)
    assert subscriber.messages(1)[0].payload == payload


PROPERTIES: wire.Properties = [
    (Prop.PAYLOAD_FORMAT, 1),
    (Prop.CONTENT_TYPE, "application/\u2603"),
    (Prop.RESPONSE_TOPIC, "answers/here"),
    (Prop.CORRELATION_DATA, bytes(range(256))),
]
USERS: wire.Properties = [
    (Prop.USER, pair)
    for pair in (("b", "1"), ("a", "2"), ("b", "3"), ("", ""), ("b", "1"), ("mqtt.qos", "2"))
]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_properties_arrive_unaltered_and_in_order(rig: Rig, qos: int) -> None:
    """5.0: 3.3.2-4, 3.3.2-15, 3.3.2-16, 3.3.2-17, 3.3.2-18, 3.3.2-20."""
    subscriber = rig.subscriber()
    rig.client().publish(rig.topic(), b"x", qos=qos, found=[*PROPERTIES, *USERS])

    message = subscriber.messages(1)[0]
    assert [pair for pair in message.properties if pair[0] == Prop.USER] == USERS
    assert sorted(
        (pair for pair in message.properties if pair[0] != Prop.USER), key=lambda pair: pair[0]
    ) == sorted(PROPERTIES, key=lambda pair: pair[0])


@pytest.mark.parametrize("value", [0, 1])
def test_the_payload_format_indicator_arrives_as_it_was(rig: Rig, value: int) -> None:
    """5.0: 3.3.2-4."""
    subscriber = rig.subscriber()
    rig.client().publish(rig.topic(), b"x", qos=1, found=[(Prop.PAYLOAD_FORMAT, value)])
    assert subscriber.messages(1)[0].number(Prop.PAYLOAD_FORMAT, 0) == value


def test_properties_survive_the_wait_for_an_offline_session(rig: Rig) -> None:
    """5.0: 3.3.2-4, 3.3.2-15, 3.3.2-16, 3.3.2-17, 3.3.2-18, 3.3.2-20."""
    first = rig.resumed("s")
    first.subscribe((rig.topic(), 1))
    first.drop()
    rig.client().publish(rig.topic(), b"x", qos=1, found=[*PROPERTIES, *USERS])

    message = rig.resumed("s").messages(1)[0]
    assert [pair for pair in message.properties if pair[0] == Prop.USER] == USERS
    assert message.value(Prop.CORRELATION_DATA) == bytes(range(256))
    assert message.value(Prop.CONTENT_TYPE) == "application/\u2603"


def test_properties_do_not_reach_a_client_of_3(rig: Rig) -> None:
    """3.1.1: 3.3.2-1."""
    subscriber = rig.subscriber(version=V3_1_1)
    rig.client().publish(rig.topic(), b"x", qos=1, found=[*PROPERTIES, *USERS])

    message = subscriber.messages(1)[0]
    assert message.payload == b"x"


@STRICT
@pytest.mark.parametrize("topic", ["a/#", "+/a"])
def test_a_wildcard_in_the_response_topic_closes(rig: Rig, topic: str) -> None:
    """5.0: 3.3.2-14."""
    client = rig.client()
    client.send(wire.publish(rig.topic(), found=[(Prop.RESPONSE_TOPIC, topic)]))
    client.refused(MALFORMED, PROTOCOL_ERROR, 0x90)


@STRICT
def test_a_payload_format_of_2_closes(rig: Rig) -> None:
    """5.0: 4.13.1-1."""
    client = rig.client()
    client.send(wire.publish(rig.topic(), found=[(Prop.PAYLOAD_FORMAT, 2)]))
    client.refused(MALFORMED, PROTOCOL_ERROR)


@STRICT
def test_a_subscription_identifier_from_a_client_closes(rig: Rig) -> None:
    """5.0: 3.3.4-6."""
    client = rig.client()
    client.send(wire.publish(rig.topic(), found=[(Prop.SUBSCRIPTION_ID, 1)]))
    client.refused(MALFORMED, PROTOCOL_ERROR)


def test_the_expiry_counts_down_while_a_message_waits(rig: Rig) -> None:
    """5.0: 3.3.2-5, 3.3.2-6."""
    first = rig.resumed("s")
    first.subscribe((rig.topic(), 1))
    first.drop()
    publisher = rig.client()
    for payload, expiry_s in ((b"expired", 1), (b"alive", 100)):
        publisher.publish(rig.topic(), payload, qos=1, found=[(Prop.MESSAGE_EXPIRY, expiry_s)])
    watcher = rig.subscriber("w")
    will = wire.WillMessage(rig.topic("w"), b"", properties=[(Prop.WILL_DELAY, 2)])
    rig.client("w", found=[(Prop.SESSION_EXPIRY, 60)], will=will).drop()
    watcher.messages(1)  # two seconds later

    again = rig.resumed("s")
    rig.client().publish(rig.topic(), b"end", qos=1)
    [alive] = again.messages_until(b"end")
    assert alive.payload == b"alive"
    assert 40 <= alive.number(Prop.MESSAGE_EXPIRY, 0) <= 98


def test_a_message_that_need_not_wait_keeps_its_expiry(rig: Rig) -> None:
    """5.0: 3.3.2-6."""
    subscriber = rig.subscriber()
    rig.client().publish(rig.topic(), b"x", qos=1, found=[(Prop.MESSAGE_EXPIRY, 1_000)])
    assert 970 <= subscriber.messages(1)[0].number(Prop.MESSAGE_EXPIRY, 0) <= 1_000


def test_a_topic_alias_stands_for_its_topic(rig: Rig) -> None:
    """5.0: 3.3.2-12."""
    subscriber = rig.client()
    subscriber.subscribe((rig.topic("#"), 1))
    client = rig.raw()
    aliases = client.connect(rig.name("p")).number(Prop.TOPIC_ALIAS_MAXIMUM, 0)
    assert aliases > 0
    for alias in (1, aliases):
        found = [(Prop.TOPIC_ALIAS, alias)]
        client.publish(rig.topic(f"a{alias}"), b"first", qos=1, found=found)
        client.publish("", b"second", qos=1, found=found)
    client.publish(rig.topic("other"), b"third", qos=1, found=[(Prop.TOPIC_ALIAS, 1)])
    client.publish("", b"fourth", qos=1, found=[(Prop.TOPIC_ALIAS, 1)])

    came = subscriber.messages(6)
    expected = [*["a1"] * 2, *[f"a{aliases}"] * 2, "other", "other"]
    assert [message.topic for message in came] == [rig.topic(name) for name in expected]


def test_the_publishers_alias_does_not_reach_subscribers(rig: Rig) -> None:
    """5.0: 3.1.2-26, 3.1.2-27, 3.3.2-11."""
    subscriber = rig.subscriber(options=0)
    rig.client().publish(rig.topic(), b"x", found=[(Prop.TOPIC_ALIAS, 1)])

    message = subscriber.receive(Kind.PUBLISH)
    assert (message.topic, message.properties) == (rig.topic(), [])


def test_aliases_to_a_subscriber_stay_within_its_maximum(rig: Rig) -> None:
    """5.0: 3.1.2-26, 3.3.2-11."""
    subscriber = rig.client(found=[(Prop.TOPIC_ALIAS_MAXIMUM, 2)])
    subscriber.subscribe((rig.topic("#"), 1))
    publisher = rig.client()
    wanted = [rig.topic(str(n % 4)) for n in range(24)]
    for n, topic in enumerate(wanted):
        publisher.publish(topic, b"%d" % n, qos=n % 2)

    known: dict[int, str] = {}
    seen = {}
    for message in subscriber.messages(24):
        alias = message.number(Prop.TOPIC_ALIAS, 0)
        assert 0 <= alias <= 2
        if message.topic and alias:
            known[alias] = message.topic
        seen[int(message.payload)] = message.topic or known[alias]
    assert [seen[n] for n in range(24)] == wanted


@pytest.mark.parametrize("alias", [0, 65_535])
def test_an_alias_out_of_range_closes(rig: Rig, alias: int) -> None:
    """5.0: 3.3.2-8, 3.3.2-9, 3.2.2-17."""
    client = rig.client()
    client.send(wire.publish(rig.topic(), found=[(Prop.TOPIC_ALIAS, alias)]))
    client.refused(ALIAS_INVALID)


def test_an_alias_without_a_topic_closes(rig: Rig) -> None:
    """5.0: 4.13.1-1."""
    client = rig.client()
    client.send(wire.publish("", found=[(Prop.TOPIC_ALIAS, 1)]))
    client.refused(PROTOCOL_ERROR, ALIAS_INVALID)


def test_aliases_end_with_their_connection(rig: Rig) -> None:
    """5.0: 3.3.2-7."""
    client = rig.resumed("p")
    client.publish(rig.topic(), b"x", qos=1, found=[(Prop.TOPIC_ALIAS, 1)])
    client.drop()
    again = rig.resumed("p")
    again.send(wire.publish("", b"x", found=[(Prop.TOPIC_ALIAS, 1)]))
    again.refused(PROTOCOL_ERROR, ALIAS_INVALID)


@pytest.mark.parametrize("too_many", [pytest.param(1, marks=STRICT), 100])
def test_a_message_above_the_subscribers_maximum_packet_size_is_left_out(
    rig: Rig, too_many: int
) -> None:
    """5.0: 3.1.2-24, 3.1.2-25."""
    subscriber = rig.client(found=[(Prop.MAXIMUM_PACKET_SIZE, 100)])
    subscriber.subscribe((rig.topic(), 1))
    publisher = rig.client()
    room = 100 - 2 - 2 - len(rig.topic()) - 2 - 1
    for payload in (b"x" * (room + too_many), b"z" * room):
        publisher.publish(rig.topic(), payload, qos=1)

    came = rig.before_marker(subscriber, rig.topic())
    assert payloads(came) == [b"z" * room]
    assert came[0].size_bytes == 100


@OWN
def test_a_packet_above_the_servers_maximum_closes(rig: Rig) -> None:
    """5.0: 3.2.2-15."""
    client = rig.raw()
    bytes_max = client.connect(rig.name()).number(Prop.MAXIMUM_PACKET_SIZE, 0)
    assert bytes_max > 0
    client.send(b"\x30" + wire.varint(bytes_max) + b"\0\1a\0")
    client.refused(0x95)


@BOTH
def test_messages_of_a_topic_come_in_order(rig: Rig, version: int) -> None:
    """5.0: 4.6.0-5, 4.6.0-6. 3.1.1: 4.6.0-5, 4.6.0-6."""
    subscriber = rig.subscriber(options=1, version=version)
    publisher = rig.client(version=version)
    sent = [b"%d" % n for n in range(100)]
    for at in range(0, 100, 20):
        publisher.send(
            *(
                wire.publish(rig.topic(), sent[n], qos=1, packet_id=n + 1, version=version)
                for n in range(at, at + 20)
            )
        )
        assert [publisher.receive(Kind.PUBACK).packet_id for _ in range(20)] == list(
            range(at + 1, at + 21)
        )

    assert payloads(subscriber.messages(100)) == sent


@pytest.mark.parametrize(("published", "subscribed"), [(V3_1_1, V5), (V5, V3_1_1)])
def test_versions_reach_each_other(rig: Rig, published: int, subscribed: int) -> None:
    """5.0: 4.5.0-1. 3.1.1: 4.5.0-1."""
    subscriber = rig.subscriber(version=subscribed)
    rig.client(version=published).publish(rig.topic(), b"x", qos=2)

    [message] = subscriber.messages(1)
    assert (message.payload, message.qos) == (b"x", 2)


@OWN
@pytest.mark.parametrize("topic", ["$delayed/a", "$delayed/x/a", "$delayed/"])
def test_delayed_topics_that_say_no_time_are_refused(rig: Rig, topic: str) -> None:
    client = rig.client()
    client.send(wire.publish(topic, b"later", qos=1))
    answer = client.receive()
    assert answer.kind in {Kind.PUBACK, Kind.DISCONNECT}
    assert answer.code >= 0x80
