"""One timer for many deadlines."""

import asyncio

from gateway.clock import ManualClock
from gateway.deadlines import Deadlines


class Owners:
    """Counts the calls; the deadlines run by hand."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.called: list[str] = []
        self.deadlines: Deadlines[str] = Deadlines(self.clock, self.called.append)

    def advance(self, ms: int) -> list[str]:
        self.clock.advance(ms)
        self.deadlines.run_due()
        called, self.called[:] = self.called[:], []
        return called


async def test_owners_are_called_in_order_at_their_time_and_not_before() -> None:
    owners = Owners()
    owners.deadlines.arm("late", 30)
    owners.deadlines.arm("early", 10)
    owners.deadlines.arm("middle", 20)

    assert owners.advance(9) == []
    assert owners.advance(11) == ["early", "middle"]
    assert owners.advance(10) == ["late"]
    assert owners.advance(1_000) == []


async def test_an_earlier_deadline_replaces_a_later_one() -> None:
    owners = Owners()
    owners.deadlines.arm("a", 30)
    owners.deadlines.arm("a", 10)
    owners.deadlines.arm("a", 50)
    owners.deadlines.arm("a", None)

    assert owners.advance(10) == ["a"]
    assert owners.advance(100) == []


async def test_the_forgotten_are_not_called() -> None:
    owners = Owners()
    owners.deadlines.arm("a", 10)
    owners.deadlines.forget("a")

    assert owners.advance(10) == []


async def test_who_asks_again_at_once_waits_for_the_next_turn() -> None:
    clock = ManualClock()
    calls: list[str] = []

    def again(owner: str) -> None:
        calls.append(owner)
        deadlines.arm(owner, clock.monotonic_ms())

    deadlines: Deadlines[str] = Deadlines(clock, again)
    deadlines.arm("a", 0)
    deadlines.run_due()

    assert calls == ["a"]
    deadlines.close()


async def test_the_loop_calls_by_itself() -> None:
    clock = ManualClock()
    called = asyncio.Event()
    deadlines: Deadlines[str] = Deadlines(clock, lambda _: called.set())
    deadlines.arm("later", 60_000)

    deadlines.arm("now", 1)
    clock.advance(1)

    await asyncio.wait_for(called.wait(), timeout=10)
    deadlines.close()


async def test_after_close_nobody_is_called() -> None:
    owners = Owners()
    owners.deadlines.arm("a", 10)

    owners.deadlines.close()

    assert owners.advance(10) == []
