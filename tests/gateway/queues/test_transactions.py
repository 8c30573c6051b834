"""Queues among transactions: nothing is delivered that is not committed, and counts are right."""

from pathlib import Path

import pytest

from features.queue.model import Order
from gateway.queues.manager import Queue
from tests.gateway.queues.queue_node import World, running, settle, take, values
from tests.gateway.transactional_producer import TransactionalProducer


async def ended(world: World, queue: Queue) -> None:
    """Wait until the queue has been told of all that is stable."""
    [lane] = queue.lanes
    await world.until(lambda: lane.lane.fed_end >= lane.partition.stable_end)


@pytest.mark.parametrize("order", [Order.NONE, Order.KEY])
async def test_a_queue_waits_for_a_transaction_and_skips_an_aborted_one(
    tmp_path: Path, order: Order
) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(order=order, lease_ms=60_000)
        partition = queue.lanes[0].partition
        aborted, committed = (TransactionalProducer(world, partition, n) for n in (1, 2))
        await aborted.write(b"aborted", 2)
        await committed.write(b"committed")
        assert queue.counts() == (0, 0, 0)

        await aborted.end(is_commit=False)
        await ended(world, queue)
        assert queue.counts() == (0, 0, 0)

        await committed.end(is_commit=True)
        await ended(world, queue)
        assert queue.counts() == (1, 0, 0)
        taken = await take(queue, 5)
        assert values(taken) == [b"committed"]
        await settle(queue, taken)
        assert queue.counts() == (0, 0, 0)


async def test_what_is_behind_an_open_transaction_does_not_expire_with_what_is_before_it(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(retention_ms=60_000)
        partition = queue.lanes[0].partition
        producer = TransactionalProducer(world, partition, 1)
        await world.send(queue, b"old", timestamp_unix_ms=world.clock.unix_ms() - 90_000)
        await producer.write(b"young")

        await world.queues.upkeep.expire_all()
        await producer.end(is_commit=True)
        await ended(world, queue)

        assert queue.counts() == (1, 0, 0)
        assert values(await take(queue, 5)) == [b"young"]


async def test_a_purge_leaves_what_is_committed_later(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        producer = TransactionalProducer(world, queue.lanes[0].partition, 1)
        await world.send(queue, b"purged")
        await producer.write(b"kept")

        queue.purge(lambda _error: None)
        await producer.end(is_commit=True)
        await ended(world, queue)

        assert values(await take(queue, 5)) == [b"kept"]
