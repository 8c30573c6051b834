"""One timer for many deadlines."""

import asyncio

import pytest

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

    await asyncio.wait_for(called.wait(), timeout=60)
    deadlines.close()


async def test_after_close_nobody_is_called() -> None:
    owners = Owners()
    owners.deadlines.arm("a", 10)

    owners.deadlines.close()

    assert owners.advance(10) == []


async def test_the_call_of_one_that_fails_keeps_nobody_from_theirs() -> None:
    clock = ManualClock()
    called: list[str] = []

    def on_due(owner: str) -> None:
        if owner == "bad":
            raise RuntimeError(owner)
        called.append(owner)

    deadlines: Deadlines[str] = Deadlines(clock, on_due)
    for owner, deadline_ms in (("bad", 10), ("good", 10), ("late", 20)):
        deadlines.arm(owner, deadline_ms)
    clock.advance(10)

    with pytest.raises(RuntimeError):
        deadlines.run_due()
    assert deadlines._timer is not None, "nobody would ever be called again"
    deadlines.run_due()
    assert called == ["good"]
    clock.advance(10)
    deadlines.run_due()
    assert called == ["good", "late"]


async def test_the_forgotten_leave_nothing() -> None:
    owners = Owners()
    for number in range(10_000):
        owners.deadlines.arm(str(number), 60_000)
        owners.deadlines.forget(str(number))
    owners.deadlines.arm("a", 10)

    assert len(owners.deadlines._heap) < 2_000
    assert owners.advance(10) == ["a"]
