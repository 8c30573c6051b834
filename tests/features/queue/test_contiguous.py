"""Contiguous messages: when one range has all that was asked for, and how a holder settles it."""

from features.queue.lane import Lane
from features.queue.model import (
    BY_TIME,
    Effects,
    Order,
    Outcome,
    Policy,
    Run,
    SettledRange,
    TakenRange,
)

NOW = 1_000
LEASE_MS = 500
HOLDER = 7


def lane_of(*runs: Run, order: Order = Order.FAIR, in_flight_max: int = 100) -> Lane:
    lane = Lane(Policy(order, in_flight_max=in_flight_max), 0)
    lane.feed(runs, NOW)
    return lane


def take(lane: Lane, count: int, *, holder: int = HOLDER) -> list[range]:
    ranges, _ = lane.take_ranges(count, holder=holder, lease_ms=LEASE_MS, now=NOW)
    return [one.offsets for one in ranges]


def settle(
    lane: Lane,
    offsets: range,
    outcome: Outcome = Outcome.ACK,
    *,
    attempt: int = 1,
    holder: int = HOLDER,
) -> tuple[int, Effects]:
    settled = [SettledRange(offsets, attempt, outcome)]
    (count,), effects = lane.settle_ranges(settled, holder=holder, now=NOW)
    return count, effects


def test_all_that_was_asked_for_is_one_range() -> None:
    lane = lane_of(Run(0, 29, None))
    ranges, effects = lane.take_ranges(10, holder=HOLDER, lease_ms=LEASE_MS, now=NOW)
    assert ranges == [TakenRange(range(10), 1, NOW)]
    assert effects.taken == (range(10), True, NOW + LEASE_MS, NOW, 10)
    assert effects.journal is None
    assert take(lane, 100) == [range(10, 30)]
    assert lane.next_offset == 30


def test_a_hole_ends_a_range() -> None:
    lane = lane_of(Run(0, 8, None), Run(10, 30, None))
    assert take(lane, 12) == [range(9), range(10, 13)]


def test_messages_that_were_given_back_go_first_and_by_attempt() -> None:
    lane = lane_of(Run(0, 29, None))
    take(lane, 10)
    settle(lane, range(3, 6), Outcome.RELEASE)
    settle(lane, range(6, 8), Outcome.RETURN)
    ranges, _ = lane.take_ranges(6, holder=HOLDER, lease_ms=LEASE_MS, now=NOW)
    assert [(one.offsets, one.attempt) for one in ranges] == [
        (range(3, 6), 2),
        (range(6, 8), 1),
        (range(10, 11), 1),
    ]


def test_no_more_are_in_flight_than_may_be() -> None:
    lane = lane_of(Run(0, 29, None), in_flight_max=15)
    assert take(lane, 10) == [range(10)]
    assert take(lane, 10) == [range(10, 15)]
    assert take(lane, 10) == []
    _, effects = settle(lane, range(3))
    assert effects.wake
    assert take(lane, 10) == [range(15, 18)]


def test_a_part_of_a_range_is_settled() -> None:
    lane = lane_of(Run(0, 9, None))
    take(lane, 10)
    assert settle(lane, range(2, 5))[0] == 3
    assert settle(lane, range(10))[0] == 7
    assert lane.floor == 10


def test_only_a_holder_settles_what_it_has() -> None:
    lane = lane_of(Run(0, 9, None))
    take(lane, 5)
    take(lane, 5, holder=8)
    assert not lane.holds(range(10), 1, holder=HOLDER)
    assert lane.holds(range(5), 1, holder=HOLDER)
    assert settle(lane, range(10))[0] == 5
    assert settle(lane, range(10), attempt=2, holder=8)[0] == 0
    assert settle(lane, range(10), holder=8)[0] == 5


def test_a_range_whose_lease_is_over_is_settled_by_nobody() -> None:
    lane = lane_of(Run(0, 9, None))
    take(lane, 10, holder=BY_TIME)
    lane.tick(NOW + LEASE_MS, messages_max=100)
    assert settle(lane, range(10), holder=BY_TIME)[0] == 0


def test_a_refused_acknowledgement_is_undone() -> None:
    lane = lane_of(Run(0, 9, None))
    take(lane, 10)
    settle(lane, range(10))
    lane.put_back([(offset, 1) for offset in range(10)])
    assert lane.holds(range(10), 1, holder=HOLDER)
    assert settle(lane, range(10))[0] == 10
