"""Rows: when messages may go, and come back, as one; their order among others is the lane's."""

from features.queue.lane import Lane
from features.queue.model import BY_TIME, Order, Policy, Result, Run

NOW = 1_000
LEASE_MS = 500


def lane_of(*runs: Run, order: Order = Order.FAIR, in_flight_max: int = 100) -> Lane:
    lane = Lane(Policy(order, in_flight_max=in_flight_max), 0)
    lane.feed(runs, NOW)
    return lane


def take_contiguous(lane: Lane, count: int) -> range:
    return lane.take_contiguous(count, lease_ms=LEASE_MS, now=NOW)


def test_a_row_is_what_would_be_handed_out_next() -> None:
    lane = lane_of(Run(0, 29, None))
    assert lane.next_contiguous(10) == take_contiguous(lane, 10) == range(10)
    assert lane.next_contiguous(10) == range(10, 20)
    taken, _ = lane.take(15, holder=BY_TIME, lease_ms=LEASE_MS, now=NOW)
    assert [one.offset for one in taken] == list(range(10, 25))
    assert lane.next_contiguous(5) == take_contiguous(lane, 5) == range(25, 30)
    assert lane.next_offset == 30


def test_fewer_than_were_asked_for_are_no_row() -> None:
    assert lane_of(Run(0, 8, None)).next_contiguous(10) is None


def test_a_hole_ends_a_row() -> None:
    lane = lane_of(Run(0, 8, None), Run(10, 30, None))
    assert lane.next_contiguous(10) is None
    assert take_contiguous(lane, 9) == range(9)
    assert lane.next_contiguous(10) == range(10, 20)


def test_messages_with_a_key_are_no_row() -> None:
    assert lane_of(Run(0, 20, b"a")).next_contiguous(10) is None
    assert lane_of(Run(0, 20, None), Run(21, 21, b"a")).next_contiguous(10) is None
    assert lane_of(Run(0, 20, b"a"), order=Order.NONE).next_contiguous(10) == range(10)


def test_what_was_given_back_goes_first() -> None:
    lane = lane_of(Run(0, 29, None))
    take_contiguous(lane, 10)
    lane.release([(3, 1)], delay_ms=0, now=NOW)
    assert lane.next_contiguous(1) is None
    taken, _ = lane.take(1, holder=BY_TIME, lease_ms=LEASE_MS, now=NOW)
    assert (taken[0].offset, taken[0].attempt) == (3, 2)


def test_delayed_messages_are_no_row() -> None:
    assert lane_of(Run(0, 20, None, NOW + 1)).next_contiguous(10) is None


def test_no_more_are_in_flight_than_may_be() -> None:
    lane = lane_of(Run(0, 40, None), in_flight_max=15)
    take_contiguous(lane, 10)
    assert lane.next_contiguous(6) is None
    assert lane.next_contiguous(5) == range(10, 15)


def test_a_row_that_comes_back_whole_is_done() -> None:
    lane = lane_of(Run(0, 29, None))
    row = take_contiguous(lane, 10)
    assert lane.ack_contiguous(row, 1, now=NOW) is not None
    assert lane.ack_contiguous(row, 1, now=NOW) is None
    assert lane.ack([(0, 1)], now=NOW)[0] == [Result.GONE]
    assert lane.open_count == 0
    assert lane.floor == 10
    assert lane.next_due_unix_ms is None


def test_a_row_of_which_one_is_done_is_none() -> None:
    lane = lane_of(Run(0, 29, None))
    row = take_contiguous(lane, 10)
    lane.ack([(4, 1)], now=NOW)
    assert lane.ack_contiguous(row, 1, now=NOW) is None
    assert lane.open_count == 9


def test_a_row_of_which_one_has_another_lease_is_none() -> None:
    lane = lane_of(Run(0, 29, None))
    row = take_contiguous(lane, 10)
    lane.extend([(4, 1)], lease_ms=[10_000], now=NOW)
    assert lane.ack_contiguous(row, 1, now=NOW) is None
    assert lane.open_count == 10


def test_another_row_or_attempt_is_not_what_was_handed_out() -> None:
    lane = lane_of(Run(0, 29, None))
    take_contiguous(lane, 10)
    assert lane.ack_contiguous(range(9), 1, now=NOW) is None
    assert lane.ack_contiguous(range(1, 10), 1, now=NOW) is None
    assert lane.ack_contiguous(range(10), 2, now=NOW) is None
    assert lane.ack_contiguous(range(20, 30), 1, now=NOW) is None
    assert lane.open_count == 10


def test_a_row_whose_lease_is_over_is_none() -> None:
    lane = lane_of(Run(0, 29, None))
    row = take_contiguous(lane, 10)
    lane.tick(NOW + LEASE_MS, messages_max=100)
    assert lane.ack_contiguous(row, 1, now=NOW + LEASE_MS) is None
    assert lane.returned_count == 10


def test_the_end_of_a_row_wakes_who_found_the_lane_full() -> None:
    lane = lane_of(Run(0, 29, None), in_flight_max=10)
    row = take_contiguous(lane, 10)
    effects = lane.ack_contiguous(row, 1, now=NOW)
    assert effects is not None
    assert effects.wake


def test_a_row_that_is_put_back_is_in_flight_as_it_was() -> None:
    lane = lane_of(Run(0, 29, None))
    row = take_contiguous(lane, 10)
    lane.ack_contiguous(row, 1, now=NOW)
    lane.put_back([(offset, 1) for offset in row])
    assert lane.open_count == 10
    assert lane.next_due_unix_ms == NOW + LEASE_MS
    assert lane.ack([(offset, 1) for offset in row], now=NOW)[0] == [Result.DONE] * 10
