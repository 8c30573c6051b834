"""Sections 3.1.2.5 to 3.1.2.7 and 3.1.3.2: wills."""

import pytest

from tests.adapters.mqtt.conformance.conftest import Rig
from tests.adapters.mqtt.conformance.versions import ALL, BOTH
from tests.support import mqtt_wire as wire
from tests.support.mqtt_target import STRICT
from tests.support.mqtt_wire import V3_1_1, V5, Kind, Prop, WillMessage

LONG = [(Prop.SESSION_EXPIRY, 300)]


@ALL
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_will_is_published_when_the_connection_breaks(
    rig: Rig, version: int, qos: int
) -> None:
    """5.0: 3.1.2-7, 3.1.2-8, 3.1.2-9, 3.1.2-12. 3.1.1: 3.1.2-8, 3.1.2-9, 3.1.2-14."""
    watcher = rig.subscriber()
    will = WillMessage(rig.topic(), b"gone", qos=qos)
    rig.client(version=version, will=will).drop()

    [message] = watcher.messages(1)
    assert (message.topic, message.payload, message.qos) == (rig.topic(), b"gone", qos)
    assert not message.retain


@BOTH
def test_a_will_is_published_once(rig: Rig, version: int) -> None:
    """5.0: 3.1.2-10. 3.1.1: 3.1.2-10."""
    watcher = rig.subscriber(options=1)
    will = WillMessage(rig.topic(), b"gone", qos=1)
    rig.client("c", version=version, will=will).drop()
    assert watcher.messages(1)[0].payload == b"gone"
    rig.client("c", version=version).drop()

    assert rig.before_marker(watcher, rig.topic()) == []


@BOTH
def test_disconnect_discards_the_will(rig: Rig, version: int) -> None:
    """5.0: 3.1.2-8, 3.1.2-10, 3.14.4-3. 3.1.1: 3.1.2-8, 3.1.2-10, 3.14.4-3."""
    watcher = rig.subscriber(options=1)
    client = rig.client(version=version, will=WillMessage(rig.topic(), b"gone", qos=1))
    client.send(wire.disconnect(version=version))
    client.until_closed()

    assert rig.before_marker(watcher, rig.topic()) == []


@BOTH
def test_without_a_will_flag_no_will_is_published(rig: Rig, version: int) -> None:
    """3.1.1: 3.1.2-12. 5.0: 3.1.2-7."""
    watcher = rig.subscriber(options=1)
    rig.client(version=version).drop()

    assert rig.before_marker(watcher, rig.topic()) == []


@pytest.mark.parametrize("code", [0x04, pytest.param(0x80, marks=STRICT)])
def test_disconnect_with_another_reason_publishes_the_will(rig: Rig, code: int) -> None:
    """5.0: 3.1.2-8."""
    watcher = rig.subscriber()
    client = rig.client(will=WillMessage(rig.topic(), b"gone"))
    client.send(wire.disconnect(code))

    assert watcher.messages(1)[0].payload == b"gone"


@BOTH
def test_a_protocol_error_publishes_the_will(rig: Rig, version: int) -> None:
    """5.0: 3.1.2-8. 3.1.1: 3.1.2-8."""
    watcher = rig.subscriber()
    client = rig.client(version=version, will=WillMessage(rig.topic(), b"gone"))
    client.send(wire.publish("a/#", version=version))

    assert watcher.messages(1)[0].payload == b"gone"


@BOTH
@pytest.mark.parametrize("retain", [False, True])
def test_a_will_is_retained_when_it_says_so(rig: Rig, version: int, retain: bool) -> None:  # noqa: FBT001
    """5.0: 3.1.2-14, 3.1.2-15. 3.1.1: 3.1.2-16, 3.1.2-17."""
    watcher = rig.subscriber()
    will = WillMessage(rig.topic(), b"gone", qos=1, retain=retain)
    rig.client(version=version, will=will).drop()
    watcher.messages(1)

    kept = rig.retained(rig.topic())
    assert [(message.payload, message.retain) for message in kept] == (
        [(b"gone", True)] if retain else []
    )


@BOTH
def test_a_takeover_publishes_the_will_of_the_first_connection(rig: Rig, version: int) -> None:
    """5.0: 3.1.2-8, 3.1.4-3. 3.1.1: 3.1.2-8, 3.1.4-2."""
    watcher = rig.subscriber()
    rig.client("c", version=version, will=WillMessage(rig.topic(), b"gone"))
    rig.client("c", version=version)

    assert watcher.messages(1)[0].payload == b"gone"


