"""Slices of long work on the loop."""

import asyncio
from time import perf_counter

import pytest

from adapters.mqtt.pacing import Pace


def work_for(seconds: float) -> None:
    """Take the processor, as decoding does."""
    end = perf_counter() + seconds
    while perf_counter() < end:
        pass


class Busy:
    """Other work of the loop, in every turn."""

    def __init__(self, turn_s: float) -> None:
        self._turn_s = turn_s
        self.turns = 0
        self.stopped = False
        self.loop = asyncio.get_running_loop()
        self.loop.call_soon(self.turn)

    def turn(self) -> None:
        if not self.stopped:
            self.turns += 1
            work_for(self._turn_s)
            self.loop.call_soon(self.turn)


async def test_a_slice_is_over_after_its_time() -> None:
    pace = Pace(slice_s=0.001)
    async with pace:
        assert not Pace(slice_s=10).is_over or not pace.is_over
        work_for(0.002)
        assert pace.is_over
        await pace.rest()
        assert not pace.is_over


async def test_a_busy_loop_has_half_of_the_time() -> None:
    pace = Pace()
    busy = Busy(0.001)
    worked = 5 * 0.004
    async with pace:
        for _ in range(5):
            work_for(0.004)
            await pace.rest()
    busy.stopped = True
    assert busy.turns * 0.001 >= worked * 0.8


async def test_an_idle_loop_is_left_to_the_work() -> None:
    pace = Pace()
    async with pace:
        work_for(0.2)
        before = perf_counter()
        await pace.rest()
        assert perf_counter() - before < 0.1


async def test_one_works_at_a_time() -> None:
    pace = Pace()
    log: list[str] = []

    async def worker(name: str) -> None:
        async with pace:
            log.append(name)
            await pace.rest()
            log.append(name)

    await asyncio.gather(worker("a"), worker("b"), worker("c"))

    assert log == ["a", "a", "b", "b", "c", "c"]


async def test_an_error_lets_the_next_one_work() -> None:
    pace = Pace()
    with pytest.raises(ValueError, match="x"):
        async with pace:
            raise ValueError("x")
    async with pace:
        assert pace.rests == 0
