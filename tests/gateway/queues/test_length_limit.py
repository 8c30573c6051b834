"""Length limits: the oldest ready messages go, and none that somebody can take."""

import asyncio
import random
from pathlib import Path

import pytest

from gateway.errors import StorageUnavailable
from gateway.queues import move_retries
from gateway.queues.consumers import CREDIT_UNLIMITED
from gateway.queues.model import Outcome
from gateway.queues.queue import Queue
from tests.gateway.queues.queue_node import (
    World,
    headers_of,
    is_fed,
    running,
    settle,
    take,
    values,
)
from tests.gateway.queues.test_consumers import Sink


async def send(world: World, queue: Queue, first: int, count: int) -> None:
    await world.send(queue, *[b"%d" % n for n in range(first, first + count)])
    length_max = queue.settings.length_max
    await world.until(lambda: queue.counts().ready <= length_max)


def named(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


async def test_the_oldest_go_to_the_dead_letters_in_order(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        dead = await world.queue("dead")
        queue = await world.queue(length_max=10, dead_letter_topic="dead")
        await send(world, queue, 0, 25)
        await world.until(lambda: dead.counts().ready == 15)
        letters = await take(dead, 20)
        assert values(letters) == named(0, 15)
        assert {headers_of(one.record)["dlq.reason"] for one in letters} == {b"maxlen"}
        assert values(await take(queue, 20)) == named(15, 25)
        await world.restart()
        queue = world.find()
        await world.until(lambda: is_fed(queue))
        assert queue.counts() == (0, 10, 0)


async def test_messages_in_flight_do_not_count_and_what_comes_back_is_the_oldest(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(length_max=5)
        await send(world, queue, 0, 5)
        out = await take(queue, 5)
        await send(world, queue, 5, 5)
        assert queue.counts() == (5, 5, 0)
        await settle(queue, out[:3], Outcome.RELEASE)
        await world.until(lambda: queue.counts() == (5, 2, 0))
        assert values(await take(queue)) == named(5, 10)


async def test_consumers_take_what_they_can_before_anything_goes(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(length_max=1)
        sink = Sink(queue, world, credit=CREDIT_UNLIMITED)
        await world.send(queue, *named(0, 3_000))
        await world.until(lambda: len(sink.offsets) == 3_000)
        assert world.queues.counters.dropped == 0


async def test_dead_letters_that_cannot_move_leave_room_for_consumers(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(length_max=2, in_flight_max=20, dead_letter_topic="dead")
        await world.send(queue, *named(0, 50))
        for _ in range(50):
            await world.turn()
        assert queue.counts() == (40, 10, 0)
        out = await take(queue, 10)
        assert values(out) == named(10, 20)
        await settle(queue, out)

        dead = await world.queue("dead")
        world.advance(move_retries.RETRY_MS)
        await world.until(lambda: queue.counts() == (2, 0, 0) and dead.counts().ready == 38)
        await world.until(lambda: is_fed(dead))
        letters = await take(dead, 50)
        assert values(letters) == named(0, 10) + named(20, 48)


async def test_a_limit_that_is_set_later_holds_for_what_is_there(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(partitions=2)
        await world.send(queue, *named(0, 40))
        changed = queue.settings.model_copy(update={"length_max": 10})
        await world.queues.alter(queue, settings=changed)
        await world.until(lambda: queue.counts().ready == 10)
        assert sorted(int(one or b"") for one in values(await take(queue))) == list(
            range(30, 40)
        )


@pytest.mark.parametrize("seed", range(4))
async def test_a_queue_keeps_the_newest_as_a_bounded_list_does(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    async with running(tmp_path) as world:
        length_max = chance.randrange(1, 20)
        queue = await world.queue(length_max=length_max)
        ready: list[bytes] = []
        sent = 0
        for _ in range(25):
            if chance.random() < 0.6:
                count = chance.randrange(1, 30)
                ready = (ready + named(sent, sent + count))[-length_max:]
                await send(world, queue, sent, count)
                sent += count
            else:
                count = chance.randrange(1, 10)
                got = await take(queue, count)
                assert values(got) == ready[:count]
                ready = ready[count:]
                await settle(queue, got)
            assert queue.counts().ready == len(ready)


async def test_a_purge_of_ready_messages_leaves_those_in_flight(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        await world.send(queue, *named(0, 20))
        out = await take(queue, 5)
        await settle(queue, out[:1], Outcome.RELEASE)
        done: asyncio.Future[StorageUnavailable | None] = asyncio.Future()
        queue.purge(done.set_result, ready_only=True)
        assert await asyncio.wait_for(done, 60) is None
        assert queue.counts() == (0, 4, 0)
        await world.restart()
        queue = world.find()
        await world.until(lambda: is_fed(queue))
        assert queue.counts() == (0, 4, 0)
        world.advance(30_001)
        assert values(await take(queue)) == named(1, 5)
