"""Dead letters and redrives to a queue of another node's log: each message once, whoever dies."""

from collections.abc import Callable
from pathlib import Path

import pytest

from features.queue.model import Result
from gateway.errors import StorageUnavailable
from gateway.model import TopicName
from gateway.queues.manager import Queue
from gateway.queues.model import DeliveryId, Outcome, QueueSettings
from gateway.topics.manager import Topic
from gateway.transfer import transfers as transfers_module
from tests.gateway.queues.queue_node import take, values
from tests.gateway.transfer.test_transfers import LOWER, UPPER, all_are_clear
from tests.gateway.transfer.two_nodes import (
    Cluster,
    ClusterNode,
    run_of,
    two_nodes,
)
from tests.support.lossy_network import Chances
from tests.support.waiting import turns, until

LEASE_MS = 1_000
MESSAGES = [b"%d" % number for number in range(5)]
NAMES_MAX = 100


@pytest.fixture(autouse=True)
def _retry_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers_module, "RETRY_S", 0.001)


async def topic_in(cluster: Cluster, name: str, shards: range) -> Topic:
    """Make a topic of one partition that lies in some shards."""
    for number in range(NAMES_MAX):
        topic = await cluster.topic(f"{name}-{number}", 1, cleanup_policy="queue")
        if cluster.numbers(topic, shards):
            return topic
    raise AssertionError("none of the names lies there")


class Queues:
    """A queue of the first node, whose dead letters go to a queue of the second."""

    def __init__(self, cluster: Cluster, work: Topic, dead: Topic) -> None:
        self.cluster = cluster
        self.work_topic = work
        self.dead_topic = dead

    @classmethod
    async def made(cls, cluster: Cluster) -> "Queues":
        work = await topic_in(cluster, "work", LOWER)
        dead = await topic_in(cluster, "dead", UPPER)
        await cluster.start()
        found = cls(cluster, work, dead)
        settings = QueueSettings(lease_ms=LEASE_MS, dead_letter_topic=dead.name.name)
        first, second = cluster.nodes
        await first.queues.create(first.topics.get(work.name), settings)
        await second.queues.create(second.topics.get(dead.name), QueueSettings())
        return found

    @property
    def work(self) -> Queue:
        return self.find(self.cluster.first, self.work_topic.name)

    @property
    def dead(self) -> Queue:
        return self.find(self.cluster.second, self.dead_topic.name)

    def find(self, node: ClusterNode, name: TopicName) -> Queue:
        queue = node.queues.find(name)
        assert queue is not None
        return queue

    async def send(self, node: ClusterNode, queue: Queue) -> None:
        sent: list[object] = []
        coalescer = node.queues.coalescer
        for value in MESSAGES:
            coalescer.add(queue.partition_for(b"k"), run_of(value), sent.append)
        await until(lambda: len(sent) == len(MESSAGES))

    async def reject_all(self) -> list[Result]:
        """Take what is there and reject it; end early when a node dies."""
        got = await take(self.work)
        items: list[tuple[DeliveryId, Outcome]] = [
            (one.delivery_id, Outcome.REJECT) for one in got
        ]
        answers: list[tuple[list[Result], StorageUnavailable | None]] = []
        self.work.settle(items, lambda *answer: answers.append(answer))
        nodes = self.cluster.nodes
        await until(lambda: bool(answers) or any(node.storage.is_dead for node in nodes))
        return answers[0][0] if answers else []

    def dead_values(self) -> list[bytes | None]:
        return self.cluster.second.values(self.dead_topic, 0)


async def test_a_dead_letter_goes_to_another_nodes_queue(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as cluster:
        queues = await Queues.made(cluster)
        await queues.send(cluster.first, queues.work)
        results = await queues.reject_all()
        assert results == [Result.DONE] * len(MESSAGES)
        await until(lambda: all_are_clear(cluster))
        await until(lambda: queues.dead.counts().ready == len(MESSAGES))
        got = await take(queues.dead)
        assert values(got) == MESSAGES
        headers = dict(got[0].record.headers)
        assert headers["dlq.source.topic"] == queues.work_topic.name.name.encode()
        assert queues.work.counts() == (0, 0, 0)


async def test_a_redrive_goes_to_another_nodes_queue(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, chances=Chances()) as cluster:
        queues = await Queues.made(cluster)
        await queues.send(cluster.first, queues.work)
        await queues.reject_all()
        await until(lambda: queues.dead.counts().ready == len(MESSAGES))
        redrive = cluster.second.queues.redrives.start(
            queues.dead, destination=None, rate_per_s=None
        )
        await until(lambda: not redrive.is_active)
        await until(lambda: queues.work.counts().ready == len(MESSAGES))
        assert (redrive.status, redrive.moved) == ("COMPLETED", len(MESSAGES))
        assert values(await take(queues.work)) == MESSAGES
        assert queues.dead.counts() == (0, 0, 0)


STEPS = [
    pytest.param(0, 1, id="source-takes"),
    pytest.param(0, 2, id="source-begins"),
    pytest.param(0, 3, id="source-ends"),
    pytest.param(1, 1, id="target-applies"),
]


@pytest.mark.parametrize("stores_last", [True, False], ids=["stored", "lost"])
@pytest.mark.parametrize(("victim", "kill_at"), STEPS)
async def test_a_kill_at_each_append_of_a_move(
    tmp_path: Path, kill_at: int, victim: int, *, stores_last: bool
) -> None:
    async with two_nodes(tmp_path) as cluster:
        queues = await Queues.made(cluster)
        await queues.send(cluster.first, queues.work)
        node = cluster.nodes[victim]
        node.storage.stores_last = stores_last
        node.storage.appends_left = kill_at
        await queues.reject_all()
        await turns(100)
        assert node.storage.is_dead
        await node.restart()
        await finish(cluster, queues)
        assert sorted(queues.dead_values(), key=bytes_of) == MESSAGES
        assert queues.work.counts() == (0, 0, 0)


def bytes_of(value: bytes | None) -> bytes:
    return value or b""


async def finish(cluster: Cluster, queues: Queues) -> None:
    """Reject what came back, until nothing is left; every transfer ends."""
    is_over: Callable[[], bool] = lambda: queues.work.counts() == (0, 0, 0)  # noqa: E731
    for _ in range(10):
        await turns(100)
        if is_over():
            break
        cluster.clock.advance(10 * LEASE_MS)
        cluster.first.queues._context.leases.run_due()
        await queues.reject_all()
    assert is_over()
    await until(lambda: all_are_clear(cluster))
