"""Effects of a kill -9 on one client: session, messages in flight, retained messages, wills."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import mqtt_wire as wire
from tests.support.mqtt_gateway import SESSION_EXPIRY_S, MqttGateway
from tests.support.mqtt_raw import RawClient, payloads
from tests.support.mqtt_wire import V3_1_1, V5, Kind, Prop, Received, WillMessage
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("mqtt-restart")]

COUNT = 10


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqttGateway]:
    """One for all tests here: each kills it, and leaves clients and topics of its own."""
    settings = {"adapters.mqtt.session.checkpoint_ms": 50}
    with MqttGateway(tmp_path_factory.mktemp("restart") / "data", settings) as running:
        yield running


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Return the prefix of a test's clients and topics."""
    return re.sub(r"\W+", "-", request.node.name)


def publish_all(gateway: MqttGateway, topic: str, messages: list[bytes], *, qos: int) -> None:
    with gateway.client() as publisher:
        publisher.connect()
        for payload in messages:
            publisher.publish(topic, payload, qos=qos)


def kill(gateway: MqttGateway) -> None:
    """Kill it when all that it has put until now is on the disk.

    What was put while an earlier append was being synced follows when that is done: the first
    message here waits for that, and the second for what follows.
    """
    publish_all(gateway, "flush", numbered(2), qos=1)
    gateway.kill()
    gateway.restart()


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def ids(messages: list[Received]) -> list[int]:
    return [message.packet_id for message in messages]


@pytest.mark.parametrize("version", [V5, V3_1_1])
@pytest.mark.parametrize("qos", [1, 2])
def test_unacknowledged_comes_again_with_its_identifiers(
    gateway: MqttGateway, name: str, qos: int, version: int
) -> None:  # MQTT-4.4.0-1, MQTT-3.3.1-1, MQTT-4.6.0-1
    with gateway.come_back(name, is_present=False, version=version) as subscriber:
        subscriber.subscribe((name, qos))
        publish_all(gateway, name, numbered(COUNT), qos=qos)
        before = subscriber.messages(COUNT, accept=False)
        kill(gateway)

    publish_all(gateway, name, numbered(2, first=COUNT), qos=qos)
    with gateway.come_back(name, version=version) as subscriber:
        again = subscriber.messages(COUNT, accept=False)
        new = subscriber.messages(2, accept=False)

    assert payloads(before + new) == numbered(COUNT + 2)
    assert (ids(again), payloads(again)) == (ids(before), payloads(before))
    assert [message.dup for message in again + new] == [True] * COUNT + [False] * 2
    assert not set(ids(new)) & set(ids(before))


def test_what_was_acknowledged_stays_so(gateway: MqttGateway, name: str) -> None:
    with gateway.come_back(name, is_present=False) as subscriber:
        subscriber.subscribe((name, 1))
        publish_all(gateway, name, numbered(COUNT), qos=1)
        for message in subscriber.messages(COUNT, accept=False)[:4]:
            subscriber.accept(message)
        assert subscriber.ping() == []
    take_rest(gateway, name, numbered(COUNT - 4, first=4))
    kill(gateway)

    with gateway.come_back(name) as subscriber:
        publish_all(gateway, name, [b"last"], qos=1)
        assert payloads(subscriber.messages(1)) == [b"last"]


def test_released_is_released_again(gateway: MqttGateway, name: str) -> None:
    # MQTT-4.4.0-1, MQTT-4.3.3-6
    with gateway.come_back(name, is_present=False) as subscriber:
        subscriber.subscribe((name, 2))
        publish_all(gateway, name, [b"x"], qos=2)
        [message] = subscriber.messages(1, accept=False)
        subscriber.send(wire.ack(Kind.PUBREC, message.packet_id))
        subscriber.receive(Kind.PUBREL)
        kill(gateway)

    with gateway.come_back(name) as subscriber:
        assert subscriber.receive(Kind.PUBREL).packet_id == message.packet_id
        subscriber.send(wire.ack(Kind.PUBCOMP, message.packet_id))
        assert subscriber.ping() == []


def test_identifier_is_known_until_pubrel_and_free_after_pubcomp(
    gateway: MqttGateway, name: str
) -> None:  # MQTT-4.3.3-10, MQTT-4.3.3-12
    publisher_id = f"{name}-publisher"
    with gateway.come_back(name, is_present=False) as subscriber:
        subscriber.subscribe((name, 2))
    with gateway.come_back(publisher_id, is_present=False) as publisher:
        publisher.send(wire.publish(name, b"once", qos=2, packet_id=7))
        publisher.receive(Kind.PUBREC)
        gateway.kill()
        gateway.restart()
    with gateway.come_back(publisher_id) as publisher:
        publisher.send(wire.publish(name, b"once", qos=2, packet_id=7, dup=True))
        publisher.receive(Kind.PUBREC)
        publisher.send(wire.ack(Kind.PUBREL, 7))
        publisher.receive(Kind.PUBCOMP)
        gateway.kill()
        gateway.restart()
    with gateway.come_back(publisher_id) as publisher:
        publisher.send(wire.publish(name, b"another", qos=2, packet_id=7))
        publisher.receive(Kind.PUBREC)

    take_rest(gateway, name, [b"once", b"another"])


