"""A queue's own delay changes: whom that goes for, before a restart and after it."""

from pathlib import Path
from uuid import uuid4

import pytest

from features.queue.model import Order
from gateway.queues.delay_changes import EARLIER_MAX, current_delay, earlier_delays
from gateway.queues.manager import Queue
from gateway.queues.model import EarlierDelay, QueueRow, QueueSettings
from tests.gateway.queues.queue_node import World, is_fed, running, take, values

LONG_MS = 300_000


async def set_delay(world: World, queue: Queue, delay_ms: int) -> None:
    settings = queue.settings.model_copy(update={"delay_ms": delay_ms})
    await world.queues.alter(queue, settings=settings)
    await world.until(lambda: is_fed(queue))


async def restarted(world: World) -> Queue:
    await world.restart()
    queue = world.find()
    await world.until(lambda: is_fed(queue))
    return queue


@pytest.mark.parametrize("order", ["none", "fair"])
@pytest.mark.parametrize("then", ["goes on", "restarts"])
async def test_what_was_sent_before_keeps_its_delay(
    tmp_path: Path, order: str, then: str
) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(order=order, partitions=2, lease_ms=2 * LONG_MS)
        await world.send(queue, b"at once", b"too", key=b"a")
        await set_delay(world, queue, LONG_MS)
        await world.send(queue, b"late", key=b"a")
        await set_delay(world, queue, 0)
        await world.send(queue, b"now", key=b"a")
        if then == "restarts":
            queue = await restarted(world)
        assert queue.counts() == (3, 0, 1)
        assert values(await take(queue)) == [b"at once", b"too", b"now"]
        world.advance(LONG_MS - 1)
        assert await take(queue) == []
        world.advance(1)
        assert values(await take(queue)) == [b"late"]


@pytest.mark.parametrize("then", ["goes on", "restarts"])
async def test_in_order_of_keys_a_change_is_for_all_that_waits(
    tmp_path: Path, then: str
) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(order="key", lease_ms=2 * LONG_MS)
        await world.send(queue, b"first", b"second", b"third", key=b"k")
        assert values(await take(queue, 1)) == [b"first"]
        await set_delay(world, queue, LONG_MS)
        if then == "restarts":
            queue = await restarted(world)
        assert queue.counts() == (0, 1, 2)
        world.advance(1_000)
        await set_delay(world, queue, 0)
        if then == "restarts":
            queue = await restarted(world)
        assert queue.counts() == (2, 1, 0)


async def test_in_order_of_keys_who_waits_gets_what_a_change_shows(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(order="key", delay_ms=LONG_MS)
        await world.send(queue, b"first", b"second", key=b"k")
        got: list[list[bytes | None]] = []
        queue.receive(
            10,
            bytes_max=1 << 20,
            on_done=lambda deliveries: got.append(values(deliveries)),
            wait_ms=20_000,
        )
        await set_delay(world, queue, 0)
        await world.until(lambda: bool(got))
        assert got == [[b"first", b"second"]]


def row_with(delay_ms: int, *earlier: EarlierDelay, order: Order = Order.NONE) -> QueueRow:
    settings = QueueSettings(delay_ms=delay_ms, order=order)
    return QueueRow(
        uuid4(),
        "@queue",
        settings,
        {},
        {},
        owns_topic=True,
        created_unix_ms=0,
        changed_unix_ms=0,
        earlier_delays=earlier,
    )


def test_changes_are_forgotten_once_nothing_can_wait_for_them() -> None:
    first = EarlierDelay((10, 3), 0, 1_000)
    row = row_with(500, first)

    again = earlier_delays(row, QueueSettings(delay_ms=100), [20, 4], 1_200)

    assert again == (first, EarlierDelay((20, 4), 500, 1_200))
    settings = QueueSettings(delay_ms=100)
    assert current_delay(settings, again, 0, 1_499).earlier == ((10, 0), (20, 500))
    assert current_delay(settings, again, 1, 1_500).earlier == ((4, 500),)
    assert current_delay(settings, again, 2, 1_200).earlier == ()  # a partition that came since
    assert current_delay(settings, again, 0, 1_700) == (100, ())
    assert earlier_delays(row, QueueSettings(delay_ms=500), [30, 4], 1_500) == ()
    assert earlier_delays(row, QueueSettings(order=Order.KEY), [30, 4], 1_200) == ()


def test_only_so_many_changes_are_remembered() -> None:
    row = row_with(0)
    for number in range(EARLIER_MAX + 5):
        settings = QueueSettings(delay_ms=LONG_MS + number)
        earlier = earlier_delays(row, settings, [number], 1_000)
        row = row._replace(settings=settings, earlier_delays=earlier)

    assert len(row.earlier_delays) == EARLIER_MAX
    assert row.earlier_delays[-1].ends == (EARLIER_MAX + 4,)
