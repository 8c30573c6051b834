"""Queues in order of priority: the highest first, and in order of arrival within one."""

import random
from pathlib import Path

import pytest

from gateway.queues.manager import Queue
from gateway.queues.model import Delivery, Order, Outcome
from tests.gateway.queues.queue_node import World, is_fed, running, settle, take, values


async def send(world: World, queue: Queue, value: bytes, priority: int | None) -> None:
    headers = [] if priority is None else [("priority", b"%d" % priority)]
    await world.send(queue, value, headers=headers)


async def test_the_highest_priority_goes_first_and_none_is_the_lowest(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(order="priority", priority_max=5)
        for value, priority in ((b"a", None), (b"b", 1), (b"c", 5), (b"d", 9), (b"e", 1)):
            await send(world, queue, value, priority)
        assert values(await take(queue, 10)) == [b"c", b"d", b"b", b"e", b"a"]


async def test_a_message_that_comes_back_waits_for_those_of_a_higher_priority(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(order="priority")
        await send(world, queue, b"low", 1)
        low = await take(queue, 1)
        await send(world, queue, b"high", 2)
        await send(world, queue, b"later", 1)
        await settle(queue, low, Outcome.RELEASE)
        assert values(await take(queue, 10)) == [b"high", b"low", b"later"]


async def test_a_high_priority_behind_many_low_ones_is_found(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(order="priority")
        await world.send(queue, *[b"low"] * 11_000)
        await send(world, queue, b"high", 9)
        await world.until(lambda: is_fed(queue))
        assert values(await take(queue, 2)) == [b"high", b"low"]


async def test_the_order_may_become_that_of_priorities(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        await send(world, queue, b"a", None)
        await send(world, queue, b"b", 3)
        changed = queue.settings.model_copy(update={"order": Order.PRIORITY})
        await world.queues.alter(queue, settings=changed)
        await world.until(lambda: is_fed(queue))
        assert values(await take(queue, 2)) == [b"b", b"a"]


@pytest.mark.parametrize("seed", range(4))
async def test_it_delivers_as_a_sorted_list_does_also_after_restarts(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    async with running(tmp_path) as world:
        queue = await world.queue(order="priority", priority_max=4, lease_ms=3_600_000)
        ready: list[tuple[int, int]] = []  # negative priority, number
        out: list[Delivery] = []
        sent = 0
        for _ in range(60):
            what = chance.random()
            if what < 0.4:
                for _ in range(chance.randrange(1, 8)):
                    priority = chance.randrange(7)
                    await send(world, queue, b"%d" % sent, priority)
                    ready.append((-min(priority, 4), sent))
                    sent += 1
                ready.sort()
            elif what < 0.7:
                count = chance.randrange(1, 8)
                got = await take(queue, count)
                assert [int(one.record.value or b"") for one in got] == [
                    number for _, number in ready[:count]
                ]
                del ready[:count]
                out += got
            elif what < 0.9 and out:
                some = [out.pop(chance.randrange(len(out))) for _ in range(len(out) // 2)]
                outcome = chance.choice([Outcome.ACK, Outcome.RELEASE, Outcome.REQUEUE])
                await settle(queue, some, outcome)
                if outcome is not Outcome.ACK:
                    ready += [(-level_of(one), int(one.record.value or b"")) for one in some]
                    ready.sort()
            elif what > 0.95:
                await world.restart()
                queue = world.find()
                await world.until(lambda: is_fed(queue))  # noqa: B023 - of this restart
            assert queue.counts()[:2] == (len(ready), len(out))


def level_of(delivery: Delivery) -> int:
    headers = dict(delivery.record.headers)
    return min(int(headers["priority"] or b"0"), 4)
