"""The journal has a partition for each shard; lanes move to their shards at a start."""

from pathlib import Path

import pytest

from gateway.broker import Broker
from gateway.errors import StorageUnavailable
from gateway.placement import shard_of
from gateway.queues.model import Outcome
from gateway.storage import OnDone
from tests.gateway.queues.queue_node import World, is_fed, running, settle, take

PARTITIONS = 6
LEASE_MS = 600_000


async def worked_on(world: World) -> None:
    """Make a queue of which some messages are done, some in flight, and some given back."""
    queue = await world.queue(partitions=PARTITIONS, lease_ms=LEASE_MS)
    for number in range(60):
        await world.send(queue, b"%d" % number, key=b"key %d" % number)
    got = await take(queue, 30)
    await settle(queue, got[:10])
    await settle(queue, got[10:20], Outcome.RELEASE)


async def state(world: World) -> tuple[object, ...]:
    queue = world.find()
    await world.until(lambda: is_fed(queue))
    return (*queue.counts(), sorted(lane.snapshot() for lane in queue.lanes))


async def restarted(world: World, shard_count: int) -> tuple[object, ...]:
    await world.close()
    world.shard_count = shard_count
    await world.open()
    return await state(world)


def used(world: World) -> set[int]:
    """Return the partitions that hold entries."""
    partitions = world.queues._context.journal.partitions
    return {
        number
        for number, one in enumerate(partitions)
        if one.high_watermark > one.log_start_offset
    }


def homes(world: World) -> set[int]:
    placement = world.broker.placement
    topic = world.find().topic
    return {shard_of(topic, number, placement) for number in range(PARTITIONS)}


async def test_entries_are_in_the_shard_of_their_partition(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        await world.close()
        world.shard_count = 64
        await world.open()

        await worked_on(world)

        assert used(world) == homes(world)
        assert len(homes(world)) > 1
        before = await state(world)
        assert await restarted(world, 64) == before


async def test_lanes_move_when_the_number_of_shards_changes(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        await worked_on(world)
        before = await state(world)
        for shard_count in (64, 4, 64, 1):
            assert await restarted(world, shard_count) == before
            assert used(world) == homes(world)


@pytest.mark.parametrize("steps", [0, 1, 2])
@pytest.mark.parametrize("then", [1, 64])
async def test_a_move_that_is_cut_short_loses_nothing(
    tmp_path: Path, steps: int, then: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start fails after some of the truncations; then it is tried with either number."""
    async with running(tmp_path) as world:
        await worked_on(world)
        before = await restarted(world, 64)
        truncate_before = Broker.truncate_before
        left = steps

        def stopping(self: Broker, partition: object, offset: int, on_done: OnDone) -> None:
            nonlocal left
            if left == 0:
                raise StorageUnavailable("killed")
            left -= 1
            truncate_before(self, partition, offset, on_done)  # type: ignore[arg-type]

        await world.close()
        world.shard_count = 1
        with monkeypatch.context() as patch:
            patch.setattr(Broker, "truncate_before", stopping)
            with pytest.raises(StorageUnavailable, match="killed"):
                await world.open()
        await world.topics.close()
        await world.storage.close()
        await world.metadata.close()
        world.shard_count = then
        await world.open()

        assert await state(world) == before
        assert used(world) == homes(world)
