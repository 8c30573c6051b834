"""Shards move between two kernels over one storage, under load of all protocols.

Dead letters go to a queue that one node or the other has: by one append while both queues are in
shards of one node, else by a transfer, amid which either shard may move. Nothing that was
acknowledged is lost, doubled or out of order, by the rules of ``tests.support.history``.
"""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.history import Outcome
from tests.support.history_kafka import check_partitions
from tests.support.history_mqtt import check_topics
from tests.support.history_sqs import check_queues
from tests.support.moving_load import (
    DEAD,
    DECLARED,
    MQTT_SUBSCRIBERS,
    REJECTED,
    MovingLoad,
)
from tests.support.two_nodes import SHARDS, TwoNodes
from tests.support.waiting import wait_until

MOVED_TOGETHER_MAX = 8
SENDS_BETWEEN_MOVES = 5
KILLS = 6


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[TwoNodes]:
    with TwoNodes(tmp_path, ["kafka", "mqtt", "sqs"], DECLARED) as nodes:
        yield nodes


@pytest.mark.parametrize("moves", [200, pytest.param(1_000, marks=pytest.mark.soak)])
def test_nothing_is_lost_doubled_or_out_of_order(nodes: TwoNodes, moves: int) -> None:
    chance = random.Random(moves)
    with MovingLoad(nodes) as load:
        for _ in range(moves):
            load.check()
            at = chance.randrange(2)
            held = [one for one in range(SHARDS) if nodes.placements[at].owns(one)]
            count = min(len(held), chance.randint(1, MOVED_TOGETHER_MAX))
            _let_send(load)
            nodes.move(chance.sample(held, count), to=1 - at)

    check_partitions(load.kafka).raise_problems()
    check_topics(load.mqtt, {name: [name] for name in MQTT_SUBSCRIBERS}).raise_problems()
    check_queues(load.sqs).raise_problems()
    check_queues(load.dead, dead_letters={REJECTED: DEAD}).raise_problems()
    assert Counter(one.value for one in load.dead.deliveries) == Counter(list(load.dead.sends))
    assert sum(one.queues._context.transfers.applied for one in nodes.kernels) > 0
    for history in load.histories:
        assert len(history.sends) > moves
    assert nodes.faults == [], nodes.faults[0]


def _let_send(load: MovingLoad) -> None:
    """Wait until each protocol's clients were answered some more."""

    def answered() -> list[int]:
        return [
            sum(send.outcome is Outcome.OK for send in list(one.sends.values())[-64:])
            + len(one.sends)
            for one in load.histories
        ]

    before = answered()

    def are_more() -> bool:
        load.check()
        return all(
            now >= then + SENDS_BETWEEN_MOVES
            for now, then in zip(answered(), before, strict=True)
        )

    wait_until(are_more, within_s=60, what="all clients are answered", every_s=0.002)


# A connection that is accepted in the turn in which its node is killed is nobody's.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_killed_node_loses_and_doubles_nothing(nodes: TwoNodes) -> None:
    """Its shards go to the other node, and come back after a restart, again and again."""
    with MovingLoad(nodes, are_killed=True) as load:
        for turn in range(KILLS):
            victim = turn % 2
            nodes.move(range(0, SHARDS, 2), to=1 - victim)
            _let_send(load)
            nodes.kill(victim)
            _let_send(load)
            nodes.restart(victim)

    check_partitions(load.kafka).raise_problems()
    check_queues(load.sqs).raise_problems()
    check_queues(load.dead, dead_letters={REJECTED: DEAD}).raise_problems()
    assert nodes.faults == [], nodes.faults[0]
