"""Slices of long work on the loop."""

import asyncio

import pytest

from adapters.mqtt.reading.pacing import IDLE_TURN_S, Pace


class Hands:
    """A clock that only goes when somebody works: how fast the machine is does not matter."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s

    def work_for(self, seconds: float) -> None:
        """Take the processor, as decoding does."""
        self.now_s += seconds


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    made = Hands()
    monkeypatch.setattr("adapters.mqtt.reading.pacing.perf_counter", made)
    return made


class Busy:
    """Other work of the loop, in every turn."""

    def __init__(self, hands: Hands, turn_s: float) -> None:
        self._hands = hands
        self._turn_s = turn_s
        self.turns = 0
        self.stopped = False
        self.loop = asyncio.get_running_loop()
        self.loop.call_soon(self.turn)

    def turn(self) -> None:
        if not self.stopped:
            self.turns += 1
            self._hands.work_for(self._turn_s)
            self.loop.call_soon(self.turn)


async def test_a_slice_is_over_after_its_time(hands: Hands) -> None:
    pace = Pace(slice_s=0.25)
    async with pace:
        was_over = []
        for _ in range(2):
            hands.work_for(0.125)
            was_over.append(pace.is_over)
        await pace.rest()
        was_over.append(pace.is_over)
    assert was_over == [False, True, False]


async def test_a_busy_loop_has_half_of_the_time(hands: Hands) -> None:
    pace = Pace()
    busy = Busy(hands, 0.125)
    async with pace:
        for _ in range(5):
            hands.work_for(0.5)
            await pace.rest()
        assert busy.turns * 0.125 == 5 * 0.5
    busy.stopped = True


async def test_an_idle_loop_is_left_to_the_work(hands: Hands) -> None:
    pace = Pace()
    idle = Busy(hands, IDLE_TURN_S / 2)
    async with pace:
        hands.work_for(0.5)
        await pace.rest()
        assert idle.turns <= 2
    idle.stopped = True


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
