"""Sections 4.3, 4.4, 4.6, 4.9 and 3.4 to 3.7: acknowledgements, redelivery, flow control."""

import pytest

from tests.adapters.mqtt.conformance.conftest import Rig
from tests.adapters.mqtt.conformance.versions import BOTH
from tests.support import mqtt_wire as wire
from tests.support.mqtt_raw import payloads
from tests.support.mqtt_target import STRICT
from tests.support.mqtt_wire import V5, Kind, Prop

NOT_FOUND = 0x92
RECEIVE_MAXIMUM = Prop.RECEIVE_MAXIMUM


@BOTH
def test_qos_1_is_answered_with_its_identifier(rig: Rig, version: int) -> None:
    """5.0: 2.2.1-5, 3.3.4-1, 3.4.2-1, 4.3.2-4. 3.1.1: 2.3.1-6, 3.3.4-1, 4.3.2-2."""
    client = rig.client(version=version)
    for packet_id in (65_535, 1, 300):
        client.send(wire.publish(rig.topic(), qos=1, packet_id=packet_id, version=version))
        answer = client.receive(Kind.PUBACK)
        assert answer.packet_id == packet_id
        assert answer.code in {0, 0x10}


@BOTH
def test_an_identifier_is_free_again_after_puback(rig: Rig, version: int) -> None:
    """5.0: 4.3.2-5. 3.1.1: 4.3.2-2."""
    subscriber = rig.subscriber(options=1, version=version)
    client = rig.client(version=version)
    for dup in (False, True):
        client.send(wire.publish(rig.topic(), b"x", qos=1, dup=dup, version=version))
        client.receive(Kind.PUBACK)

    assert payloads(subscriber.messages(2)) == [b"x", b"x"]


@BOTH
def test_qos_2_is_answered_to_its_end(rig: Rig, version: int) -> None:
    """5.0: 2.2.1-5, 3.5.2-1, 3.7.2-1, 4.3.3-8, 4.3.3-11. 3.1.1: 2.3.1-6, 4.3.3-2."""
    client = rig.client(version=version)
    client.send(wire.publish(rig.topic(), qos=2, packet_id=777, version=version))
    received = client.receive(Kind.PUBREC)
    assert (received.packet_id, received.code in {0, 0x10}) == (777, True)
    client.send(wire.ack(Kind.PUBREL, 777))
    done = client.receive(Kind.PUBCOMP)

    assert (done.packet_id, done.code) == (777, 0)


@BOTH
def test_qos_2_sent_again_before_pubrel_is_delivered_once(rig: Rig, version: int) -> None:
    """5.0: 4.3.3-10. 3.1.1: 4.3.3-2."""
    subscriber = rig.subscriber(options=2, version=version)
    client = rig.client(version=version)
    for dup in (False, True):
        client.send(
            wire.publish(rig.topic(), b"x", qos=2, packet_id=5, dup=dup, version=version)
        )
        assert client.receive(Kind.PUBREC).packet_id == 5
    client.send(wire.ack(Kind.PUBREL, 5))
    client.receive(Kind.PUBCOMP)

    assert payloads(rig.before_marker(subscriber, rig.topic())) == [b"x"]


@BOTH
def test_qos_2_sent_again_in_one_piece_is_delivered_once(rig: Rig, version: int) -> None:
    """5.0: 4.3.3-10. 3.1.1: 4.3.3-2."""
    subscriber = rig.subscriber(options=2, version=version)
    client = rig.client(version=version)
    client.send(
        *(
            wire.publish(rig.topic(), b"x", qos=2, packet_id=5, dup=dup, version=version)
            for dup in (False, True)
        )
    )
    client.receive(Kind.PUBREC)
    client.receive(Kind.PUBREC)

    client.send(wire.ack(Kind.PUBREL, 5))
    client.receive(Kind.PUBCOMP)
    assert payloads(rig.before_marker(subscriber, rig.topic())) == [b"x"]


@BOTH
def test_qos_2_sent_again_on_a_new_connection_is_delivered_once(rig: Rig, version: int) -> None:
    """5.0: 4.3.3-10, 4.4.0-1. 3.1.1: 4.3.3-2, 4.4.0-1."""
    subscriber = rig.subscriber(options=2)
    client = rig.resumed("p", version)
    client.send(wire.publish(rig.topic(), b"x", qos=2, packet_id=5, version=version))
    client.receive(Kind.PUBREC)
    client.drop()
    again = rig.resumed("p", version)
    again.send(wire.publish(rig.topic(), b"x", qos=2, packet_id=5, dup=True, version=version))
    again.receive(Kind.PUBREC)
    again.send(wire.ack(Kind.PUBREL, 5))
    again.receive(Kind.PUBCOMP)

    assert payloads(rig.before_marker(subscriber, rig.topic())) == [b"x"]


