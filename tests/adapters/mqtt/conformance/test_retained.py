"""Sections 3.3.1.3 and 3.8.3.1: retained messages, retain handling, retain as published."""

import pytest

from tests.adapters.mqtt.conformance.conftest import Rig
from tests.adapters.mqtt.conformance.versions import BOTH
from tests.support.mqtt_raw import RawClient, payloads
from tests.support.mqtt_target import STRICT
from tests.support.mqtt_wire import Kind, Prop, WillMessage

AS_PUBLISHED = 0x08
IF_NEW = 0x10
NEVER = 0x20


def keep(rig: Rig, version: int, topic: str, payload: bytes, qos: int = 1) -> None:
    rig.client(version=version).publish(topic, payload, qos=qos, retain=True)


def kept(rig: Rig, topic: str) -> list[bytes]:
    return payloads(rig.retained(topic))


@BOTH
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_retained_message_is_kept_for_later_subscribers(
    rig: Rig, version: int, qos: int
) -> None:
    """5.0: 3.3.1-5, 3.3.1-9. 3.1.1: 3.3.1-5, 3.3.1-6, 3.3.1-8."""
    keep(rig, version, rig.topic(), b"kept", qos)
    subscriber = rig.subscriber(options=2, version=version)

    [message] = subscriber.messages(1)
    assert (message.topic, message.payload, message.qos) == (rig.topic(), b"kept", qos)
    assert message.retain
    assert not message.dup


@BOTH
def test_a_retained_message_replaces_the_one_before(rig: Rig, version: int) -> None:
    """5.0: 3.3.1-5. 3.1.1: 3.3.1-5, 3.3.1-7."""
    for payload, qos in ((b"first", 1), (b"second", 2), (b"third", 0)):
        keep(rig, version, rig.topic(), payload, qos)
    assert kept(rig, rig.topic()) == [b"third"]


@BOTH
def test_an_empty_retained_message_removes_and_is_not_kept(rig: Rig, version: int) -> None:
    """5.0: 3.3.1-6, 3.3.1-7. 3.1.1: 3.3.1-10, 3.3.1-11."""
    watcher = rig.subscriber(options=1, version=version)
    keep(rig, version, rig.topic(), b"kept")
    keep(rig, version, rig.topic(), b"")

    assert payloads(watcher.messages(2)) == [b"kept", b""]
    assert kept(rig, rig.topic()) == []


@BOTH
def test_a_message_that_is_not_retained_leaves_the_retained_one(rig: Rig, version: int) -> None:
    """5.0: 3.3.1-8. 3.1.1: 3.3.1-12."""
    keep(rig, version, rig.topic(), b"kept")
    rig.client(version=version).publish(rig.topic(), b"passing", qos=1)
    rig.client(version=version).publish(rig.topic("other"), b"passing", qos=1)

    assert kept(rig, rig.topic("#")) == [b"kept"]


@BOTH
def test_retained_messages_outlive_their_session(rig: Rig, version: int) -> None:
    """5.0: 3.3.1-5. 3.1.1: 3.1.2-7."""
    publisher = rig.client("p", version)
    publisher.publish(rig.topic(), b"kept", qos=1, retain=True)
    publisher.drop()
    rig.client("p", version)

    assert kept(rig, rig.topic()) == [b"kept"]


@BOTH
def test_an_established_subscription_sees_no_retain_flag(rig: Rig, version: int) -> None:
    """5.0: 3.3.1-12. 3.1.1: 3.3.1-9."""
    subscriber = rig.subscriber(options=1, version=version)
    for qos in (0, 1):
        rig.client(version=version).publish(rig.topic(), b"kept", qos=qos, retain=True)

    assert [message.retain for message in subscriber.messages(2)] == [False, False]


def test_retain_as_published_keeps_the_flag(rig: Rig) -> None:
    """5.0: 3.3.1-13."""
    subscriber = rig.subscriber(options=1 | AS_PUBLISHED)
    publisher = rig.client()
    wanted = [(retain, qos) for retain in (True, False) for qos in (0, 1)]
    seen = []
    for retain, qos in wanted:
        publisher.publish(rig.topic(), b"x", qos=qos, retain=retain)
        seen.append((subscriber.messages(1)[0].retain, qos))

    assert seen == wanted


