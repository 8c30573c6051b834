"""Contiguous messages of one holder, by the attempt that handed them out."""

from features.queue.lane import Lane
from features.queue.model import HeldRange, Outcome, Policy, Run, SettledRange

MINE, THEIRS = 7, 8


def lane_of(count: int) -> Lane:
    lane = Lane(Policy(), 0)
    lane.feed([Run(0, count - 1, None)], now=0)
    return lane


def take(lane: Lane, count: int, holder: int = MINE) -> None:
    lane.take_ranges(count, holder=holder, lease_ms=1_000, now=0)


def test_a_whole_delivery_is_one_range() -> None:
    lane = lane_of(5)
    take(lane, 5)

    assert lane.held_by(range(5), MINE) == [HeldRange(range(5), 1)]
    assert lane.held_by(range(1, 3), MINE) == [HeldRange(range(1, 3), 1)]


def test_a_range_of_several_attempts_is_split() -> None:
    lane = lane_of(5)
    take(lane, 5)
    back = [SettledRange(range(1, 3), 1, Outcome.RELEASE)]
    lane.settle_ranges(back, holder=MINE, now=0)
    take(lane, 2)

    held = lane.held_by(range(5), MINE)

    assert held == [
        HeldRange(range(1), 1),
        HeldRange(range(1, 3), 2),
        HeldRange(range(3, 5), 1),
    ]


def test_a_message_of_another_holder_is_not_held() -> None:
    lane = lane_of(5)
    take(lane, 3)
    take(lane, 2, THEIRS)

    assert lane.held_by(range(5), MINE) is None
    assert lane.held_by(range(3), THEIRS) is None


def test_a_message_that_is_done_or_waits_is_not_held() -> None:
    lane = lane_of(3)
    take(lane, 3)
    lane.settle_ranges([SettledRange(range(1), 1, Outcome.ACK)], holder=MINE, now=0)
    lane.tick(1_000, messages_max=10)

    assert lane.held_by(range(1), MINE) is None
    assert lane.held_by(range(1, 3), MINE) is None
    assert [lane.attempts_of(offset) for offset in range(4)] == [0, 1, 1, 0]