@BOTH
def test_a_qos_2_identifier_is_free_again_after_pubcomp(rig: Rig, version: int) -> None:
    """5.0: 4.3.3-12. 3.1.1: 4.3.3-2."""
    subscriber = rig.subscriber(options=2, version=version)
    client = rig.client(version=version)
    for _ in range(2):
        client.send(wire.publish(rig.topic(), b"x", qos=2, packet_id=5, version=version))
        client.receive(Kind.PUBREC)
        client.send(wire.ack(Kind.PUBREL, 5))
        client.receive(Kind.PUBCOMP)

    assert payloads(subscriber.messages(2)) == [b"x", b"x"]


@BOTH
def test_pubrel_of_an_unknown_identifier_is_answered(rig: Rig, version: int) -> None:
    """5.0: 4.3.3-11, 3.7.2-1. 3.1.1: 4.3.3-2."""
    client = rig.client(version=version)
    client.send(wire.ack(Kind.PUBREL, 4321))
    done = client.receive(Kind.PUBCOMP)
    assert done.packet_id == 4321
    assert done.code == (NOT_FOUND if version == V5 and client.is_strict else done.code)


@BOTH
@pytest.mark.parametrize("flags", [0, 1, 3, 4])
def test_wrong_flags_of_pubrel_close(rig: Rig, version: int, flags: int) -> None:
    """5.0: 3.6.1-1. 3.1.1: 3.6.1-1."""
    client = rig.client(version=version)
    client.send(wire.packet(Kind.PUBREL, b"\0\1", flags=flags))
    client.refused(0x81)


@STRICT
@pytest.mark.parametrize("kind", [Kind.PUBACK, Kind.PUBREC, Kind.PUBREL, Kind.PUBCOMP])
def test_a_reason_code_that_does_not_exist_closes(rig: Rig, kind: Kind) -> None:
    """5.0: 3.4.2-1, 3.5.2-1, 3.6.2-1, 3.7.2-1."""
    client = rig.client()
    client.send(wire.ack(kind, 1, 0x01))
    client.refused(0x81, 0x82)


@BOTH
def test_acknowledgements_that_nobody_waits_for_do_no_harm(rig: Rig, version: int) -> None:
    """5.0: 4.3.3-4. 3.1.1: 4.3.3-1."""
    client = rig.client(version=version)
    client.send(wire.ack(Kind.PUBACK, 11), wire.ack(Kind.PUBCOMP, 13))
    assert client.ping() == []


@BOTH
def test_pubrel_follows_pubrec_with_the_same_identifier(rig: Rig, version: int) -> None:
    """5.0: 2.2.1-5, 3.6.1-1, 3.6.2-1, 3.6.2-2, 3.6.2-3, 4.3.3-4.

    3.1.1: 2.3.1-6, 3.6.1-1, 4.3.3-1.
    """
    subscriber = rig.subscriber(options=2, version=version)
    publisher = rig.client(version=version)
    for payload in (b"a", b"b"):
        publisher.publish(rig.topic(), payload, qos=2)
    first, second = subscriber.messages(2, accept=False)

    for message in (first, second):
        subscriber.send(wire.ack(Kind.PUBREC, message.packet_id))
        released = subscriber.receive(Kind.PUBREL)
        assert (released.flags, released.packet_id) == (2, message.packet_id)
        assert released.size_bytes == 4


def unacknowledged(rig: Rig, version: int, qos: int, count: int) -> list[wire.Received]:
    """Begin session ``s``, have it get messages, and break its connection."""
    first = rig.resumed("s", version)
    first.subscribe((rig.topic(), qos))
    publisher = rig.client(version=version)
    for n in range(count):
        publisher.publish(rig.topic(), b"%d" % n, qos=qos)
    came = first.messages(count, accept=False)
    first.drop()
    return came


@BOTH
@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_not_acknowledged_is_sent_again_in_order(
    rig: Rig, version: int, qos: int
) -> None:
    """5.0: 3.3.1-1, 4.3.2-3, 4.3.3-3, 4.4.0-1, 4.5.0-1.

    3.1.1: 2.3.1-3, 3.3.1-1, 4.3.2-1, 4.3.3-1, 4.4.0-1, 4.6.0-1, 4.6.0-6.
    """
    before = unacknowledged(rig, version, qos, 5)
    again = rig.resumed("s", version)
    after = again.messages(5)

    assert payloads(after) == payloads(before)
    assert [message.packet_id for message in after] == [message.packet_id for message in before]
    assert all(message.dup for message in after)
    assert rig.before_marker(again, rig.topic()) == []


