"""Delayed messages of another shard than their own are moved there, one shard after the other."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from gateway.delays import moving as moving_module
from gateway.delays.sharded import ShardedDelays
from gateway.errors import StorageUnavailable
from gateway.model import TopicName
from gateway.placement import shard_of
from gateway.testing.placement import SettablePlacement
from gateway.topics.manager import Topic
from gateway.transfer import transfers as transfers_module
from tests.gateway.delays.test_delay_shards import (
    EXPECTED,
    LATER_MS,
    PARTITIONS,
    SHARDS,
    delayed,
    delivered,
    homes,
    opened,
    restarted,
    used,
)
from tests.gateway.kernel_in_memory import House, outcome, running
from tests.gateway.transfer.test_transfers import UPPER, all_are_clear
from tests.gateway.transfer.two_nodes import Cluster, ClusterNode, two_nodes
from tests.support.lossy_network import Chances
from tests.support.waiting import turns, until

WORK = TopicName("default", "work")


@pytest.fixture(autouse=True)
def _retry_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers_module, "RETRY_S", 0.001)
    monkeypatch.setattr(moving_module, "RETRY_S", 0.001)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """A node whose delayed messages are all in shard 0, as in directories of earlier versions."""
    async with running(tmp_path, shard_count=1) as one:
        delays = await opened(one)
        await delayed(one, delays)
        delays.close()
        yield one


async def with_some_shards(house: House, shards: set[int]) -> ShardedDelays:
    house.placement = SettablePlacement(SHARDS)
    house.placement.give([one for one in range(SHARDS) if one not in shards])
    return await restarted(house, SHARDS)


async def take(house: House, shards: Sequence[int]) -> None:
    assert isinstance(house.placement, SettablePlacement)
    house.placement.take(shards)
    await house.broker.shards.settled()


def misplaced(delays: ShardedDelays) -> int:
    return sum(len(one.stream.misplaced) for one in delays._by_number.values())


@pytest.mark.parametrize("first", ["shard-0", "others"])
async def test_messages_move_as_their_shards_are_opened(house: House, first: str) -> None:
    others = [one for one in range(SHARDS) if one]
    delays = await with_some_shards(house, {0} if first == "shard-0" else set(others))
    if first == "others":
        assert delays.total == 0
        await take(house, [0])
    else:
        left = misplaced(delays)
        for shard in others:
            await take(house, [shard])
            assert misplaced(delays) <= left
            left = misplaced(delays)
            assert delays.total == PARTITIONS * 20, "none is lost or there twice"
    topic = house.topics.get(WORK)
    assert misplaced(delays) == 0
    assert used(house) >= homes(house, topic)
    assert {n for n, one in delays._by_number.items() if one.total} == homes(house, topic)
    assert await delivered(house, delays) == EXPECTED


async def test_messages_of_a_closed_shard_hold_up_no_others(house: House) -> None:
    topic = house.topics.get(WORK)
    kept = shard_of(topic, 0, SettablePlacement(SHARDS))
    delays = await with_some_shards(house, {0, kept})
    own = [n for n in range(PARTITIONS) if house.broker.owns(topic, n)]
    house.clock.advance(2 * LATER_MS)
    delays.start()
    await until(lambda: delays.total == (PARTITIONS - len(own)) * 20)

    house.clock.advance(2_000)  # the refused ones are tried again
    await take(house, [one for one in range(SHARDS) if one not in {0, kept}])

    assert await delivered(house, delays) == EXPECTED


@pytest.mark.parametrize("appends", range(4))
async def test_a_move_that_was_cut_short_goes_on_with_other_shards(
    house: House, appends: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node dies at an append as shards come; the next one opens them in another order."""
    delays = await with_some_shards(house, {0})
    append, left = house.broker.append, appends

    def dying(*args: object, **how: bool) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise StorageUnavailable("killed")
        append(*args, **how)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(house.broker, "append", dying)
        assert isinstance(house.placement, SettablePlacement)
        house.placement.take(range(1, SHARDS))
        await until(lambda: left < 0)
        house.broker.shards.close()
        delays.close()

    delays = await with_some_shards(house, set(range(SHARDS // 2)))
    await take(house, range(SHARDS // 2, SHARDS))
    assert misplaced(delays) == 0
    assert delays.total == PARTITIONS * 20
    assert await delivered(house, delays) == EXPECTED


# --- shards of two nodes, by transfers


async def filled(cluster: Cluster) -> Topic:
    """Give the first node's log delayed messages for all partitions, all in shard 0."""
    await cluster.topic(WORK.name, PARTITIONS)
    house = House(cluster.metadata, cluster.first.storage, cluster.clock)
    await house.open()
    delays = await opened(house)
    topic, _ = await delayed(house, delays)
    delays.close()
    await house.close()
    return topic


async def delivered_by_both(cluster: Cluster) -> dict[int, list[bytes]]:
    """Let time pass; return what each partition has in either log."""
    cluster.clock.advance(2 * LATER_MS)
    found: dict[int, list[bytes]] = {}
    for node in cluster.nodes:
        await drained(node)
        topic = node.topics.get(WORK)
        for number in range(PARTITIONS):
            values = [value or b"" for value in node.values(topic, number)]
            found[number] = sorted(found.get(number, []) + values)
    return found


async def drained(node: ClusterNode) -> None:
    node.delays.start()
    while node.delays.total or node.delays.is_busy:
        node.delays.run()
        await outcome(node.broker.after_pending)


async def settled(cluster: Cluster) -> None:
    await until(
        lambda: (
            sum(node.delays.total for node in cluster.nodes) == PARTITIONS * 20
            and not any(misplaced(node.delays) for node in cluster.nodes)
            and all_are_clear(cluster)
        )
    )


async def test_messages_go_to_shards_of_another_node(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, chances=Chances()) as cluster:
        topic = await filled(cluster)
        await cluster.start()
        cluster.first.delays.start()
        await settled(cluster)
        away = cluster.numbers(topic, UPPER)
        assert cluster.second.delays.total == len(away) * 20 > 0
        assert await delivered_by_both(cluster) == EXPECTED


async def test_messages_that_are_due_before_their_owner_is_there_come_late(
    tmp_path: Path,
) -> None:
    async with two_nodes(tmp_path) as cluster:
        topic = await filled(cluster)
        cluster.move_all(UPPER, None)
        await cluster.start()
        first, second = cluster.nodes
        away = len(cluster.numbers(topic, UPPER)) * 20
        cluster.clock.advance(2 * LATER_MS)
        first.delays.start()
        await until(lambda: first.delays.total == away)
        assert cluster.first.transfers.begun == 0, "nothing waits for an owner in a transfer"
        cluster.move_all(UPPER, second)
        await until(lambda: first.delays.total == 0)
        await until(lambda: all_are_clear(cluster))
        assert await delivered_by_both(cluster) == EXPECTED


@pytest.mark.parametrize("stores_last", [True, False], ids=["stored", "lost"])
@pytest.mark.parametrize("kill_at", [1, 2, 3, 5])
@pytest.mark.parametrize("victim", [0, 1], ids=["source", "target"])
async def test_a_kill_at_each_append_of_moves_to_another_node(
    tmp_path: Path, victim: int, kill_at: int, *, stores_last: bool
) -> None:
    async with two_nodes(tmp_path) as cluster:
        await filled(cluster)
        node = cluster.nodes[victim]
        node.storage.stores_last = stores_last
        starting = asyncio.create_task(begin(cluster, node, kill_at))
        await until(lambda: node.storage.is_dead or starting.done())
        await turns(50)
        starting.cancel()
        for one in cluster.nodes:  # a start that hangs, or has failed, ends like a killed one
            if one is node or not one.is_running:
                await one.restart()
        cluster.first.delays.start()
        await settled(cluster)
        assert await delivered_by_both(cluster) == EXPECTED


async def begin(cluster: Cluster, victim: ClusterNode, kill_at: int) -> None:
    """Start both nodes; one of them dies at an append."""
    await cluster.second.start()
    victim.storage.appends_left = kill_at
    await cluster.first.start()
    cluster.first.delays.start()