@BOTH
def test_wildcards_bring_all_that_is_retained(rig: Rig, version: int) -> None:
    """5.0: 3.3.1-9. 3.1.1: 3.3.1-6."""
    names = ["a", "a/b", "a/b/c", "b", "b/b"]
    for name in names:
        keep(rig, version, rig.topic(name), name.encode())

    for levels, matching in {
        "#": names,
        "a/#": names[:3],
        "+/b": ["a/b", "b/b"],
        "+": ["a", "b"],
        "+/+/c": ["a/b/c"],
    }.items():
        assert sorted(kept(rig, rig.topic(levels))) == [name.encode() for name in matching]


def test_a_retained_message_keeps_its_properties(rig: Rig) -> None:
    """5.0: 3.3.2-17, 3.3.2-18."""
    users = [(Prop.USER, ("b", "1")), (Prop.USER, ("a", "2")), (Prop.USER, ("b", "3"))]
    rig.client().publish(rig.topic(), b"x", qos=1, retain=True, found=users)
    assert rig.retained(rig.topic())[0].properties == users


def test_a_retained_message_expires(rig: Rig) -> None:
    """5.0: 3.3.2-5, 3.3.2-6."""
    publisher = rig.client()
    for name, expiry_s in (("short", 1), ("long", 100)):
        found = [(Prop.MESSAGE_EXPIRY, expiry_s)]
        publisher.publish(rig.topic(name), name.encode(), qos=1, retain=True, found=found)
    watcher = rig.subscriber("w")
    will = WillMessage(rig.topic("w"), b"", properties=[(Prop.WILL_DELAY, 2)])
    rig.client("w", found=[(Prop.SESSION_EXPIRY, 60)], will=will).drop()
    watcher.messages(1)  # two seconds later

    [message] = rig.retained(rig.topic("#"))
    assert message.payload == b"long"
    assert 40 <= message.number(Prop.MESSAGE_EXPIRY, 0) <= 98


@BOTH
def test_subscribing_again_brings_the_retained_message_again(rig: Rig, version: int) -> None:
    """5.0: 3.3.1-9, 3.8.4-3, 3.8.4-4. 3.1.1: 3.8.4-3."""
    keep(rig, version, rig.topic(), b"kept")
    subscriber = rig.client(version=version)
    for _ in range(2):
        subscriber.subscribe((rig.topic(), 1))
        assert subscriber.messages(1)[0].payload == b"kept"


def before_marker(rig: Rig, subscriber: RawClient) -> list[bytes]:
    return payloads(rig.before_marker(subscriber, rig.topic("m")))


def test_retain_handling_1_brings_it_to_a_new_subscription_only(rig: Rig) -> None:
    """5.0: 3.3.1-10."""
    keep(rig, 5, rig.topic(), b"kept")
    subscriber = rig.client()
    subscriber.subscribe((rig.topic("m"), 1))
    subscriber.subscribe((rig.topic(), 1 | IF_NEW))
    assert before_marker(rig, subscriber) == [b"kept"]
    subscriber.subscribe((rig.topic(), 1 | IF_NEW))

    assert before_marker(rig, subscriber) == []


def test_retain_handling_2_never_brings_it(rig: Rig) -> None:
    """5.0: 3.3.1-11."""
    keep(rig, 5, rig.topic(), b"kept")
    subscriber = rig.client()
    subscriber.subscribe((rig.topic("m"), 1))
    for _ in range(2):
        subscriber.subscribe((rig.topic(), 1 | NEVER))
        assert before_marker(rig, subscriber) == []


def test_retain_handling_3_closes(rig: Rig) -> None:
    """5.0: 3.8.3-5, 4.13.1-1."""
    client = rig.client()
    client.send(b"\x82\x07\0\1\0\0\1a\x30")
    client.refused(0x81, 0x82)


@STRICT
def test_a_shared_subscription_gets_nothing_retained(rig: Rig) -> None:
    """5.0: 4.8.2-3."""
    keep(rig, 5, rig.topic(), b"kept")
    subscriber = rig.client()
    subscriber.subscribe((rig.topic("m"), 1), (f"$share/g/{rig.topic()}", 1))
    assert before_marker(rig, subscriber) == []


def test_a_retained_message_has_its_subscription_identifier(rig: Rig) -> None:
    """5.0: 3.3.4-3."""
    keep(rig, 5, rig.topic(), b"kept")
    subscriber = rig.client()
    subscriber.subscribe((rig.topic(), 1), found=[(Prop.SUBSCRIPTION_ID, 321)])
    message = subscriber.receive(Kind.PUBLISH)
    assert message.values(Prop.SUBSCRIPTION_ID) == [321]