def test_a_session_that_ends_with_its_connection_is_gone(
    gateway: MqttGateway, name: str
) -> None:
    with gateway.client() as client, gateway.come_back(f"{name}-2", is_present=False):
        client.connect(name, clean=False)
        client.subscribe((name, 1))
        kill(gateway)

    gateway.come_back(name, is_present=False).drop()
    gateway.come_back(f"{name}-2").drop()


def test_a_kept_session_that_was_to_end_is_gone(gateway: MqttGateway, name: str) -> None:
    gateway.come_back(name, is_present=False).drop()
    with gateway.client() as client:  # from now on it ends with the connection
        assert client.connect(name, clean=False).session_present
        kill(gateway)

    gateway.come_back(name, is_present=False).drop()


def test_unsubscribed_stays_so(gateway: MqttGateway, name: str) -> None:
    with gateway.come_back(name, is_present=False) as subscriber:
        subscriber.subscribe((f"{name}/t", 1), (f"{name}/u", 1))
        subscriber.send(wire.unsubscribe(9, [f"{name}/t"]))
        assert subscriber.receive(Kind.UNSUBACK).codes == [0]
        gateway.kill()
        gateway.restart()

    publish_all(gateway, f"{name}/t", [b"no more"], qos=1)
    publish_all(gateway, f"{name}/u", [b"still"], qos=1)
    take_rest(gateway, name, [b"still"])


@pytest.mark.parametrize("is_replaced", [False, True], ids=["unsubscribed", "replaced"])
def test_the_rest_of_an_ended_subscription_stays(
    gateway: MqttGateway, name: str, *, is_replaced: bool
) -> None:
    topic = f"{name}/t"
    with gateway.come_back(name, is_present=False) as subscriber:
        subscriber.subscribe((topic, 1))
    publish_all(gateway, topic, [b"1", b"2"], qos=1)
    with gateway.client() as subscriber:
        found = [(Prop.SESSION_EXPIRY, 3600), (Prop.RECEIVE_MAXIMUM, 1)]
        assert subscriber.connect(name, clean=False, found=found).session_present
        [first] = subscriber.messages(1, accept=False)
        assert first.payload == b"1"
        if is_replaced:
            subscriber.send(wire.subscribe(9, [(topic, 0)]))
            subscriber.receive(Kind.SUBACK)
        else:
            subscriber.send(wire.unsubscribe(9, [topic]))
            subscriber.receive(Kind.UNSUBACK)
        gateway.kill()
        gateway.restart()

    publish_all(gateway, topic, [b"no more"], qos=1)
    take_rest(gateway, name, [b"1", b"2"])


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_retained_messages_stay_and_removed_ones_stay_away(
    gateway: MqttGateway, name: str, qos: int
) -> None:
    with gateway.client() as publisher:
        publisher.connect()
        for number in range(COUNT):
            publisher.publish(f"{name}/{number}", b"old", qos=qos, retain=True)
            publisher.publish(f"{name}/{number}", b"%d" % number, qos=qos, retain=True)
        for number in range(0, COUNT, 2):
            publisher.publish(f"{name}/{number}", b"", qos=qos, retain=True)
        assert publisher.ping() == []
        kill(gateway)

    with gateway.client() as subscriber:
        subscriber.connect()
        subscriber.subscribe((f"{name}/#", 0))
        came = {message.topic: message.payload for message in subscriber.ping()}
    assert came == {f"{name}/{number}": b"%d" % number for number in range(1, COUNT, 2)}


def test_will_of_who_does_not_come_back_is_published_once(
    gateway: MqttGateway, name: str
) -> None:  # MQTT-3.1.2-8: the end of the node is the end of the connection too
    with gateway.come_back(name, is_present=False) as subscriber:
        subscriber.subscribe((f"{name}/will", 1))
    with connect_with_will(gateway, f"{name}-owner", f"{name}/will"):
        kill(gateway)

    take_rest(gateway, name, [b"gone"])
    kill(gateway)
    with gateway.come_back(name) as subscriber:
        with connect_with_will(gateway, f"{name}-clock", f"{name}/will", b"later"):
            pass
        [message] = subscriber.messages(1)  # a repeated one would be due before it
        assert (message.payload, message.qos) == (b"later", 1)


