"""Queues are closed and opened by shard while the node runs."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from features.queue.model import Result
from gateway.errors import NotLeader, StorageUnavailable
from gateway.model import TopicName
from gateway.queues.manager import Queue
from gateway.queues.model import Delivery, DeliveryId, Outcome
from gateway.testing.placement import SettablePlacement
from tests.gateway.queues.queue_node import World, is_fed, running, settle, take, values

SHARDS = 64
PARTITIONS = 6
LEASE_MS = 600_000


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running(tmp_path) as world:
        await world.close()
        world.placement = SettablePlacement(SHARDS)
        await world.open()
        yield world


async def worked_on(world: World) -> tuple[Queue, list[Delivery]]:
    """Return a queue with messages that are done, in flight and ready, and those in flight."""
    queue = await world.queue(partitions=PARTITIONS, lease_ms=LEASE_MS)
    for number in range(60):
        await world.send(queue, b"%d" % number, key=b"key %d" % number)
    got = await take(queue, 30)
    await settle(queue, got[:10])
    await settle(queue, got[10:20], Outcome.RELEASE)
    return queue, got[20:]


def shards_of(queue: Queue) -> list[int]:
    return sorted({lane.partition.shard for lane in queue.lanes})


def state(queue: Queue) -> tuple[object, ...]:
    return (*queue.counts(), [lane.snapshot() for lane in queue.lanes])


async def moved_away_and_back(world: World, shards: list[int]) -> None:
    assert world.placement is not None
    world.placement.give(shards)
    await world.broker.shards.settled()
    world.placement.take(shards)
    await world.broker.shards.settled()


async def test_a_shard_that_comes_back_is_served_without_a_restart(world: World) -> None:
    queue, in_flight = await worked_on(world)
    before = state(queue)
    for shard in shards_of(queue):
        await moved_away_and_back(world, [shard])
        await world.until(lambda: is_fed(queue))
        assert state(queue) == before
    assert await settle(queue, in_flight) == [Result.DONE] * 10
    rest = await take(queue, 60)
    await settle(queue, rest)
    assert queue.counts() == (0, 0, 0)
    assert len({*values(rest), *values(in_flight)}) == 50


async def test_a_queue_is_refused_until_all_of_its_shards_are_here(world: World) -> None:
    queue, _ = await worked_on(world)
    assert world.placement is not None
    first, *_, last = shards_of(queue)
    world.placement.give([first, last])
    await world.broker.shards.settled()
    with pytest.raises(NotLeader, match="another node's"):
        queue.check_here()
    assert first not in shards_of(queue)
    world.placement.take([first])
    await world.broker.shards.settled()
    assert first in shards_of(queue)
    with pytest.raises(NotLeader):
        queue.partition_for(b"key")
    world.placement.take([last])
    with pytest.raises(NotLeader, match="loaded"):
        queue.check_here()
    await world.broker.shards.settled()
    queue.check_here()
    assert await take(queue, 1)


async def test_a_shard_that_leaves_and_returns_in_one_turn_is_loaded_anew(world: World) -> None:
    queue, in_flight = await worked_on(world)
    before, lanes = state(queue), list(queue.lanes)
    assert world.placement is not None
    world.placement.give(range(SHARDS))
    world.placement.take(range(SHARDS))
    with pytest.raises(NotLeader, match="loaded"):
        queue.check_here()
    await world.broker.shards.settled()
    await world.until(lambda: is_fed(queue))
    assert state(queue) == before
    assert not set(lanes) & set(queue.lanes)
    assert await settle(queue, in_flight) == [Result.DONE] * 10


async def test_what_is_settled_as_its_shard_leaves_is_done_or_refused(world: World) -> None:
    queue, in_flight = await worked_on(world)
    assert world.placement is not None
    answers: dict[int, object] = {}

    def settle_one(index: int) -> None:
        delivery = in_flight[index]
        ids = DeliveryId(delivery.number, delivery.record.offset, delivery.attempt)

        def answered(results: list[Result], error: StorageUnavailable | None) -> None:
            answers[index] = error or results[0]

        queue.settle([(ids, Outcome.ACK)], answered)

    settle_one(0)
    old_lane = queue.lanes[in_flight[0].number]
    world.placement.give(range(SHARDS))
    settle_one(1)  # as one who found the queue before it left
    world.placement.take(range(SHARDS))
    await world.broker.shards.settled()
    refused: list[object] = []
    world.queues._context.journal.put(old_lane, old_lane.snapshot(), refused.append)
    await world.until(lambda: len(answers) == 2 and bool(refused))

    assert answers[0] is Result.DONE
    assert isinstance(answers[1], StorageUnavailable)
    assert isinstance(refused[0], StorageUnavailable)
    assert queue.counts().in_flight == 9


async def test_a_start_loads_no_lane_of_another_node(world: World) -> None:
    queue, in_flight = await worked_on(world)
    before = state(queue)
    shards = shards_of(queue)
    assert world.placement is not None
    away = shards[: len(shards) // 2]
    await world.close()
    world.placement = SettablePlacement(SHARDS)
    world.placement.give(away)
    await world.open()

    queue = world.find()
    assert shards_of(queue) == shards[len(away) :]
    assert world.queues._context.journal.open_shards == set(range(SHARDS)).difference(away)
    with pytest.raises(NotLeader):
        queue.check_here()

    world.placement.take(away)
    await world.broker.shards.settled()
    await world.until(lambda: is_fed(queue))
    assert state(queue) == before
    assert await settle(queue, in_flight) == [Result.DONE] * 10


async def test_a_partition_that_is_added_while_shards_are_away_gets_its_lane(
    world: World,
) -> None:
    queue, _ = await worked_on(world)
    assert world.placement is not None
    world.placement.give(range(SHARDS))
    await world.broker.shards.settled()
    await world.topics.add_partitions(TopicName("default", "work"), PARTITIONS + 3)
    assert queue.lanes == []
    world.placement.take(range(SHARDS))
    await world.broker.shards.settled()
    assert [lane.number for lane in queue.lanes] == list(range(PARTITIONS + 3))
    for number in range(20):
        await world.send(queue, b"later %d" % number, key=b"key %d" % number)
    assert queue.counts().ready == 60


async def test_a_partition_of_the_journal_is_rewritten_by_itself(world: World) -> None:
    queue, in_flight = await worked_on(world)
    before = state(queue)
    journal = world.queues._context.journal
    shard, other = shards_of(queue)[:2]
    starts = {n: journal._files[n].partition.log_start_offset for n in (shard, other)}
    file = journal._files[shard]
    file._room_bytes = -1
    journal._rewrite_when_due()
    await world.until(lambda: journal.rewrites == 1 and file._rewrite is None)
    await world.turn()

    assert file.partition.log_start_offset > starts[shard]
    assert journal._files[other].partition.log_start_offset == starts[other]
    await world.restart()
    queue = world.find()
    await world.until(lambda: is_fed(queue))
    assert state(queue) == before
    assert await settle(queue, in_flight) == [Result.DONE] * 10
