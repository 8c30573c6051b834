"""Messages that the page cache has not: read from the disk for those who took them."""

import asyncio
from pathlib import Path
from typing import Any, Protocol

import pytest

from gateway.errors import StorageUnavailable
from gateway.model import Buffer
from gateway.queues.delivery_filter import DeliveryFilter
from gateway.queues.manager import Queue, QueueManager
from gateway.queues.model import Delivery, Outcome
from tests.gateway.queues.queue_node import (
    World,
    is_fed,
    running,
    settle,
    take,
    take_now,
    values,
)


class Node(Protocol):
    """Queues, and the storage below them."""

    @property
    def storage(self) -> Any:
        """The storage, whose methods are replaced."""
        ...

    @property
    def queues(self) -> QueueManager:
        """The queues."""
        ...


class ColdDisk:
    """The storage of a partition whose batches are in no cache; reads wait for ``spin``."""

    def __init__(self, world: Node, queue: Queue) -> None:
        self._partition_ids = set(queue.topic.partition_ids)
        self._storage = world.storage
        self._read, self._read_cached = world.storage.read, world.storage.read_cached
        self.spun = asyncio.Event()
        self.is_broken = False
        self.reads = 0
        world.storage.read_cached = self.read_cached
        world.storage.read = self.read
        world.queues._context.message_cache.forget(queue.topic.partition_ids)

    def read_cached(
        self, partition_id: int, start: int, end: int, *, bytes_max: int
    ) -> list[Buffer] | None:
        if partition_id in self._partition_ids:
            return None
        return self._read_cached(partition_id, start, end, bytes_max=bytes_max)

    async def read(
        self, partition_id: int, start: int, end: int, *, bytes_max: int
    ) -> list[Buffer]:
        self.reads += 1
        await self.spun.wait()
        if self.is_broken:
            raise StorageUnavailable("a bad sector")
        found = self._read_cached(partition_id, start, end, bytes_max=bytes_max)
        if found is None:
            found = await self._read(partition_id, start, end, bytes_max=bytes_max)
        return found


async def test_a_cold_read_holds_up_nobody_else(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        cold, warm = await world.queue("cold"), await world.queue("warm")
        await world.send(cold, *[b"%d" % n for n in range(20)])
        await world.send(warm, b"at once")
        disk = ColdDisk(world, cold)
        waiting = asyncio.ensure_future(take(cold))
        await world.turn()
        assert take_now(warm) is not None
        assert not waiting.done()
        disk.spun.set()
        assert values(await waiting) == [b"%d" % n for n in range(10)]
        rest = take_now(cold)
        assert rest is not None, "what was read beside it needs no disk any more"
        assert (len(rest), disk.reads) == (10, 1)


async def test_who_goes_while_the_disk_turns_leaves_the_messages(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        await world.send(queue, b"a")
        disk = ColdDisk(world, queue)
        answers: list[list[Delivery]] = []
        receiver = queue.receive(1, bytes_max=1, wait_ms=1_000, on_done=answers.append)
        assert receiver is not None
        await world.turn()
        receiver.cancel()
        disk.spun.set()
        got = await take(queue, wait_ms=5_000)
        assert [(one.record.value, one.attempt) for one in got] == [(b"a", 1)]
        assert answers == []


async def comes_again(world: World, queue: Queue) -> list[tuple[bytes | None, int]]:
    """Return value and attempt of what who waits gets once it is tried again."""
    waiting = asyncio.ensure_future(take(queue, wait_ms=20_000))
    await world.turn()
    world.advance(1_001)
    return [(one.record.value, one.attempt) for one in await waiting]


async def test_a_disk_that_fails_loses_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        await world.send(queue, b"a")
        disk = ColdDisk(world, queue)
        disk.is_broken = True
        disk.spun.set()
        assert await take(queue) == []
        disk.is_broken = False
        assert await comes_again(world, queue) == [(b"a", 1)]


async def test_what_expired_while_the_disk_turned_is_not_waited_for_in_vain(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        soon = str(world.clock.unix_ms() + 10).encode()
        await world.send(queue, b"old", headers=[("expires-at", soon)])
        disk = ColdDisk(world, queue)
        waiting = asyncio.ensure_future(take(queue, wait_ms=20_000))
        await world.turn()
        world.clock.advance(11)
        disk.spun.set()
        await world.until(lambda: queue.counts() == (0, 0, 0))
        assert not waiting.done()
        await world.send(queue, b"new")
        assert values(await waiting) == [b"new"]


async def test_dead_letters_are_read_from_the_disk(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        dead = await world.queue("dead")
        queue = await world.queue(dead_letter_topic="dead")
        await world.send(queue, b"a")
        got = await take(queue)
        disk = ColdDisk(world, queue)
        rejected = asyncio.ensure_future(settle(queue, got, Outcome.REJECT))
        await world.turn()
        assert dead.counts().ready == 0
        disk.spun.set()
        await rejected
        await world.until(lambda: is_fed(dead))
        assert values(await take(dead)) == [b"a"]


async def test_bodies_that_are_kept_are_bounded(tmp_path: Path) -> None:
    async with running(tmp_path, bodies_bytes_max=1 << 20) as world:
        queue = await world.queue()
        bodies = world.queues._context.message_cache
        for n in range(8):
            await world.send(queue, *[b"%d" % n * 60_000 for _ in range(4)])
        assert bodies.kept_bytes <= 1 << 20
        got = await take(queue, 40, bytes_max=1 << 30)
        assert len(got) == 32
        assert bodies.kept_bytes <= 1 << 20
        bodies.forget(queue.topic.partition_ids)
        assert bodies.kept_bytes == 0


async def test_a_stop_while_the_disk_turns_costs_no_attempt(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(lease_ms=60_000)
        await world.send(queue, b"a")
        ColdDisk(world, queue)
        queue.receive(1, bytes_max=1, on_done=lambda _: None)
        await world.turn()

        await world.restart()

        queue = world.find()
        await world.until(lambda: is_fed(queue))
        (message,) = await take(queue)
        assert message.attempt == 1


@pytest.mark.parametrize("what", ["read", "filter_found", "answer"])
async def test_a_bug_behind_the_disk_is_answered_and_costs_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        await world.send(queue, b"a")
        disk = ColdDisk(world, queue)
        disk.spun.set()
        failed: list[str] = []

        def break_down(*_of_what: object, **_how: object) -> None:
            raise ZeroDivisionError

        with monkeypatch.context() as patch:
            if what == "read":
                patch.setattr(world.queues._context.message_cache, "read", break_down)
            elif what == "filter_found":
                patch.setattr(DeliveryFilter, "filter_found", break_down)
            queue.receive(
                1,
                bytes_max=1,
                wait_ms=20_000,
                on_done=break_down,
                on_failed=lambda: failed.append(what),
            )
            await world.until(lambda: failed == [what])

        assert queue.waiting_count == 0
        assert await comes_again(world, queue) == [(b"a", 1)]


async def test_who_says_nothing_of_faults_gets_nothing_by_a_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        await world.send(queue, b"a")
        disk = ColdDisk(world, queue)
        disk.spun.set()

        def break_down(*_of_what: object, **_how: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(DeliveryFilter, "filter_found", break_down)

        assert await take(queue, wait_ms=20_000) == []
