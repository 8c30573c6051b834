"""Sessions, retained messages and shared subscriptions of MQTT live through moves of their shards.

Two nodes share a storage; shards of clients, of topics and of shared subscriptions move between
them, each by itself or together. Clients go to the node that serves their session.
"""

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.support.history import History, Outcome
from tests.support.history_mqtt import check_topics
from tests.support.mqtt_durable import DurableClient
from tests.support.mqtt_moving import MovingPublisher, MovingSubscriber, client_beside
from tests.support.mqtt_raw import RawClient
from tests.support.two_nodes import HOSTS, SHARDS, TwoNodes
from tests.support.waiting import wait_until

PARTITIONS: Final = 8
DECLARED: Final = f"""
[[topics]]
name = "mqtt"
partitions = {PARTITIONS}
"""
MOVED_TOGETHER_MAX: Final = 24
SENDS_BETWEEN_MOVES: Final = 3


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[TwoNodes]:
    with TwoNodes(tmp_path, ["mqtt"], DECLARED) as nodes:
        yield nodes


class Load:
    """Publishers and subscribers with sessions, on both nodes."""

    def __init__(self, nodes: TwoNodes) -> None:
        port = nodes.ports["mqtt"]
        self.history = history = History()
        self.publishers = [
            MovingPublisher(
                port,
                f"{name}-{index}",
                topics=tuple(f"{name}/{index}/{number}" for number in range(4)),
                qos=qos,
                history=history,
                retain=retain,
            )
            for name, qos, retain in (
                ("twice", 1, False),
                ("once", 2, False),
                ("kept", 2, True),
            )
            for index in range(2)
        ]
        beside = client_beside(nodes, "once-beside", "once/beside")  # its node takes the topic
        self.publishers.append(
            MovingPublisher(port, beside, topics=("once/beside",), qos=2, history=history)
        )
        filters = ("twice/#", "once/#", "kept/#")
        self.subscribers = [
            MovingSubscriber(port, "at-least", filters=filters, qos=1, history=history),
            MovingSubscriber(port, "exactly", filters=filters, qos=2, history=history),
            *(
                MovingSubscriber(
                    port,
                    f"member-{index}",
                    filters=tuple(f"$share/g/{one}" for one in filters),
                    qos=2,
                    history=history,
                )
                for index in range(3)
            ),
        ]
        self.receivers: Mapping[str, list[str]] = {
            "at-least": ["at-least"],
            "exactly": ["exactly"],
            "g": [f"member-{index}" for index in range(3)],
        }

    def clients(self) -> list[DurableClient]:
        return [*self.publishers, *self.subscribers]

    def check(self) -> None:
        for client in self.clients():
            assert client.failures == []

    def missing(self) -> str:
        """Return who lacks what was acknowledged; empty when nobody does."""
        sent = [one for one in list(self.history.sends.values()) if one.outcome is Outcome.OK]
        deliveries = list(self.history.deliveries)
        for name, members in self.receivers.items():
            came = {one.value for one in deliveries if one.client in members}
            for send in sent:
                if send.value not in came:
                    return f"{name} lacks {send}"
        return ""

    def acknowledged(self) -> int:
        sends = list(self.history.sends.values())
        return sum(one.outcome is Outcome.OK for one in sends)


@pytest.mark.parametrize("moves", [50, pytest.param(1_000, marks=pytest.mark.soak)])
def test_nothing_is_lost_doubled_or_out_of_order(nodes: TwoNodes, moves: int) -> None:
    chance = random.Random(moves)
    load = Load(nodes)
    for subscriber in load.subscribers:
        subscriber.start()
    wait_until(
        lambda: all(one.is_subscribed for one in load.subscribers),
        within_s=60,
        what="all have subscribed",
    )
    for publisher in load.publishers:
        publisher.start()
    try:
        for _ in range(moves):
            _let_publish(load)
            at = chance.randrange(2)
            held = [one for one in range(SHARDS) if nodes.placements[at].owns(one)]
            count = min(len(held), chance.randint(1, MOVED_TOGETHER_MAX))
            nodes.move(chance.sample(held, count), to=1 - at)
    finally:
        nodes.move_all(to=0)
        for publisher in load.publishers:
            publisher.finish()
        _wait_for_all(load)
        for subscriber in load.subscribers:
            subscriber.finish()

    check_topics(load.history, load.receivers).raise_problems()
    _check_retained(nodes, load)
    assert sum(one.moves for one in load.clients()) > moves
    assert sum(one.refused for one in load.publishers) > 0
    assert nodes.faults == [], nodes.faults[0]


def _let_publish(load: Load) -> None:
    """Wait until some more messages are acknowledged."""
    wanted = load.acknowledged() + SENDS_BETWEEN_MOVES

    def are_more() -> bool:
        load.check()
        return load.acknowledged() >= wanted

    wait_until(are_more, within_s=60, what="publishers are answered", every_s=0.002)


def _check_retained(nodes: TwoNodes, load: Load) -> None:
    retaining = [one for one in load.publishers if one.retain]
    wanted = {topic: last for one in retaining for topic, last in one.last.items()}
    with RawClient(nodes.ports["mqtt"], host=HOSTS[0]) as client:
        client.connect("late")
        client.subscribe(("kept/#", 0))
        found = {one.topic: one.payload for one in client.messages(len(wanted))}
    assert found == wanted


def _wait_for_all(load: Load) -> None:
    def is_all_taken() -> bool:
        load.check()
        return not load.missing()

    try:
        wait_until(is_all_taken, within_s=60, what="all messages are taken", every_s=0.1)
    except TimeoutError as error:
        raise TimeoutError(load.missing()) from error