@BOTH
def test_what_was_acknowledged_is_not_sent_again(rig: Rig, version: int) -> None:
    """5.0: 4.3.2-3, 4.4.0-1. 3.1.1: 4.3.2-1."""
    first = rig.resumed("s", version)
    first.subscribe((rig.topic(), 1))
    publisher = rig.client(version=version)
    for n in range(6):
        publisher.publish(rig.topic(), b"%d" % n, qos=1)
    for message in first.messages(6, accept=False):
        if message.payload in {b"0", b"1", b"4"}:
            first.accept(message)
    first.ping()
    first.drop()

    again = rig.resumed("s", version)
    assert payloads(rig.before_marker(again, rig.topic())) == [b"2", b"3", b"5"]


@BOTH
def test_after_pubrec_pubrel_is_sent_again_and_publish_is_not(rig: Rig, version: int) -> None:
    """5.0: 4.3.3-5, 4.3.3-6, 4.4.0-1. 3.1.1: 4.3.3-1, 4.4.0-1."""
    first = rig.resumed("s", version)
    first.subscribe((rig.topic(), 2))
    rig.client(version=version).publish(rig.topic(), b"x", qos=2)
    [message] = first.messages(1, accept=False)
    first.send(wire.ack(Kind.PUBREC, message.packet_id))
    first.receive(Kind.PUBREL)
    first.drop()

    again = rig.resumed("s", version)
    assert again.receive(Kind.PUBREL).packet_id == message.packet_id
    again.send(wire.ack(Kind.PUBCOMP, message.packet_id))
    assert again.ping() == []


@BOTH
def test_nothing_is_sent_again_while_the_connection_lasts(rig: Rig, version: int) -> None:
    """5.0: 4.4.0-1."""
    subscriber = rig.subscriber(options=1, version=version)
    rig.client(version=version).publish(rig.topic(), b"x", qos=1)
    [message] = subscriber.messages(1, accept=False)
    watcher = rig.subscriber("w")
    will = wire.WillMessage(rig.topic("w"), b"", properties=[(Prop.WILL_DELAY, 2)])
    rig.client(found=[(Prop.SESSION_EXPIRY, 60)], will=will).drop()
    watcher.messages(1)  # two seconds later

    assert subscriber.ping() == []
    subscriber.accept(message)


@pytest.mark.parametrize("qos", [1, 2])
def test_an_error_in_the_answer_ends_the_delivery(rig: Rig, qos: int) -> None:
    """5.0: 4.4.0-2."""
    first = rig.resumed("s")
    first.subscribe((rig.topic(), 2))
    rig.client().publish(rig.topic(), b"x", qos=qos)
    [message] = first.messages(1, accept=False)
    kind = Kind.PUBACK if qos == 1 else Kind.PUBREC
    first.send(wire.ack(kind, message.packet_id, 0x80))
    assert first.ping() == []
    first.drop()

    assert rig.before_marker(rig.resumed("s"), rig.topic()) == []


@BOTH
def test_an_offline_session_gets_what_was_published_in_order(rig: Rig, version: int) -> None:
    """5.0: 4.5.0-1, 4.6.0-5. 3.1.1: 3.1.2-5, 4.5.0-1, 4.6.0-6, 4.1.0-1."""
    first = rig.resumed("s", version)
    first.subscribe((rig.topic(), 2))
    first.send(wire.disconnect(version=version))
    first.until_closed()
    publisher = rig.client(version=version)
    for n in range(40):
        publisher.publish(rig.topic(), b"%d" % n, qos=1 + n % 2)

    came = rig.resumed("s", version).messages(40)
    for qos in (1, 2):  # order is per topic and QoS
        sent = [b"%d" % n for n in range(40) if 1 + n % 2 == qos]
        assert payloads([message for message in came if message.qos == qos]) == sent
    assert not any(message.dup for message in came)