def test_will_of_who_comes_back_is_not_published(gateway: MqttGateway, name: str) -> None:
    # MQTT-3.1.3-9
    delay_s = 4  # from the restart: time enough to come back, also on a busy machine
    with gateway.come_back(name, is_present=False) as subscriber:
        subscriber.subscribe((f"{name}/will", 1))
    with connect_with_will(gateway, f"{name}-owner", f"{name}/will", delay_s=delay_s):
        kill(gateway)

    with (
        gateway.come_back(f"{name}-owner") as client,
        gateway.come_back(name) as subscriber,
    ):
        own = (f"{name}-clock", f"{name}/will", b"later")
        with connect_with_will(gateway, *own, delay_s=delay_s):
            pass
        assert payloads(subscriber.messages(1)) == [b"later"]  # its delay began after
        assert client.ping() == []


def test_shared_subscription_goes_on_where_it_stood(gateway: MqttGateway, name: str) -> None:
    with gateway.come_back(name, is_present=False) as member:
        member.subscribe((f"$share/{name}/{name}", 1))
        publish_all(gateway, name, numbered(COUNT), qos=1)
        assert payloads(member.messages(COUNT)) == numbered(COUNT)
        assert member.ping() == []
    publish_all(gateway, name, numbered(COUNT, first=COUNT), qos=1)
    kill(gateway)

    publish_all(gateway, name, numbered(COUNT, first=2 * COUNT), qos=1)
    take_rest(gateway, name, numbered(2 * COUNT, first=COUNT))


def test_shared_subscription_stands_where_it_began(tmp_path: Path) -> None:
    settings = {"adapters.mqtt.session.checkpoint_ms": 3_600_000}
    with MqttGateway(tmp_path / "data", settings) as gateway:
        with gateway.come_back("one", is_present=False) as member:
            member.subscribe(("$share/g/t", 1))
            gateway.kill()
            gateway.restart()

        publish_all(gateway, "t", numbered(2), qos=1)
        take_rest(gateway, "one", numbered(2))


def test_what_a_member_of_a_group_had_comes_again_to_it(
    gateway: MqttGateway, name: str
) -> None:  # section 4.8.2: what is on its way to a session stays its own
    members = [f"{name}-0", f"{name}-1"]
    before = {}
    with (
        gateway.come_back(members[0], is_present=False) as first,
        gateway.come_back(members[1], is_present=False) as second,
    ):
        for member in (first, second):
            member.subscribe((f"$share/{name}/{name}", 2))
        publish_all(gateway, name, numbered(COUNT), qos=2)  # dealt out in turn
        for member in (first, second):
            before[member.client_id] = member.messages(COUNT // 2, accept=False)
        kill(gateway)

    dealt = [payload for messages in before.values() for payload in payloads(messages)]
    assert sorted(dealt, key=int) == numbered(COUNT)
    for member_id, messages in before.items():
        with gateway.come_back(member_id) as member:
            again = member.messages(COUNT // 2)
            assert all(message.dup for message in again)
            assert (ids(again), payloads(again)) == (ids(messages), payloads(messages))
            assert member.ping() == []


def take_rest(gateway: MqttGateway, client_id: str, expected: list[bytes]) -> None:
    """Come back for exactly these messages, and have that written down."""
    with gateway.come_back(client_id) as subscriber:
        assert payloads(subscriber.messages(len(expected))) == expected
        assert subscriber.ping() == []
        subscriber.send(wire.disconnect())
        assert subscriber.until_closed() == []


def connect_with_will(
    gateway: MqttGateway,
    client_id: str,
    topic: str,
    payload: bytes = b"gone",
    *,
    delay_s: int = 1,
) -> RawClient:
    client = gateway.client()
    will = WillMessage(topic, payload, qos=1, properties=[(Prop.WILL_DELAY, delay_s)])
    expiry = [(Prop.SESSION_EXPIRY, SESSION_EXPIRY_S)]
    assert not client.connect(client_id, clean=False, found=expiry, will=will).session_present
    return client


def test_what_is_due_while_the_node_is_away_is_retained_then(
    gateway: MqttGateway, name: str
) -> None:
    with gateway.client() as publisher:
        publisher.connect()
        publisher.publish(f"$delayed/1/{name}", b"later", qos=1, retain=True)
    due_s = time.time() + 1
    gateway.kill()
    wait_until(lambda: time.time() > due_s, within_s=30, what="due")
    gateway.restart()

    wait_until(
        lambda: gateway.metric("headgate_delayed_messages") == 0, within_s=30, what="moved"
    )
    with gateway.client() as subscriber:
        subscriber.connect()
        subscriber.subscribe((name, 1))
        [found] = subscriber.messages(1)

    assert (found.payload, found.retain) == (b"later", True)
