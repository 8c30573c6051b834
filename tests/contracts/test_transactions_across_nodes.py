"""Transactions over two nodes, while shards move between them and nodes are killed.

A transaction writes to partitions of both nodes and commits an offset of a group of either; its
coordinator may be the other one. By the rules of ``tests.support.transaction_history`` each is
there as a whole in the end, once, or not at all, and readers of committed data agree.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.transaction_load import PARTITIONS, TransactionLoad
from tests.support.transaction_history import find_anomalies
from tests.support.two_nodes import HOSTS, SHARDS, TwoNodes
from tests.support.waiting import wait_until

DECLARED = f"""
[[topics]]
name = "ledger"
partitions = {PARTITIONS}
[[topics]]
name = "ledger-in"
partitions = 1
"""
WORKERS = 3
MOVES = 40
KILLS = 4
MOVED_TOGETHER_MAX = 16
COMMITS_BETWEEN = 2
WITHIN_S = 120


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[TwoNodes]:
    with TwoNodes(tmp_path, ["kafka"], DECLARED) as nodes:
        yield nodes


@pytest.fixture
def load(nodes: TwoNodes) -> Iterator[TransactionLoad]:
    port = nodes.ports["kafka"]
    bootstrap = ",".join(f"{host}:{port}" for host in HOSTS)
    one = TransactionLoad(bootstrap, "ledger", WORKERS, creates=False)
    one.start()
    try:
        yield one
    finally:
        one.stop()


def commit_some(load: TransactionLoad, count: int = COMMITS_BETWEEN) -> None:
    enough = load.committed + count
    wait_until(
        lambda: bool(load.faults) or load.committed >= enough,
        within_s=WITHIN_S,
        what="transactions are committed",
    )


def finish(nodes: TwoNodes, load: TransactionLoad) -> None:
    """End the load; return when no end of a transaction is on its way to a node."""
    commit_some(load)
    load.stop()
    wait_until(
        lambda: nodes.call(
            lambda: (
                not any(
                    one.state.is_prepared
                    for kernel in nodes.kernels
                    for one in kernel.transactions.values.values()
                )
            )
        ),
        within_s=WITHIN_S,
        what="ends of transactions are everywhere",
    )
    final = load.final()
    assert find_anomalies(load.attempts, final) == []
    assert load.wrong_offsets() == []
    assert nodes.faults == [], nodes.faults[0]


def applied(nodes: TwoNodes) -> int:
    return sum(one.queues.transfers.applied for one in nodes.kernels)


def test_transactions_are_whole_while_shards_move(
    nodes: TwoNodes, load: TransactionLoad
) -> None:
    chance = random.Random(25)
    nodes.move(range(0, SHARDS, 2), to=1)
    for _ in range(MOVES):
        commit_some(load)
        at = chance.randrange(2)
        held = [one for one in range(SHARDS) if nodes.placements[at].owns(one)]
        count = min(len(held), chance.randint(1, MOVED_TOGETHER_MAX))
        nodes.move(chance.sample(held, count), to=1 - at)

    finish(nodes, load)
    assert applied(nodes) > 0


# A connection that is accepted in the turn in which its node is killed is nobody's.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_transactions_are_whole_when_a_node_is_killed(
    nodes: TwoNodes, load: TransactionLoad
) -> None:
    for turn in range(KILLS):
        victim = turn % 2
        nodes.move(range(0, SHARDS, 2), to=1 - victim)
        commit_some(load)
        nodes.kill(victim)
        commit_some(load)
        nodes.restart(victim)

    finish(nodes, load)
