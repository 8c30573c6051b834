"""Time to live of messages: the head of a queue expires in its millisecond, and in order."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.errors import StorageUnavailable
from gateway.model import DELIVER_AT, EXPIRES_AT
from gateway.queues.consumers import CREDIT_UNLIMITED
from gateway.queues.model import Outcome
from gateway.queues.queue import Queue
from gateway.records.codec import encode_headers
from gateway.records.record_run import RecordRun
from tests.gateway.queues.queue_node import (
    World,
    headers_of,
    is_fed,
    running,
    settle,
    take,
    take_now,
    values,
)
from tests.gateway.queues.test_consumers import Sink


def named(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


async def settled(world: World) -> None:
    """Let looks, moves and their appends end."""
    for _ in range(12):
        await world.turn()


def ending(world: World, ms: int) -> list[tuple[str, bytes | None]]:
    return [(EXPIRES_AT, b"%d" % (world.clock.unix_ms() + ms))]


async def test_messages_expire_in_their_millisecond_and_in_order(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        dead = await world.queue("dead")
        queue = await world.queue(message_ttl_ms=1_000, dead_letter_topic="dead")
        await world.send(queue, *named(0, 600))
        world.advance(500)
        await world.send(queue, *named(600, 603))
        world.advance(499)
        await settled(world)
        assert queue.counts() == (603, 0, 0)
        world.advance(1)
        await world.until(lambda: dead.counts().ready == 600)
        assert queue.counts() == (3, 0, 0)
        world.advance(500)
        await world.until(lambda: dead.counts().ready == 603)
        await world.until(lambda: is_fed(dead))
        letters = await take(dead, 700)
        assert values(letters) == named(0, 603)
        assert {headers_of(one.record)["dlq.reason"] for one in letters} == {b"expired"}
        assert {headers_of(one.record)["dlq.attempts"] for one in letters} == {b"0"}


async def test_without_dead_letters_expired_messages_vanish(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(message_ttl_ms=100)
        await world.send(queue, *named(0, 300))
        world.advance(100)
        await world.until(lambda: queue.counts() == (0, 0, 0))
        assert world.queues.counters.expired == 300
        await world.restart()
        assert world.find().counts() == (0, 0, 0)


async def test_the_earlier_of_both_times_counts_and_a_message_waits_behind_the_head(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(message_ttl_ms=1_000)
        await world.send(queue, b"early", headers=ending(world, 50))
        await world.send(queue, b"late", headers=ending(world, 5_000))
        await world.send(queue, b"behind", headers=ending(world, 60))
        world.advance(50)
        await world.until(lambda: queue.counts().ready == 2)
        world.advance(100)
        await settled(world)
        assert queue.counts().ready == 2
        assert values(await take(queue, 1)) == [b"late"]
        await world.until(lambda: queue.counts() == (0, 1, 0))


async def test_a_message_that_came_back_expires_by_its_first_arrival(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(message_ttl_ms=1_000, lease_ms=60_000)
        await world.send(queue, b"out", b"stays")
        out = await take(queue, 2)
        world.advance(900)
        await settle(queue, out[:1], Outcome.RELEASE)
        world.advance(100)
        await world.until(lambda: queue.counts() == (0, 1, 0))  # in flight: it does not expire
        world.advance(5_000)
        await settle(queue, out[1:], Outcome.RELEASE)
        await world.until(lambda: queue.counts() == (0, 0, 0))


async def test_one_that_comes_back_late_before_a_younger_one_expires_then(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(message_ttl_ms=1_000)
        await world.send(queue, b"a")
        taken = await take(queue)
        world.advance(500)
        await world.send(queue, b"b")
        await settle(queue, taken, Outcome.RELEASE, delay_ms=700)
        for ms in (500, 200):  # the end of a's time, then of its delay
            world.advance(ms)
            await settled(world)
        await world.until(lambda: queue.counts() == (1, 0, 0))
        assert values(await take(queue)) == [b"b"]


async def test_a_message_of_no_time_is_delivered_at_once_or_expires(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        dead = await world.queue("dead")
        queue = await world.queue(message_ttl_ms=0, dead_letter_topic="dead")
        await world.send(queue, b"nobody waits")
        await world.until(lambda: dead.counts().ready == 1)
        sink = Sink(queue, world, credit=2)
        await world.send(queue, b"one", b"two", b"three")
        await world.until(lambda: dead.counts().ready == 2)
        assert len(sink.offsets) == 2
        assert queue.counts() == (0, 2, 0)
        assert values(await take(dead)) == [b"nobody waits", b"three"]


async def test_a_receive_without_a_wait_gets_no_message_of_no_time(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(message_ttl_ms=0)
        run = RecordRun(None, (b"m",), encode_headers(()), world.clock.unix_ms())
        done: asyncio.Future[StorageUnavailable | None] = asyncio.Future()
        polled: list[bytes | None] = []

        def on_done(error: StorageUnavailable | None) -> None:
            polled.extend(values(take_now(queue) or []))  # in the turn in which it is readable
            done.set_result(error)

        world.queues.coalescer.add(queue.lanes[0].partition, run, on_done)
        assert await done is None
        assert polled == []
        waiting = asyncio.create_task(take(queue, wait_ms=10_000))
        await settled(world)
        await world.send(queue, b"now")
        assert values(await waiting) == [b"now"]


async def test_a_consumer_gets_all_messages_of_no_time(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(message_ttl_ms=0)
        sink = Sink(queue, world, credit=CREDIT_UNLIMITED)
        await world.send(queue, *named(0, 3_000))
        await world.until(lambda: len(sink.offsets) == 3_000)
        assert world.queues.counters.expired == 0


async def test_a_restart_ends_what_expired_meanwhile_and_keeps_the_others(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(message_ttl_ms=1_000)
        await world.send(queue, b"old")
        world.advance(600)
        await world.send(queue, b"young")
        await world.close()
        world.clock.advance(400)
        await world.open()
        queue = world.find()
        await world.until(lambda: is_fed(queue) and queue.counts().ready == 1)
        assert values(await take(queue)) == [b"young"]


async def test_a_ttl_that_is_set_later_holds_for_what_is_there(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(partitions=2)
        await world.send(queue, *named(0, 10))
        world.advance(50)
        changed = queue.settings.model_copy(update={"message_ttl_ms": 60})
        await world.queues.alter(queue, settings=changed)
        await settled(world)
        assert queue.counts().ready == 10
        world.advance(10)
        await world.until(lambda: queue.counts().ready == 0)


async def test_a_dead_letter_lives_anew_in_a_queue_with_a_ttl(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        await world.queue("last")
        retry = await world.queue("retry", message_ttl_ms=1_000, dead_letter_topic="last")
        queue = await world.queue(message_ttl_ms=1_000, dead_letter_topic="retry")
        await world.send(queue, b"m")
        world.advance(1_000)
        await world.until(lambda: retry.counts().ready == 1)
        world.advance(999)
        await settled(world)
        assert retry.counts().ready == 1
        world.advance(1)
        await world.until(lambda: world.find("last").counts().ready == 1)


async def test_a_delayed_message_lives_from_its_due_time(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(message_ttl_ms=1_000)
        now = world.clock.unix_ms()
        due = [(DELIVER_AT, b"%d" % now)]
        await world.send(queue, b"due", headers=due, timestamp_unix_ms=now - 9_000)
        world.advance(999)
        assert values(await take(queue)) == [b"due"]


class Model:
    """A classic queue as a list: ends are absolute, and only the head expires."""

    def __init__(self) -> None:
        self.ready: list[tuple[int, int, bytes]] = []  # position, end, value
        self.out: dict[int, tuple[int, int, bytes]] = {}
        self.dead: list[bytes] = []

    def expire(self, now: int) -> None:
        while self.ready and self.ready[0][1] <= now:
            self.dead.append(self.ready.pop(0)[2])

    def take(self, count: int, now: int) -> list[bytes]:
        got: list[bytes] = []
        while self.ready and len(got) < count:
            one = self.ready.pop(0)
            if one[1] <= now:
                self.dead.append(one[2])
            else:
                self.out[one[0]] = one
                got.append(one[2])
        self.expire(now)
        return got

    def release(self, positions: Sequence[int], now: int) -> None:
        self.ready = sorted([*self.ready, *(self.out.pop(at) for at in positions)])
        self.expire(now)


@pytest.mark.parametrize("seed", range(6))
async def test_a_queue_expires_as_a_list_does(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with running(tmp_path) as world:
        dead = await world.queue("dead")
        ttl_ms = chance.choice([40, 100])
        queue = await world.queue(
            message_ttl_ms=ttl_ms, dead_letter_topic="dead", lease_ms=40_000_000
        )
        model = Model()
        sent = 0
        held: dict[int, object] = {}
        for _ in range(30):
            now = world.clock.unix_ms()
            what = chance.random()
            if what < 0.45:
                own_ms = chance.choice([0, 15, 70, 400])
                headers = ending(world, own_ms) if own_ms else []
                count = chance.randrange(1, 6)
                for number in range(sent, sent + count):
                    end = now + min(ttl_ms, own_ms or ttl_ms)
                    model.ready.append((number, end, b"%d" % number))
                await world.send(queue, *named(sent, sent + count), headers=headers)
                sent += count
            elif what < 0.6:
                count = chance.randrange(1, 4)
                got = await take(queue, count)
                for one in got:
                    held[one.record.offset] = one
                assert values(got) == model.take(count, now)
            elif what < 0.75 and held:
                some = chance.sample(sorted(held), chance.randrange(1, len(held) + 1))
                await settle(queue, [held.pop(at) for at in some], Outcome.RELEASE)  # type: ignore[misc]
                model.release(some, now)
            else:
                ms = chance.choice([1, 10, 30, 60])
                world.advance(ms)
                model.expire(now + ms)
            await check(world, queue, dead, model)


async def check(world: World, queue: Queue, dead: Queue, model: Model) -> None:
    """Compare what is ready, in flight and dead; the dead ones come in order."""
    wanted = (len(model.ready), len(model.out), 0)
    await world.until(lambda: queue.counts() == wanted)
    await world.until(lambda: dead.counts().ready + dead.counts().in_flight == len(model.dead))
    await world.until(lambda: is_fed(dead))
    known = dead.counts().in_flight
    letters = await take(dead, 1_000, lease_ms=40_000_000)
    assert values(letters) == model.dead[known:]
