"""Dead letters that cannot be moved: nothing waits on them, and they go on when there is room."""

from pathlib import Path
from typing import Any

import pytest

from gateway.errors import StorageUnavailable
from gateway.queues.manager import Queue
from gateway.queues.model import Outcome
from gateway.queues.move_retries import RETRY_MS, RETRY_MS_MAX
from tests.gateway.queues.queue_node import (
    World,
    is_fed,
    running,
    settle,
    take,
    try_settle,
    values,
)
from tests.gateway.queues.test_dead_letter_exchange import DLX, bind, open_exchanges
from tests.gateway.queues.test_message_ttl import named, settled


async def with_full_target(world: World, **settings: Any) -> tuple[Queue, Queue]:
    """Return a queue, and that of its dead letters, which has room for no more than one."""
    dead = await world.queue("dead", length_max=1, overflow="reject-publish")
    queue = await world.queue(dead_letter_topic="dead", **settings)
    await world.send(dead, b"first")
    return queue, dead


async def reject_some(world: World, queue: Queue, *messages: bytes) -> None:
    """Reject messages of a queue, which then wait for their move."""
    await world.send(queue, *messages)
    got = await take(queue, len(messages))
    assert values(got) == list(messages)
    _, error = await try_settle(queue, got, Outcome.REJECT)
    assert isinstance(error, StorageUnavailable)


def waiting_count(world: World) -> int:
    return world.queues.dead_letters.retries.waiting_count


async def test_other_messages_do_not_wait_for_those_that_cannot_move(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue, _ = await with_full_target(world, in_flight_max=2)
        for number in range(4):
            await reject_some(world, queue, *named(2 * number, 2 * number + 2))
        assert waiting_count(world) == 8

        await world.send(queue, b"next", b"last")

        got = await take(queue, 2)
        assert values(got) == [b"next", b"last"]
        assert queue.is_full
        assert queue.counts() == (0, 10, 0)
        await settle(queue, got)


async def test_they_go_on_at_once_when_the_full_queue_has_room(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue, dead = await with_full_target(world)
        await reject_some(world, queue, *named(0, 3))
        assert dead.counts().ready == 1

        found = []
        for _ in range(4):
            await world.until(lambda: is_fed(dead) and dead.counts().ready == 1)
            got = await take(dead)
            found += values(got)
            await settle(dead, got)

        assert found == [b"first", *named(0, 3)]
        await world.until(lambda: queue.counts() == (0, 0, 0))
        assert waiting_count(world) == 0


async def test_a_raised_limit_is_room_too(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue, dead = await with_full_target(world)
        await reject_some(world, queue, *named(0, 3))

        changed = dead.settings.model_copy(update={"length_max": 10})
        await world.queues.alter(dead, settings=changed)

        await world.until(lambda: dead.counts().ready == 4 and queue.counts() == (0, 0, 0))


async def test_room_for_one_is_no_reason_to_try_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as world:
        queue, dead = await with_full_target(world)
        await reject_some(world, queue, *named(0, 50))
        tried: list[int] = []
        move_dead = world.queues.dead_letters.move_dead

        def count(lane: object, some: list[object]) -> None:
            tried.append(len(some))
            move_dead(lane, some)  # type: ignore[arg-type]

        monkeypatch.setattr(world.queues.dead_letters.retries, "_move", count)
        await settle(dead, await take(dead))
        await world.until(lambda: dead.counts().ready == 1 and is_fed(dead))
        await settled(world)

        assert tried == [1]
        assert waiting_count(world) == 49


async def test_one_full_queue_of_an_exchange_holds_up_no_other(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        exchanges = await open_exchanges(world)
        full = await world.queue("full", length_max=1, overflow="reject-publish")
        free = await world.queue("free")
        await bind(exchanges, "a", "full")
        await bind(exchanges, "b", "free")
        queue = await world.queue(dead_letter_exchange=DLX)
        await world.send(full, b"first")
        await world.send(queue, b"1", b"2", key=b"a")
        await world.send(queue, b"3", b"4", key=b"b")

        await try_settle(queue, await take(queue, 4), Outcome.REJECT)

        await world.until(lambda: free.counts().ready == 2)
        assert values(await take(free)) == [b"3", b"4"]
        assert (waiting_count(world), full.counts().ready) == (2, 1)


async def test_moves_that_fail_are_tried_later_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as world:
        dead = await world.queue("dead")
        queue = await world.queue(dead_letter_topic="dead")
        await world.send(queue, b"bad")
        tries = 0

        def refuse(*_of_what: object) -> None:
            nonlocal tries
            tries += 1
            raise StorageUnavailable("full")

        with monkeypatch.context() as patch:
            patch.setattr(world.queues.coalescer, "check", refuse)
            await try_settle(queue, await take(queue), Outcome.REJECT)
            pauses_ms = [RETRY_MS, 10_000, 20_000, 40_000, RETRY_MS_MAX, RETRY_MS_MAX]
            for count, pause_ms in enumerate(pauses_ms, 1):
                world.advance(pause_ms - 1)
                await settled(world)
                assert tries == count
                world.advance(1)
                await world.until(lambda wanted=count + 1: tries == wanted)  # type: ignore[misc]
                await settled(world)
        world.advance(RETRY_MS_MAX)
        await world.until(lambda: dead.counts().ready == 1)
        assert waiting_count(world) == 0


async def test_nothing_is_kept_of_a_queue_that_is_deleted(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue, dead = await with_full_target(world)
        await reject_some(world, queue, *named(0, 3))

        await world.queues.delete(queue)

        retries = world.queues.dead_letters.retries
        assert (retries.waiting_count, retries._lanes, retries._waiting_for) == (0, {}, {})
        await settle(dead, await take(dead))
        await settled(world)
        assert dead.counts() == (0, 0, 0)
