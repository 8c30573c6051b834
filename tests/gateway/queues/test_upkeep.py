"""Upkeep of queues: holds, retention of waiting messages, rewrites of the journal."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from features.queue.model import Result
from gateway.errors import StorageUnavailable
from gateway.partition import Partition
from gateway.queues import upkeep
from gateway.queues.lanes import QueueLane
from gateway.queues.manager import Queue
from gateway.queues.message_cache import Body
from gateway.queues.model import Outcome, QueueRow, QueueSettings
from tests.gateway.queues.queue_node import (
    World,
    headers_of,
    is_fed,
    running,
    settle,
    take,
    take_now,
    try_settle,
    values,
)
from tests.gateway.queues.test_journal import drain, fill


def held_offset(world: World, queue: Queue) -> int | None:
    return world.broker.holders.lowest(queue.lanes[0].partition.partition_id)


async def test_what_came_back_and_is_too_old_holds_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(retention_ms=60_000, lease_ms=1_000)
        await world.send(queue, b"came back", b"never handed out")
        await take(queue, 1)
        world.advance(1_001)
        world.advance(60_000)

        await world.queues.upkeep.expire_all()
        await world.queues.upkeep.hold_all()

        assert queue.counts() == (0, 0, 0)
        assert held_offset(world, queue) == 2


async def test_what_is_in_flight_when_it_becomes_too_old_goes_when_it_is_back(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(retention_ms=60_000, lease_ms=90_000)
        await world.send(queue, b"in flight")
        await take(queue, 1)
        world.advance(50_000)
        await world.send(queue, b"young")
        world.advance(10_001)
        await world.queues.upkeep.expire_all()
        assert queue.counts() == (1, 1, 0)

        world.advance(30_000)
        await world.queues.upkeep.expire_all()

        assert queue.counts() == (1, 0, 0)


@pytest.mark.parametrize("what", ["hold_all", "expire_all"])
async def test_a_bug_that_upkeep_meets_is_not_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    async with running(tmp_path) as world:
        monkeypatch.setattr(upkeep, "HOLD_EVERY_S", 0)
        own = upkeep.QueueUpkeep(world.queues._context, list)
        met: list[str] = []

        async def break_down() -> None:
            met.append(what)
            raise ZeroDivisionError

        monkeypatch.setattr(own, what, break_down)
        own.start()

        await world.until(lambda: len(met) > 1)


async def test_a_bug_that_one_queue_meets_keeps_upkeep_from_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as world:
        queues = [await world.queue(name, retention_ms=60_000) for name in ("a", "b")]
        for queue in queues:
            await world.send(queue, b"old")
        world.advance(60_001)
        broken = queues[0].lanes[0]
        hold, expire = QueueLane.hold, upkeep.QueueUpkeep._expire

        def hold_or_fail(lane: QueueLane) -> None:
            if lane is broken:
                raise ZeroDivisionError
            hold(lane)

        async def expire_or_fail(
            self: upkeep.QueueUpkeep, lane: QueueLane, retention_ms: int
        ) -> None:
            if lane is broken:
                raise ZeroDivisionError
            await expire(self, lane, retention_ms)

        monkeypatch.setattr(QueueLane, "hold", hold_or_fail)
        monkeypatch.setattr(upkeep.QueueUpkeep, "_expire", expire_or_fail)
        await world.queues.upkeep.expire_all()
        world.queues._context.touched = {broken: None, queues[1].lanes[0]: None}  # type: ignore[assignment]
        await world.queues.upkeep.hold_all()

        assert [queue.counts().ready for queue in queues] == [1, 0]
        assert [held_offset(world, queue) for queue in queues] == [0, 1]


async def test_what_cannot_be_moved_and_is_too_old_holds_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(retention_ms=60_000, dead_letter_topic="not there")
        await world.send(queue, b"rejected")
        _, error = await try_settle(queue, await take(queue), Outcome.REJECT)
        assert error is not None
        world.advance(60_001)
        (lane,) = queue.lanes
        await world.until(lambda: lane.lane.next_due_unix_ms is not None)  # tried in vain again

        await world.queues.upkeep.expire_all()
        await world.queues.upkeep.hold_all()

        assert queue.counts() == (0, 0, 0)
        assert held_offset(world, queue) == 1
        await world.restart()
        assert world.find().counts() == (0, 0, 0)


async def test_a_queue_that_goes_while_holds_are_told_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as world:
        topic = await world.topic("events", 2)
        queue = await world.queues.create(topic, QueueSettings())
        monkeypatch.setattr(upkeep, "LANES_PER_TURN", 1)
        for lane in queue.lanes:
            lane.held_offset = -1
            world.queues._context.touched.add(lane)
        telling = asyncio.ensure_future(world.queues.upkeep.hold_all())
        await asyncio.sleep(0)

        queue.drop()
        await telling

        assert len(world.broker.holders) == 0


async def test_a_front_that_does_not_expire_is_looked_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        await world.queue("dead")
        queue = await world.queue(dead_letter_topic="dead")
        soon = str(world.clock.unix_ms() + 1_000).encode()
        await world.send(queue, b"expires", headers=[("expires-at", soon)])
        await world.send(queue, b"stays")
        bodies = world.queues._context.message_cache
        read = bodies.read
        looks: list[Sequence[int]] = []

        async def read_and_note(partition: Partition, offsets: Sequence[int]) -> list[Body]:
            looks.append(offsets)
            return await read(partition, offsets)

        bodies.read = read_and_note  # type: ignore[method-assign]
        for _ in range(3):
            await world.queues.upkeep.expire_all()
        assert looks == [[0, 1]]

        world.advance(1_000)
        for _ in range(3):
            await world.queues.upkeep.expire_all()

        assert looks[1:] == [[0, 1], [1]]


async def test_a_disk_that_fails_at_the_front_costs_no_attempt(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        await world.queue("dead")
        queue = await world.queue(dead_letter_topic="dead", attempts_max=1)
        past = str(world.clock.unix_ms()).encode()
        await world.send(queue, b"expired", headers=[("expires-at", past)])

        async def fail(partition: Partition, offsets: Sequence[int]) -> list[Body]:
            raise StorageUnavailable(f"a bad sector: {partition} {offsets}")

        world.queues._context.message_cache.read = fail  # type: ignore[method-assign]
        with pytest.raises(StorageUnavailable):
            await world.queues.upkeep.expire_all()

        assert queue.counts() == (1, 0, 0)


async def test_who_looks_for_what_has_expired_kills_nothing_else(tmp_path: Path) -> None:
    """A message without attempts left dies when a receive would deliver it; none comes here."""
    async with running(tmp_path) as world:
        dead = await world.queue("dead")
        queue = await world.queue(dead_letter_topic="dead", attempts_max=1)
        await world.send(queue, b"was handed out")
        got = await take(queue)
        world.advance(30_001)
        past = str(world.clock.unix_ms()).encode()
        await world.send(queue, b"expired", headers=[("expires-at", past)])
        await world.send(queue, b"fresh")

        await world.queues.upkeep.expire_all()

        await world.until(lambda: dead.counts().ready == 1)
        assert queue.counts() == (2, 0, 0)
        assert await settle(queue, got) == [Result.DONE], "late, and nobody has asked since"
        await world.until(lambda: is_fed(dead))
        (letter,) = await take(dead)
        said = headers_of(letter.record)
        assert (letter.record.value, said["dlq.reason"]) == (b"expired", b"expired")
        assert said["dlq.attempts"] == b"0"
        assert values(await take(queue)) == [b"fresh"]
        assert world.queues.counters.expired == 1


@pytest.mark.parametrize("order", ["none", "key", "fair"])
async def test_what_came_back_and_expires_then_moves_too(tmp_path: Path, order: str) -> None:
    async with running(tmp_path) as world:
        dead = await world.queue("dead")
        queue = await world.queue(dead_letter_topic="dead", order=order)
        soon = str(world.clock.unix_ms() + 5_000).encode()
        await world.send(queue, b"stays", key=b"a")
        for key in (b"b", b"c"):
            await world.send(queue, b"expires", key=key, headers=[("expires-at", soon)])
        await settle(queue, await take(queue), Outcome.RELEASE)
        await world.queues.upkeep.expire_all()
        assert queue.counts() == (3, 0, 0)
        world.advance(5_000)

        await world.queues.upkeep.expire_all()

        await world.until(lambda: dead.counts().ready == 2)
        assert queue.counts() == (1, 0, 0)
        await world.restart()
        assert (world.find().counts(), world.find("dead").counts()) == ((1, 0, 0), (2, 0, 0))


async def test_a_queue_that_is_made_while_the_journal_is_rewritten_is_kept(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        journal = world.queues._context.journal
        put_queue = world.metadata.put_queue

        async def put_late(row: QueueRow) -> None:
            [file] = journal._files.values()
            file._live_bytes = file._room_bytes = -1
            journal._rewrite_when_due()
            await world.until(lambda: file._rewrite is None)
            await put_queue(row)

        world.metadata.put_queue = put_late  # type: ignore[method-assign]
        queue = await world.queue()
        await world.send(queue, b"done", b"left")
        await settle(queue, await take(queue, 1))

        await world.restart()

        queue = world.find()
        await world.until(lambda: is_fed(queue))
        assert values(await take(queue)) == [b"left"]


async def test_what_becomes_of_a_queue_that_is_gone_is_not_that_of_its_successor(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        topic = await world.topic("events")
        first = await world.queues.create(topic, QueueSettings(), group="g")
        await world.send(first, b"a", b"b")
        late = await take(first, 1)
        journal = world.queues._context.journal
        [file] = journal._files.values()
        file._rewrite = iter(world.queues._all_lanes())  # one is under way
        file._start_offset = file.partition.log_end_offset
        await world.queues.delete(first)
        await world.queues.create(topic, QueueSettings(), group="g", from_start=True)

        file._rewrite_some(None)
        await settle(first, late)
        await world.restart()

        found = world.queues.find(topic.name, "g")
        assert found is not None
        await world.until(lambda: is_fed(found))
        assert values(await take(found)) == [b"a", b"b"]


async def test_a_long_journal_of_queues_that_are_gone_is_cut_at_a_stop(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(lease_ms=60_000)
        await world.send(queue, *[b"%d" % n for n in range(100)])
        journal = world.queues._context.journal
        lane = queue.lanes[0]
        while journal.stored_bytes <= 1 << 20:
            journal.put(lane, lane.snapshot() + b"".join([lane.snapshot()] * 1_000))
            journal.seal()
            await world.turn()
        await world.queues.delete(queue)

        await world.restart()

        assert world.queues._context.journal.stored_bytes == 0


async def test_an_acknowledgement_that_is_not_kept_is_seen_by_who_comes_next(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(lease_ms=1_000)
        await world.send(queue, b"a")
        (late,) = await take(queue)
        world.advance(1_001)  # it waits to be handed out again
        fill(world, reserved_too=True)
        refused: asyncio.Future[StorageUnavailable | None] = asyncio.Future()
        queue.settle(
            [(late.delivery_id, Outcome.ACK)], lambda _, error: refused.set_result(error)
        )
        waiting = asyncio.ensure_future(take(queue, wait_ms=20_000))
        assert take_now(queue) == [], "it is done, as far as is known"
        assert await refused is not None
        drain(world)

        assert values(await waiting) == [b"a"]
