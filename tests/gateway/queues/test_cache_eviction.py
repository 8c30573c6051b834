"""Settled messages leave the message cache, and no others do."""

from pathlib import Path

from gateway.queues.manager import Queue
from gateway.queues.model import Delivery, QueueSettings
from tests.gateway.queues.queue_node import World, running, settle, take, values

COUNT = 10


def kept(world: World, queue: Queue) -> list[int]:
    """Return the offsets of the messages that are in the cache."""
    bodies = world.queues._context.message_cache
    partition_id = queue.lanes[0].partition.partition_id
    return [base for base, _ in bodies.handed_out(partition_id, 1 << 62)]


async def in_batches(world: World, queue: Queue) -> list[Delivery]:
    """Receive messages, each of a batch of its own."""
    for number in range(COUNT):
        await world.send(queue, b"%d" % number)
    return await take(queue, COUNT)


async def upkeep(world: World) -> None:
    """Do what is done once a second."""
    await world.queues.upkeep.hold_all()


async def test_messages_that_are_settled_leave_the_cache(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        deliveries = await in_batches(world, queue)
        assert kept(world, queue) == list(range(COUNT))

        await settle(queue, deliveries)
        await upkeep(world)

        assert kept(world, queue) == []
        assert world.queues._context.message_cache.kept_bytes == 0


async def test_messages_behind_one_that_is_in_flight_leave_it_too(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        deliveries = await in_batches(world, queue)

        await settle(queue, deliveries[1:4] + deliveries[5:])
        await upkeep(world)

        assert kept(world, queue) == [0, 4]


async def test_messages_that_wait_or_were_given_back_stay(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(lease_ms=1_000)
        deliveries = await in_batches(world, queue)
        await world.send(queue, b"fresh")
        await settle(queue, deliveries[:5])
        world.advance(1_000)

        await upkeep(world)

        assert kept(world, queue) == [5, 6, 7, 8, 9, 10]
        assert values(await take(queue, 20)) == [b"5", b"6", b"7", b"8", b"9", b"fresh"]


async def test_messages_that_another_group_needs_stay(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        other = await world.queues.create(queue.topic, QueueSettings(), group="other")
        deliveries = await in_batches(world, queue)
        await settle(queue, deliveries)

        await settle(other, (await take(other, COUNT))[:3])
        await upkeep(world)

        assert kept(world, queue) == list(range(3, COUNT))


async def test_messages_of_a_queue_that_is_deleted_leave_the_cache(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        topic = await world.topic("work")
        queue = await world.queues.create(topic, QueueSettings())
        await in_batches(world, queue)

        await world.queues.delete(queue)

        assert kept(world, queue) == []


async def test_a_settle_that_is_undone_finds_its_message_in_the_log(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(lease_ms=1_000)
        [first, *_] = await in_batches(world, queue)
        await settle(queue, [first])
        await upkeep(world)
        lane = queue.lanes[0]

        lane.lane.put_back([(first.record.offset, first.attempt)])
        world.advance(1_000)

        assert values(await take(queue, 1)) == [b"0"]
