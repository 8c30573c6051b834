"""Delays on the real segment log against a plain model, through any order of what may happen."""

import asyncio
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.clock import ManualClock
from gateway.delays.manager import DelayBounds
from gateway.topics.manager import Topic
from tests.gateway.delays.delay_node import World, running
from tests.gateway.kernel_in_memory import outcome
from tests.support.examples import examples

AFTERS_MS = (0, 1, 40, 300, 5_000, 70_000, 3_600_000, 40 * 86_400_000)
STEPS_MS = (1, 7, 300, 5_000, 70_000, 3_600_000, 20 * 86_400_000)
BOUNDS = DelayBounds(room_bytes=4_000, bodies_bytes=3_000)  # reading back, writing anew


class Model:
    """Values of the messages that should wait, and of those that should have come."""

    def __init__(self, world: World, topics: list[Topic], chooser: random.Random) -> None:
        self.world = world
        self.topics = topics
        self.chooser = chooser
        self.waiting: dict[bytes, tuple[int, int, int]] = {}  # due, number, which topic
        self.came: list[dict[bytes, int]] = [{} for _ in topics]
        self.last = 0

    async def put(self) -> None:
        which = self.chooser.randrange(len(self.topics))
        after_ms = self.chooser.choice(AFTERS_MS)
        count = self.chooser.choice((1, 1, 5, 60))
        values = [b"%d" % (self.last + one) for one in range(count)]
        self.last += count
        due_unix_ms = self.world.clock.unix_ms() + after_ms
        numbers = await self.world.put(self.topics[which], after_ms, *values)
        for value, number in zip(values, numbers, strict=True):
            self.waiting[value] = (due_unix_ms, number, which)

    async def cancel(self) -> None:
        values = self.chooser.sample(sorted(self.waiting), min(3, len(self.waiting)))
        numbers = [self.waiting[value][1] for value in values]
        found: list[bool] = []
        error = await outcome(
            lambda on_done: found.extend(self.world.delays.cancel(numbers, on_done))
        )
        assert error is None
        for value, was_there in zip(values, found, strict=True):
            if was_there:
                del self.waiting[value]

    async def purge(self) -> None:
        await self.check()  # what has come by now is not purged
        which = self.chooser.randrange(len(self.topics))
        topic = self.world.topics.get(self.topics[which].name)
        assert await outcome(lambda on_done: self.world.sharded.purge(topic, on_done)) is None
        self.waiting = {v: one for v, one in self.waiting.items() if one[2] != which}

    async def keep_small(self) -> None:
        self.world.delays.stream.keep_small()
        await self.world.delays.stream.quiet()
        self.world.delays.stream.keep_small()

    async def restart(self) -> None:
        await self.world.restart()

    async def full_disk(self) -> None:
        self.world.disk_is_full = True
        await self.pass_time()
        self.world.disk_is_full = False
        assert isinstance(self.world.clock, ManualClock)
        self.world.clock.advance(1_000)

    async def pass_time(self) -> None:
        assert isinstance(self.world.clock, ManualClock)
        self.world.clock.advance(self.chooser.choice(STEPS_MS))
        await self.world.settled()

    async def check(self) -> None:
        """Check that due messages have come once and in order, and no others."""
        await self.world.settled()
        now_unix_ms = self.world.clock.unix_ms()
        due = [value for value, one in self.waiting.items() if one[0] <= now_unix_ms]
        for value in sorted(due, key=lambda one: self.waiting[one][:2]):
            due_unix_ms, _, which = self.waiting.pop(value)
            self.came[which][value] = due_unix_ms
        for which, topic in enumerate(self.topics):
            values = self.world.values(topic)
            assert sorted(filter(None, values)) == sorted(self.came[which])
            waiting = [one for one in self.waiting.values() if one[2] == which]
            assert self.world.delays.count(topic) == len(waiting)
        assert self.world.delays.total == len(self.waiting)


async def run(folder: Path, seed: int, steps: int) -> None:
    async with running(folder, bounds=BOUNDS) as world:
        topics = [await world.topic("one"), await world.topic("two")]
        model = Model(world, topics, random.Random(seed))
        kinds = [model.put] * 5 + [model.pass_time] * 4
        kinds += [model.cancel, model.purge, model.keep_small, model.restart, model.full_disk]
        for _ in range(steps):
            await model.chooser.choice(kinds)()
            if model.chooser.random() < 0.3:  # often enough
                await model.check()
        await model.check()
        assert isinstance(world.clock, ManualClock)
        world.clock.advance(50 * 86_400_000)
        await model.check()
        assert world.delays.total == 0
        await model.keep_small()
        assert world.delays.stream.size_bytes == 0


@given(seed=st.integers(0, 1 << 32))
@settings(
    max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
def test_each_message_comes_once_whatever_happens(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder), seed, steps=40))


@pytest.mark.soak
@given(seed=st.integers(0, 1 << 32))
@settings(
    max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
def test_each_message_comes_once_whatever_happens_for_long(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder), seed, steps=100))