def test_a_will_waits_for_its_delay(rig: Rig) -> None:
    """5.0: 3.1.2-8."""
    watcher = rig.subscriber()
    for name, delay_s in (("slow", 2), ("fast", 1)):
        will = WillMessage(rig.topic(), name.encode(), properties=[(Prop.WILL_DELAY, delay_s)])
        rig.client(name, found=LONG, will=will).drop()
    rig.client().publish(rig.topic(), b"at once")

    came = [watcher.receive(Kind.PUBLISH).payload for _ in range(3)]
    assert came == [b"at once", b"fast", b"slow"]


@STRICT
def test_a_will_does_not_wait_longer_than_its_session(rig: Rig) -> None:
    """5.0: 3.1.2-8."""
    watcher = rig.subscriber()
    will = WillMessage(rig.topic(), b"gone", properties=[(Prop.WILL_DELAY, 3600)])
    rig.client(will=will).drop()

    assert watcher.receive(Kind.PUBLISH).payload == b"gone"


@STRICT
def test_a_clean_start_ends_the_session_and_its_waiting_will_is_published(rig: Rig) -> None:
    """5.0: 3.1.2-8."""
    watcher = rig.subscriber()
    will = WillMessage(rig.topic(), b"gone", properties=[(Prop.WILL_DELAY, 3600)])
    rig.client("c", found=LONG, will=will).drop()
    rig.client("c", clean=True)

    assert watcher.receive(Kind.PUBLISH).payload == b"gone"


def test_a_client_that_returns_in_time_cancels_its_will(rig: Rig) -> None:
    """5.0: 3.1.3-9."""
    watcher = rig.subscriber()
    delay = [(Prop.WILL_DELAY, 4)]  # time enough to return, also on a busy machine
    will = WillMessage(rig.topic(), b"gone", properties=delay)
    rig.client("c", clean=False, found=LONG, will=will).drop()
    rig.client("c", clean=False, found=LONG)
    later = WillMessage(rig.topic(), b"later", properties=delay)
    rig.client("later", found=LONG, will=later).drop()

    assert watcher.receive(Kind.PUBLISH).payload == b"later"


def test_a_will_carries_its_properties_in_order(rig: Rig) -> None:
    """5.0: 3.1.3-10, 3.1.2-9."""
    users: wire.Properties = [
        (Prop.USER, ("b", "1")),
        (Prop.USER, ("a", "2")),
        (Prop.USER, ("b", "3")),
    ]
    rest: wire.Properties = [
        (Prop.PAYLOAD_FORMAT, 1),
        (Prop.CONTENT_TYPE, "text/plain"),
        (Prop.RESPONSE_TOPIC, "answers/here"),
        (Prop.CORRELATION_DATA, b"\x00\xff"),
    ]
    watcher = rig.subscriber()
    will = WillMessage(rig.topic(), b"gone", properties=[(Prop.WILL_DELAY, 0), *rest, *users])
    rig.client(will=will).drop()

    message = watcher.receive(Kind.PUBLISH)
    assert [pair for pair in message.properties if pair[0] == Prop.USER] == users
    assert sorted(pair for pair in message.properties if pair[0] != Prop.USER) == sorted(rest)


@BOTH
@pytest.mark.parametrize("topic", ["a/#", "+/a", ""])
def test_a_will_topic_that_is_no_topic_name_closes(rig: Rig, version: int, topic: str) -> None:
    """5.0: 3.3.2-2, 4.7.3-1. 3.1.1: 3.3.2-2, 4.7.3-1."""
    client = rig.raw(version)
    client.send(wire.connect(rig.name(), version=version, will=WillMessage(topic)))
    client.rejected(0x81, 0x82, 0x90)


def test_a_subscriber_of_3_gets_the_will_of_5(rig: Rig) -> None:
    """5.0: 3.1.2-8."""
    watcher = rig.subscriber(version=V3_1_1)
    users = [(Prop.USER, ("a", "b"))]
    rig.client(version=V5, will=WillMessage(rig.topic(), b"gone", properties=users)).drop()

    assert watcher.receive(Kind.PUBLISH).payload == b"gone"
