"""Receiving: at once, waiting, in order of arrival, within bounds."""

import asyncio
from pathlib import Path

from features.queue.model import DEAD_MAX, Result
from gateway.errors import StorageUnavailable
from gateway.queues.manager import Queue
from gateway.queues.model import Delivery, Outcome
from gateway.queues.receivers import LOOK_MS
from gateway.records.codec import NO_HEADERS, encode_headers
from gateway.records.record_run import RecordRun
from tests.gateway.kernel_in_memory import outcome
from tests.gateway.queues.queue_node import (
    World,
    is_fed,
    running,
    settle,
    take,
    take_now,
    values,
)


async def test_what_was_sent_is_received_once(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        await world.send(queue, b"a", b"b", b"c")
        first = await take(queue, 2)
        second = await take(queue, 2)
        third = await take(queue, 2)
    assert (values(first), values(second), third) == ([b"a", b"b"], [b"c"], [])


async def test_what_is_acknowledged_to_its_sender_is_received_at_once(tmp_path: Path) -> None:
    """A client that sends, awaits the answer and receives gets it: no turn of the loop between."""
    async with running(tmp_path) as world:
        queue = await world.queue()
        got: list[list[Delivery]] = []

        def receive(error: StorageUnavailable | None) -> None:
            assert error is None
            queue.receive(10, bytes_max=1 << 20, wait_ms=0, on_done=got.append)

        for value in (b"first", b"second"):
            run = RecordRun(None, (value,), encode_headers(()), world.clock.unix_ms())
            world.queues.coalescer.add(queue.partition_for(None), run, receive)
            await world.until(lambda: len(got) == 1)
            assert values(got.pop()) == [value]


async def test_a_queue_begins_with_what_comes_after_it_was_made(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        topic = await world.topic("events")
        old = await world.queue("events")
        await world.send(old, b"before")
        settings = old.settings
        new = await world.queues.create(topic, settings, group="late")
        all_of_it = await world.queues.create(topic, settings, group="all", from_start=True)
        await world.send(old, b"after")
        await world.until(lambda: all_of_it.counts().ready == 2)
        got = (values(await take(new)), values(await take(all_of_it)))
    assert got == ([b"after"], [b"before", b"after"])


async def test_who_waits_gets_what_comes(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        waiting = asyncio.ensure_future(take(queue, wait_ms=20_000))
        await world.turn()
        assert queue.waiting_count == 1
        await world.send(queue, b"late")
        assert values(await waiting) == [b"late"]
        assert (queue.waiting_count, world.queues.waiting_count) == (0, 0)


async def test_receivers_are_served_in_order_of_arrival(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        served: list[tuple[int, list[Delivery]]] = []
        for number in range(3):
            queue.receive(
                1,
                bytes_max=1 << 20,
                wait_ms=20_000,
                on_done=lambda got, number=number: served.append((number, got)),  # type: ignore[misc]
            )
        await world.send(queue, b"a", b"b")
        await world.until(lambda: len(served) == 2)
        assert [(number, values(got)) for number, got in served] == [(0, [b"a"]), (1, [b"b"])]


async def test_an_empty_answer_comes_when_the_wait_is_over(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        answers: list[list[Delivery]] = []
        queue.receive(1, bytes_max=1 << 20, wait_ms=1_000, on_done=answers.append)
        world.advance(999)
        assert answers == []
        world.advance(2)
        assert answers == [[]]


async def test_who_cancels_gets_nothing_and_takes_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        answers: list[list[Delivery]] = []
        receiver = queue.receive(1, bytes_max=1 << 20, wait_ms=1_000, on_done=answers.append)
        assert receiver is not None
        receiver.cancel()
        receiver.cancel()
        await world.send(queue, b"a")
        assert values(await take(queue)) == [b"a"]
        assert answers == []


async def test_bytes_are_bounded_but_for_the_first(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        await world.send(queue, b"x" * 600, b"y" * 600, b"z" * 100)
        first = await take(queue, bytes_max=500)
        second = await take(queue, bytes_max=700)
        attempts = [one.attempt for one in second]
    assert values(first) == [b"x" * 600]
    assert values(second) == [b"y" * 600, b"z" * 100]
    assert attempts == [1, 1], "what was given back for want of room does not count"


async def test_an_acknowledged_message_never_returns(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(lease_ms=1_000)
        await world.send(queue, b"a", b"b")
        got = await take(queue)
        assert await settle(queue, got[:1]) == [Result.DONE]
        world.advance(1_001)
        again = take_now(queue)
        assert again is not None
        assert [(one.record.value, one.attempt) for one in again] == [(b"b", 2)]
        assert await settle(queue, got[:1]) == [Result.GONE]


async def test_a_released_message_waits_for_its_delay(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        await world.send(queue, b"a")
        got = await take(queue)
        await settle(queue, got, Outcome.RELEASE, delay_ms=5_000)
        assert await take(queue) == []
        assert queue.counts() == (0, 0, 1)
        world.advance(5_001)
        assert values(await take(queue)) == [b"a"]


async def test_settled_and_unsettled_survive_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(lease_ms=60_000)
        await world.send(queue, b"a", b"b", b"c")
        got = await take(queue, 2)
        await settle(queue, got[:1])
        await world.restart()
        queue = world.find()
        await world.until(lambda: is_fed(queue))
        assert values(await take(queue)) == [b"c"]
        assert queue.counts() == (0, 2, 0)
        world.advance(60_001)
        back = await take(queue)
        assert [(one.record.value, one.attempt) for one in back] == [(b"b", 2), (b"c", 2)]


async def test_a_lease_of_nothing_leaves_the_message_to_the_next_receiver(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        await world.send(queue, b"a")
        await world.until(lambda: is_fed(queue))

        attempts = [(await take(queue, lease_ms=0))[0].attempt for _ in range(3)]

        assert attempts == [1, 2, 3]


async def test_a_time_that_is_none_ends_no_message(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(delay_ms=1_000)
        for name in ("expires-at", "deliver-at"):
            for digits in (25, 400, 5_000):
                await world.send(queue, b"%d" % digits, headers=[(name, b"9" * digits)])
        world.advance(1_000)
        assert values(await take(queue)) == [b"25", b"400", b"5000"] * 2


async def test_a_receiver_that_fails_keeps_no_other_waiting(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        failures: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))

        def fail(_: list[Delivery]) -> None:
            raise RuntimeError("a bug")

        queue.receive(1, bytes_max=1, on_done=fail, wait_ms=20_000)
        other = asyncio.ensure_future(take(queue, 1, wait_ms=20_000))
        await world.turn()
        await world.send(queue, b"a", b"b")

        assert values(await other) == [b"b"]
        assert [str(one) for one in failures] == ["a bug"]
        assert queue.waiting_count == world.queues.waiting_count == 0


async def exhausted(world: World, count: int) -> Queue:
    """Return a queue with so many messages that were handed out as often as they may be."""
    await world.queue("dead")
    queue = await world.queue(dead_letter_topic="dead", attempts_max=1)
    run = RecordRun(None, [b"poison"] * count, NO_HEADERS, world.clock.unix_ms())
    await outcome(lambda done: world.queues.coalescer.add(queue.partition_for(None), run, done))
    await world.until(lambda: is_fed(queue))
    assert len(await take(queue, count, bytes_max=1 << 30)) == count
    world.advance(30_001)
    await world.until(lambda: queue.counts() == (count, 0, 0))
    return queue


async def test_who_does_not_wait_gets_what_is_behind_many_dead(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await exhausted(world, 2_000)
        await world.send(queue, b"fresh")
        got: list[list[Delivery]] = []

        queue.receive(1, bytes_max=1, on_done=got.append)

        assert (got, queue.counts().in_flight) == ([], DEAD_MAX), "others have their turn"
        await world.until(lambda: bool(got))
        assert values(got[0]) == [b"fresh"]
        assert queue.waiting_count == 0


async def test_who_does_not_wait_is_told_of_nothing_behind_many_dead(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await exhausted(world, 2 * DEAD_MAX)
        waiting = asyncio.ensure_future(take(queue, wait_ms=20_000))
        await asyncio.sleep(0)
        polling = [asyncio.ensure_future(take(queue)) for _ in range(2)]

        assert await asyncio.gather(*polling) == [[], []]

        assert (waiting.done(), queue.waiting_count) == (False, 1)
        assert take_now(queue) == [], "at once: nobody looks behind dead ones any more"
        await world.send(queue, b"fresh")
        assert values(await waiting) == [b"fresh"]


async def test_who_does_not_wait_is_not_looked_for_without_end(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await exhausted(world, 2 * DEAD_MAX)
        got: list[list[Delivery]] = []
        queue.receive(1, bytes_max=1, on_done=got.append)
        assert got == []

        world.advance(LOOK_MS)

        assert got == [[]]
        await world.turn()
        assert len(got) == 1
