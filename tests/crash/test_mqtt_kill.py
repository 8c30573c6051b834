"""kill -9 at random moments under MQTT load: what was acknowledged arrives, QoS 2 exactly once.

Publishers and persistent subscribers keep their side of the sessions, as MQTT wants it of clients,
and come back after each kill. Data handed to the kernel survives the death of a process, so each
flush policy promises the same here.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.crash.kill_schedule import how_often, moments, small_segments
from tests.support.history import History
from tests.support.history_mqtt import check_topics
from tests.support.mqtt_durable import (
    DurableClient,
    Message,
    Publisher,
    Subscriber,
    acknowledged_by,
    parse,
)
from tests.support.mqtt_gateway import MqttGateway
from tests.support.mqtt_raw import RawClient
from tests.support.mqtt_wire import V3_1_1
from tests.support.waiting import wait_until

ACKS_BETWEEN_KILLS_MAX = 400
PROGRESS_S_MAX = 180
CHECKPOINT_MS = {"group": 50, "never": 1_000}  # kills between many, and between few

pytestmark = pytest.mark.crash


@how_often(12, 100)
@pytest.mark.parametrize("flush", ["group", "never"])
def test_acknowledged_messages_arrive_after_kills(
    tmp_path: Path, flush: str, kills: int
) -> None:
    settings = {
        **small_segments(flush, 1 << 20),
        "adapters.mqtt.session.checkpoint_ms": CHECKPOINT_MS[flush],
    }
    history = History()
    with MqttGateway(tmp_path / "data", settings) as gateway:
        publish = partial(Publisher, gateway.mqtt_port, history=history)
        publishers = (
            publish("plain", topics=("load/a", "load/b"), qos=1),
            publish("once", topics=("load/a", "load/c"), qos=2),
            publish("once-3", topics=("load/d",), qos=2, version=V3_1_1),
            publish("kept", topics=("load/e", "load/f"), qos=1, retain=True),
        )
        subscribe = partial(Subscriber, gateway.mqtt_port, history=history)
        subscribers = (
            subscribe("one", filters=("load/#",), qos=1),
            subscribe("two", filters=("load/#",), qos=2),
            subscribe("two-3", filters=("load/+",), qos=2, version=V3_1_1),
        )
        members = (
            subscribe("member-1", filters=("$share/g/load/#",), qos=2),
            subscribe("member-2", filters=("$share/g/load/#",), qos=2),
        )
        for subscriber in (*subscribers, *members):
            subscriber.start()
            wait_until(
                partial(_is_subscribed, subscriber), within_s=PROGRESS_S_MAX, what="SUBACK"
            )
        for publisher in publishers:
            publisher.start()

        clients = (*publishers, *subscribers, *members)

        def is_met() -> bool:
            return all(one.redelivered for one in subscribers) and all(
                publisher.resent for publisher in publishers
            )

        _kill_under_load(gateway, publishers, clients, kills=kills, is_met=is_met)
        for publisher in publishers:
            publisher.finish()
        for subscriber in subscribers:
            _wait_for_all((subscriber,), publishers)
            subscriber.finish()
        _wait_for_all(members, publishers)
        for member in members:
            member.finish()

    receivers = {one.client_id: [one.client_id] for one in subscribers}
    receivers["$share/g"] = [member.client_id for member in members]
    check_topics(history, receivers).raise_problems()
    assert all(member.came for member in members), "one member got all"
    assert all(subscriber.redelivered for subscriber in subscribers), "no kill met a message"
    assert all(publisher.resent for publisher in publishers), "no kill met a publish"


def _is_subscribed(subscriber: Subscriber) -> bool:
    return subscriber.is_subscribed


def _wait_for_all(
    subscribers: tuple[Subscriber, ...], publishers: tuple[Publisher, ...]
) -> None:
    """Wait until all that was published has come to one or another of the subscribers."""
    sent = {message for publisher in publishers for message in publisher.all_sent()}
    try:
        wait_until(
            partial(_have_all, subscribers, len(sent)),
            within_s=PROGRESS_S_MAX,
            what="all comes",
        )
    except TimeoutError:
        missing = sorted(sent.difference(*(one.came for one in subscribers)))
        pytest.fail(f"{len(missing)} messages are missing: {missing[:10]}; {subscribers}")


def _have_all(subscribers: tuple[Subscriber, ...], count: int) -> bool:
    assert [failure for one in subscribers for failure in one.failures] == []
    return len(set().union(*(one.came for one in subscribers))) >= count


def _kill_under_load(
    gateway: MqttGateway,
    publishers: tuple[Publisher, ...],
    clients: tuple[DurableClient, ...],
    *,
    kills: int,
    is_met: Callable[[], bool],
) -> None:
    acknowledged = acknowledged_by(*publishers)

    def progress() -> int:
        assert [failure for client in clients for failure in client.failures] == []
        return acknowledged()

    for moment in moments(
        kills,
        progress,
        apart_max=ACKS_BETWEEN_KILLS_MAX,
        within_s=PROGRESS_S_MAX,
        is_met=is_met,
    ):
        gateway.kill()
        promised = last_numbers(publishers[-1].acknowledged.copy())
        gateway.restart()
        kept = last_numbers(retained(gateway.mqtt_port))
        lost = {
            topic: number for topic, number in promised.items() if kept.get(topic, -1) < number
        }
        assert not lost, f"{moment}: retained {lost} are gone, {kept} are there"


def retained(port: int) -> list[Message]:
    """Return the retained messages of the load, and what is published meanwhile."""
    with RawClient(port, version=V3_1_1) as client:
        client.connect("looks")
        client.subscribe_past_messages(("load/e", 0), ("load/f", 0))
        return [parse(message.payload) for message in client.ping()]


def last_numbers(messages: list[Message]) -> dict[str, int]:
    """Return the highest number of each topic."""
    found: dict[str, int] = {}
    for message in messages:
        found[message.topic] = max(found.get(message.topic, -1), message.number)
    return found
