"""Transfers to a partition whose memory is full wait for it alone, and not for ever."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.errors import Overloaded, StorageUnavailable
from gateway.topics.manager import Topic
from gateway.transfer import transfers as transfers_module
from gateway.transfer import waiting_for_memory
from gateway.transfer.payload import Addressed
from gateway.transfer.waiting_for_memory import WaitingForMemory
from tests.gateway.transfer.test_transfers import LOWER, UPPER, all_are_clear
from tests.gateway.transfer.two_nodes import Cluster, run_of, two_nodes
from tests.support.waiting import turns, until


@pytest.fixture(autouse=True)
def _retry_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers_module, "RETRY_S", 0.001)
    monkeypatch.setattr(waiting_for_memory, "RETRY_S", 0.001)
    monkeypatch.setattr(waiting_for_memory, "RETRY_S_MAX", 0.002)


class Memory:
    """Room in the second node's memory, for so many bytes."""

    def __init__(self, cluster: Cluster) -> None:
        self.room_bytes = 0
        self.looks = 0
        cluster.second.broker.memory.check_room = self.check

    def check(self, size_bytes: int) -> None:
        self.looks += 1
        if size_bytes > self.room_bytes:
            raise Overloaded("memory.bytes_max is nearly reached")


class Nodes:
    """Two nodes, a topic in memory and one in the log, in the same shard of the second node."""

    def __init__(self, cluster: Cluster, in_memory: Topic, durable: Topic) -> None:
        self.cluster = cluster
        self.in_memory = in_memory
        self.durable = durable
        self.memory = Memory(cluster)
        self.number = cluster.numbers(in_memory, UPPER)[0]
        shard = cluster.second.broker.partition(in_memory, self.number).shard
        self.durable_number = cluster.numbers(durable, [shard])[0]

    @property
    def waiting(self) -> WaitingForMemory:
        waiting = self.cluster.second.transfers.waiting
        assert waiting is not None
        return waiting

    def send(self, *values: bytes, durable: bytes = b"") -> None:
        """Transfer messages to the topic in memory, and one to the durable one."""
        parts = [Addressed(self.in_memory, self.number, run_of(value)) for value in values]
        if durable:
            parts.append(Addressed(self.durable, self.durable_number, run_of(durable)))
        self.cluster.first.append(LOWER[0], parts, _check)

    def found(self) -> tuple[list[bytes | None], list[bytes | None]]:
        second = self.cluster.second
        return (
            second.values(self.in_memory, self.number),
            second.values(self.durable, self.durable_number),
        )


def _check(error: StorageUnavailable | None) -> None:
    assert error is None


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    async with two_nodes(tmp_path) as cluster:
        in_memory = await cluster.topic("m", storage_class="memory")
        durable = await cluster.topic("t")
        await cluster.start()
        yield Nodes(cluster, in_memory, durable)


async def test_what_is_durable_does_not_wait_for_room_in_memory(nodes: Nodes) -> None:
    nodes.send(b"1", durable=b"a")
    nodes.send(durable=b"b")

    await until(lambda: all_are_clear(nodes.cluster))

    assert nodes.found() == ([], [b"a", b"b"])
    assert nodes.waiting.waiting_bytes > 0


async def test_what_waits_follows_in_order_when_there_is_room(nodes: Nodes) -> None:
    nodes.send(b"1", b"2", durable=b"a")
    nodes.send(b"3")
    await until(lambda: all_are_clear(nodes.cluster))
    nodes.memory.room_bytes = 1_000
    nodes.send(b"4")

    await until(lambda: len(nodes.found()[0]) == 4)

    assert nodes.found()[0] == [b"1", b"2", b"3", b"4"]
    assert (nodes.waiting.waiting_bytes, nodes.waiting.dropped) == (0, 0)


async def test_it_is_tried_a_bounded_number_of_times(nodes: Nodes) -> None:
    nodes.send(b"1", b"2")

    await until(lambda: nodes.waiting.dropped == 2)

    assert nodes.memory.looks <= waiting_for_memory.TRIES_MAX + 2
    assert nodes.waiting.waiting_bytes == 0
    nodes.memory.room_bytes = 1_000
    nodes.send(b"3")
    await until(lambda: nodes.found()[0] == [b"3"])


async def test_the_bytes_that_wait_are_bounded(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_for_memory, "WAITING_BYTES_MAX", 5_000)
    monkeypatch.setattr(waiting_for_memory, "TRIES_MAX", 1 << 30)

    for number in range(10):
        nodes.send(bytes([number]) * 1_000)
    await until(lambda: all_are_clear(nodes.cluster))

    assert nodes.waiting.dropped == 6
    assert nodes.waiting.waiting_bytes <= 5_000


async def test_a_transfer_that_is_not_applied_leaves_nothing_behind(nodes: Nodes) -> None:
    second = nodes.cluster.second
    second.storage.is_dead = True  # refuses
    nodes.send(b"1", durable=b"a")
    await turns(100)
    assert nodes.waiting.waiting_bytes == 0
    assert not all_are_clear(nodes.cluster)

    second.storage.is_dead = False
    nodes.memory.room_bytes = 1_000

    await until(lambda: nodes.found() == ([b"1"], [b"a"]))
    await until(lambda: all_are_clear(nodes.cluster))


async def test_a_target_that_refuses_is_asked_less_and_less(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    transfers = nodes.cluster.first.transfers
    call_later = transfers._loop.call_later

    class Loop:
        def call_later(self, pause_s: float, *call: object) -> object:
            pauses.append(pause_s)
            return call_later(0, *call)  # type: ignore[arg-type]

    monkeypatch.setattr(transfers, "_loop", Loop())
    nodes.cluster.second.storage.is_dead = True  # refuses
    nodes.send(durable=b"a")
    await until(lambda: len(pauses) >= 8)

    nodes.cluster.second.storage.is_dead = False
    await until(lambda: all_are_clear(nodes.cluster))

    assert pauses[:8] == [0.001 * 2**count for count in (0, 1, 2, 3, 4, 5, 5, 5)]
