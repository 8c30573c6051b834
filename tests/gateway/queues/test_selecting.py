"""Consumers that select: they get what matches, ahead of order, and others get the rest."""

import asyncio
import random
from pathlib import Path

import pytest

from features.queue.selecting import AHEAD_MAX
from gateway.model import Record
from gateway.queues import selecting
from gateway.queues.consumers import CREDIT_UNLIMITED, CancelReason
from gateway.queues.model import Outcome
from tests.gateway.queues.queue_node import is_fed, running, settle, take, values
from tests.gateway.queues.test_consumers import Sink, fill, turn


def is_even(record: Record) -> bool:
    return int((record.value or b"m0")[1:]) % 2 == 0


def is_odd(record: Record) -> bool:
    return not is_even(record)


async def test_a_consumer_gets_what_matches_and_leaves_the_rest(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        await fill(world, queue, 10)
        sink = Sink(queue, world, credit=3, matches=is_odd)
        await world.until(lambda: len(sink.offsets) == 3)
        await turn(world)
        assert sink.values == [b"m1", b"m3", b"m5"]
        assert queue.counts() == (7, 3, 0)
        assert values(await take(queue, 20)) == [
            b"m0",
            b"m2",
            b"m4",
            b"m6",
            b"m7",
            b"m8",
            b"m9",
        ]


async def test_each_message_is_looked_at_once(tmp_path: Path) -> None:
    looked: list[int] = []

    def never(record: Record) -> bool:
        looked.append(record.offset)
        return False

    async with running(tmp_path) as world:
        queue = await world.queue()
        Sink(queue, world, credit=CREDIT_UNLIMITED, matches=never)
        for _ in range(5):
            await fill(world, queue, 300)
            await turn(world)
        await world.until(lambda: len(looked) == 1_500)
        assert looked == list(range(1_500))


async def test_a_message_that_comes_back_goes_to_the_consumer_that_selects_it(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        await fill(world, queue, 4)
        out = await take(queue, 4)
        sink = Sink(queue, world, credit=CREDIT_UNLIMITED, matches=is_odd)
        await turn(world)
        assert sink.offsets == []
        await settle(queue, out, Outcome.RELEASE)
        await world.until(lambda: len(sink.offsets) == 2)
        assert sink.values == [b"m1", b"m3"]
        assert [one.attempt for one in sink.ranges] == [2, 2]


async def test_consumers_without_a_match_do_not_hold_up_others(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        nothing = Sink(queue, world, credit=CREDIT_UNLIMITED, matches=lambda _: False)
        plain = Sink(queue, world, credit=CREDIT_UNLIMITED, priority=-1)
        await fill(world, queue, 1_000)
        await world.until(lambda: len(plain.offsets) == 1_000)
        assert nothing.offsets == []
        assert len(await take(queue, 1)) == 0


async def test_what_is_taken_early_survives_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        await fill(world, queue, 10)
        sink = Sink(queue, world, credit=CREDIT_UNLIMITED, matches=is_even)
        await world.until(lambda: len(sink.offsets) == 5)
        assert await sink.settle() == 5
        await world.restart()
        queue = world.find()
        await world.until(lambda: is_fed(queue))
        assert queue.counts() == (5, 0, 0)
        assert values(await take(queue, 10)) == [b"m1", b"m3", b"m5", b"m7", b"m9"]


async def test_batches_are_read_from_the_disk_to_be_looked_at(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        await fill(world, queue, 400)
        await world.restart()
        queue = world.find()
        await world.until(lambda: is_fed(queue))
        sink = Sink(queue, world, credit=CREDIT_UNLIMITED, matches=is_even)
        await world.until(lambda: len(sink.offsets) == 200)


async def test_a_look_ahead_has_a_bound(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        await world.send(queue, *[b"m0"] * (AHEAD_MAX + 100), b"m1")
        sink = Sink(queue, world, credit=CREDIT_UNLIMITED, matches=is_odd)
        await turn(world, 100)
        assert sink.offsets == []
        got = await take(queue, 200)
        await settle(queue, got)
        await world.send(queue, b"m2")
        await world.until(lambda: sink.values == [b"m1"])


async def test_what_was_passed_is_forgotten_within_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selecting, "PASSED_MAX", 50)
    async with running(tmp_path) as world:
        queue = await world.queue()
        sink = Sink(queue, world, credit=CREDIT_UNLIMITED, matches=is_odd)
        for _ in range(4):
            await fill(world, queue, 40)
        await world.until(lambda: len(sink.offsets) == 80)


async def test_a_condition_that_fails_ends_its_consumer_only(tmp_path: Path) -> None:
    def fails(record: Record) -> bool:
        raise ValueError(record.offset)

    async with running(tmp_path) as world:
        queue = await world.queue()
        asyncio.get_running_loop().set_exception_handler(lambda *_of_what: None)
        await fill(world, queue, 3)
        bad = Sink(queue, world, credit=1, matches=fails)
        good = Sink(queue, world, credit=CREDIT_UNLIMITED)
        await world.until(lambda: len(good.offsets) == 3)
        assert bad.reasons == [CancelReason.FAILED]


@pytest.mark.parametrize("seed", range(4))
async def test_every_message_goes_to_a_consumer_that_selects_it_once(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    async with running(tmp_path) as world:
        queue = await world.queue(partitions=2, lease_ms=3_600_000)
        sinks = [
            Sink(queue, world, credit=5, matches=is_even),
            Sink(queue, world, credit=5, matches=is_odd),
            Sink(queue, world, credit=5, matches=is_odd, priority=1),
        ]
        got: list[bytes | None] = []
        sent: list[bytes] = []

        async def drain() -> None:
            for sink in sinks:
                if sink.ranges:
                    fits = is_even if sink is sinks[0] else is_odd
                    records = [r for one in sink.ranges for r in queue.records_of(one)]
                    assert all(map(fits, records))
                    if chance.random() < 0.2:
                        count = await sink.settle(Outcome.REQUEUE)
                    else:
                        got.extend(record.value for record in records)
                        count = await sink.settle()
                    assert count == len(records)
                    sink.consumer.grant(count)

        for _ in range(20):
            new = [b"m%d" % chance.randrange(1_000) for _ in range(chance.randrange(1, 12))]
            sent += new
            await world.send(queue, *new)
            await drain()
        for _ in range(2_000):
            if len(got) == len(sent):
                break
            await turn(world, 1)
            await drain()
        assert sorted(got, key=lambda one: one or b"") == sorted(sent)
        assert queue.counts() == (0, 0, 0)
