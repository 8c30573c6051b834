"""Rights of a node's clients, with a clock that the test moves."""

from collections.abc import AsyncIterator

import pytest

from gateway.clock import ManualClock
from gateway.errors import Overloaded
from gateway.leaser import Leaser, Right


@pytest.fixture
async def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def leaser(clock: ManualClock) -> AsyncIterator[Leaser]:
    leaser = Leaser(clock, leases_max=3)
    yield leaser
    leaser.close()


async def test_queue_locks_are_renewed_and_pass_to_another_client_when_they_end(
    clock: ManualClock, leaser: Leaser
) -> None:
    queues = [("queue", number) for number in range(3)]
    assert leaser.take_many(queues[:2], "one", span_ms=60_000) == queues[:2]
    clock.advance(50_000)
    assert leaser.take_many(queues[:1], "one", span_ms=60_000) == queues[:1]

    assert leaser.take_many(queues, "two", span_ms=60_000) == queues[2:]
    clock.advance(10_000)
    assert leaser.take_many(queues, "two", span_ms=60_000) == queues[1:]
    assert leaser.resources_of("one") == queues[:1]
    assert leaser.holder_of(queues[1]) == "two"


async def test_an_end_by_time_is_told_once(clock: ManualClock, leaser: Leaser) -> None:
    ended: list[Right] = []
    leaser.take("r", "one", span_ms=100, on_ended=ended.append)

    clock.advance(99)
    leaser.run_due()
    assert ended == []
    clock.advance(1)
    leaser.run_due()
    leaser.run_due()
    assert [one.holder for one in ended] == ["one"]
    assert len(leaser) == 0


async def test_the_end_is_told_also_when_another_takes_the_right_first(
    clock: ManualClock, leaser: Leaser
) -> None:
    ended: list[Right] = []
    leaser.take("r", "one", span_ms=100, on_ended=ended.append)
    clock.advance(100)

    assert leaser.take("r", "two", span_ms=100) is not None
    assert [one.holder for one in ended] == ["one"]


async def test_a_single_active_consumer_is_followed_by_the_next(leaser: Leaser) -> None:
    active: list[object] = []

    def granted(right: Right) -> None:
        active.append(right.holder)

    first = leaser.wait("queue", "one", granted)
    assert first is not None
    assert leaser.wait("queue", "two", granted) is None
    assert leaser.wait("queue", "three", granted, priority=5) is None

    leaser.end_holder("one")
    assert active == ["three"]
    leaser.end_holder("two")
    leaser.release("queue", "three")
    assert active == ["three"]
    assert leaser.holder_of("queue") is None


async def test_a_waiting_client_gets_a_right_that_ends_by_its_time(
    clock: ManualClock, leaser: Leaser
) -> None:
    granted: list[Right] = []
    leaser.take("role", "one", span_ms=100)
    leaser.wait("role", "two", granted.append, span_ms=50)

    clock.advance(100)
    leaser.run_due()
    assert [(one.holder, one.ends_ms) for one in granted] == [("two", 150)]
    clock.advance(50)
    leaser.run_due()
    assert leaser.holder_of("role") is None


async def test_the_timer_ends_rights_by_itself(leaser: Leaser) -> None:
    """The timer of the loop is set for the earliest end."""
    leaser.take("r", "one", span_ms=5_000)
    leaser.take("s", "one", span_ms=2_000)

    assert leaser._deadlines._timer_ms == 2_000


async def test_rights_are_bounded(leaser: Leaser) -> None:
    for number in range(3):
        leaser.take(number, "one", span_ms=None)

    with pytest.raises(Overloaded):
        leaser.take("more", "one", span_ms=None)