@pytest.mark.parametrize("qos", [1, 2])
def test_no_more_than_receive_maximum_messages_are_on_their_way(rig: Rig, qos: int) -> None:
    """5.0: 3.3.4-9, 3.3.4-10, 4.9.0-1, 4.9.0-2, 4.9.0-3."""
    subscriber = rig.client(found=[(RECEIVE_MAXIMUM, 3)])
    subscriber.subscribe((rig.topic(), qos))
    publisher = rig.client()
    for n in range(10):
        publisher.publish(rig.topic(), b"%d" % n, qos=qos)
    held = subscriber.messages(3, accept=False)
    assert subscriber.ping() == []
    rig.client().publish(rig.topic(), b"at most once")
    assert subscriber.receive(Kind.PUBLISH).payload == b"at most once"

    seen = payloads(held)
    for message in held:
        subscriber.accept(message)
        [following] = subscriber.messages(1, accept=False)
        seen.append(following.payload)
    assert seen == [b"%d" % n for n in range(6)]


def test_an_error_in_pubrec_makes_room(rig: Rig) -> None:
    """5.0: 3.3.4-9, 4.9.0-2."""
    subscriber = rig.client(found=[(RECEIVE_MAXIMUM, 1)])
    subscriber.subscribe((rig.topic(), 2))
    publisher = rig.client()
    for payload in (b"first", b"second"):
        publisher.publish(rig.topic(), payload, qos=2)
    [first] = subscriber.messages(1, accept=False)
    subscriber.send(wire.ack(Kind.PUBREC, first.packet_id, 0x97))

    assert subscriber.messages(1)[0].payload == b"second"


@STRICT
def test_more_than_the_servers_receive_maximum_closes(rig: Rig) -> None:
    """5.0: 3.3.4-7, 4.13.1-1."""
    client = rig.raw()
    most = client.connect(rig.name()).number(RECEIVE_MAXIMUM, 65_535)
    for n in range(most):
        client.send(wire.publish(rig.topic(), qos=2, packet_id=n + 1))
        client.receive(Kind.PUBREC)
    client.send(wire.publish(rig.topic(), qos=2, packet_id=most + 1))

    client.refused(0x93)


def test_as_many_as_the_servers_receive_maximum_are_taken(rig: Rig) -> None:
    """5.0: 4.9.0-3."""
    client = rig.raw()
    most = client.connect(rig.name()).number(RECEIVE_MAXIMUM, 65_535)
    ids = range(1, most + 1)
    client.send(*(wire.publish(rig.topic(), qos=2, packet_id=n) for n in ids))
    assert [client.receive(Kind.PUBREC).packet_id for _ in ids] == list(ids)
    client.send(*(wire.ack(Kind.PUBREL, n) for n in ids))
    assert [client.receive(Kind.PUBCOMP).packet_id for _ in ids] == list(ids)


def test_expiry_does_not_touch_what_was_sent(rig: Rig) -> None:
    """5.0: 4.3.3-7, 4.3.3-13."""
    first = rig.resumed("s")
    first.subscribe((rig.topic(), 2))
    rig.client().publish(rig.topic(), b"x", qos=2, found=[(Prop.MESSAGE_EXPIRY, 3)])
    [message] = first.messages(1, accept=False)
    watcher = rig.subscriber("w")
    will = wire.WillMessage(rig.topic("w"), b"", properties=[(Prop.WILL_DELAY, 4)])
    rig.client(found=[(Prop.SESSION_EXPIRY, 60)], will=will).drop()
    watcher.messages(1)  # four seconds later

    first.drop()
    again = rig.resumed("s")  # nor does a new connection
    [repeated] = again.messages(1, accept=False)
    assert (repeated.packet_id, repeated.payload, repeated.dup) == (
        message.packet_id,
        b"x",
        True,
    )
    assert repeated.value(Prop.MESSAGE_EXPIRY) == 0
    again.send(wire.ack(Kind.PUBREC, message.packet_id))
    assert again.receive(Kind.PUBREL).packet_id == message.packet_id


@BOTH
def test_the_state_of_a_session_lasts_as_long_as_its_connection(rig: Rig, version: int) -> None:
    """5.0: 4.1.0-1. 3.1.1: 4.1.0-1, 4.1.0-2."""
    found = [(Prop.SESSION_EXPIRY, 1)] if version == V5 else []
    client = rig.client(version=version, found=found)
    client.subscribe((rig.topic(), 1))
    watcher = rig.subscriber("w")
    will = wire.WillMessage(rig.topic("w"), b"", properties=[(Prop.WILL_DELAY, 2)])
    rig.client(found=[(Prop.SESSION_EXPIRY, 60)], will=will).drop()
    watcher.messages(1)  # two seconds later
    rig.client().publish(rig.topic(), b"x", qos=1)

    assert client.messages(1)[0].payload == b"x"
