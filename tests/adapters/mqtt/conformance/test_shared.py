"""Section 4.8: shared subscriptions."""

import pytest

from tests.adapters.mqtt.conformance.conftest import Rig
from tests.adapters.mqtt.conformance.versions import BOTH
from tests.support import mqtt_wire as wire
from tests.support.mqtt_raw import RawClient, payloads
from tests.support.mqtt_target import OWN, STRICT
from tests.support.mqtt_wire import V5, Kind, Prop

NO_LOCAL = 0x04


def shared(rig: Rig, levels: str = "t", group: str = "g") -> str:
    return f"$share/{group}/{rig.topic(levels)}"


def member(rig: Rig, options: int = 1, version: int = V5) -> RawClient:
    client = rig.client(version=version)
    assert client.subscribe((shared(rig), options), (rig.topic("m"), 1)) == [options & 3, 1]
    return client


def shares(rig: Rig, *members: RawClient) -> list[list[bytes]]:
    """Return what each member has got."""
    rig.client().publish(rig.topic("m"), b"marker", qos=1)
    return [payloads(client.messages_until(b"marker")) for client in members]


@BOTH
def test_each_message_goes_to_one_member(rig: Rig, version: int) -> None:
    """5.0: 4.8.2-1, 4.8.2-2, 4.8.2-3. 3.1.1: 4.5.0-1."""
    members = [member(rig, version=version) for _ in range(3)]
    publisher = rig.client()
    sent = [b"%02d" % n for n in range(18)]
    for payload in sent:
        publisher.publish(rig.topic(), payload, qos=1)

    got = shares(rig, *members)
    assert sorted(payload for share in got for payload in share) == sent
    assert all(share == sorted(share) for share in got)


def test_groups_and_plain_subscriptions_each_get_all(rig: Rig) -> None:
    """5.0: 4.8.2-3, 4.5.0-1."""
    client = rig.client()
    client.subscribe((shared(rig, group="one"), 1))
    other = rig.client()
    other.subscribe((shared(rig, group="two"), 1))
    plain = rig.subscriber(options=1)
    rig.client().publish(rig.topic(), b"x", qos=1)

    for each in (client, other, plain):
        assert each.messages(1)[0].payload == b"x"


@pytest.mark.parametrize("options", [0, 1, 2])
def test_the_granted_qos_is_respected(rig: Rig, options: int) -> None:
    """5.0: 4.8.2-3, 3.8.4-8."""
    client = member(rig, options)
    rig.client().publish(rig.topic(), b"x", qos=2)
    assert client.messages(1)[0].qos == options


BAD = [
    "$share/g",
    "$share//a",
    "$share/g/",
    "$share/g+/a",
    "$share/g#/a",
    "$share/#",
    "$share/",
]


@STRICT
@pytest.mark.parametrize("topic_filter", BAD)
def test_a_shared_filter_against_the_rules_is_refused(rig: Rig, topic_filter: str) -> None:
    """5.0: 4.8.2-1, 4.8.2-2."""
    client = rig.client()
    client.send(wire.subscribe(1, [(topic_filter, 0)]))
    answer = client.receive()
    assert (answer.kind, answer.codes) == (Kind.SUBACK, [0x8F]) or (
        answer.kind is Kind.DISCONNECT and answer.code in {0x81, 0x82, 0x8F}
    )


@STRICT
def test_no_local_on_a_shared_subscription_closes(rig: Rig) -> None:
    """5.0: 3.8.3-4."""
    client = rig.client()
    client.send(wire.subscribe(1, [(shared(rig), NO_LOCAL)]))
    client.refused(0x82)


@pytest.mark.parametrize("qos", [1, 2])
def test_an_error_from_a_member_discards_the_message(rig: Rig, qos: int) -> None:
    """5.0: 4.8.2-6."""
    first = member(rig, 2)
    rig.client().publish(rig.topic(), b"x", qos=qos)
    [message] = first.messages(1, accept=False)
    second = member(rig, 2)
    kind = Kind.PUBACK if qos == 1 else Kind.PUBREC
    first.send(wire.ack(kind, message.packet_id, 0x80))

    assert shares(rig, first, second) == [[], []]


def test_qos_2_that_was_begun_is_completed_with_the_same_member(rig: Rig) -> None:
    """5.0: 4.8.2-4."""
    first = rig.resumed("s")
    first.subscribe((shared(rig), 2))
    rig.client().publish(rig.topic(), b"x", qos=2)
    [message] = first.messages(1, accept=False)
    second = member(rig, 2)
    first.drop()
    assert shares(rig, second) == [[]]

    again = rig.resumed("s")
    [resent] = again.messages(1)
    assert (resent.payload, resent.packet_id, resent.dup) == (b"x", message.packet_id, True)


def test_qos_2_that_was_begun_goes_to_nobody_else_when_its_session_ends(rig: Rig) -> None:
    """5.0: 4.8.2-5."""
    first = rig.client()
    first.subscribe((shared(rig), 2))
    rig.client().publish(rig.topic(), b"x", qos=2)
    [message] = first.messages(1, accept=False)
    first.send(wire.ack(Kind.PUBREC, message.packet_id))
    first.receive(Kind.PUBREL)
    second = member(rig, 2)
    first.send(wire.disconnect())
    first.until_closed()

    assert shares(rig, second) == [[]]


def test_a_member_that_has_gone_gets_no_more(rig: Rig) -> None:
    """5.0: 4.8.2-3."""
    first, second = member(rig), member(rig)
    first.send(wire.disconnect())
    first.until_closed()
    publisher = rig.client()
    for n in range(6):
        publisher.publish(rig.topic(), b"%d" % n, qos=1)

    assert shares(rig, second) == [[b"%d" % n for n in range(6)]]


def test_unsubscribing_leaves_the_group(rig: Rig) -> None:
    """5.0: 3.10.4-1, 3.10.4-2."""
    first, second = member(rig), member(rig)
    first.send(wire.unsubscribe(7, [shared(rig)]))
    assert first.receive(Kind.UNSUBACK).codes == [0]
    publisher = rig.client()
    for n in range(4):
        publisher.publish(rig.topic(), b"%d" % n, qos=1)

    assert shares(rig, first, second) == [[], [b"0", b"1", b"2", b"3"]]


def test_a_subscription_identifier_comes_with_shared_messages(rig: Rig) -> None:
    """5.0: 3.3.4-3."""
    client = rig.client()
    client.subscribe((shared(rig), 1), found=[(Prop.SUBSCRIPTION_ID, 42)])
    rig.client().publish(rig.topic(), b"x", qos=1)
    assert client.messages(1)[0].values(Prop.SUBSCRIPTION_ID) == [42]


@OWN
def test_queue_filters_are_a_group_of_their_own(rig: Rig) -> None:
    """Beyond the standard: ``$queue/<filter>``."""
    members = [rig.client() for _ in range(2)]
    for client in members:
        client.subscribe((f"$queue/{rig.topic()}", 1), (rig.topic("m"), 1))
    publisher = rig.client()
    for n in range(4):
        publisher.publish(rig.topic(), b"%d" % n, qos=1)

    got = shares(rig, *members)
    assert sorted(payload for share in got for payload in share) == [b"0", b"1", b"2", b"3"]
