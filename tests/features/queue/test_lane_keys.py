"""Keys of messages: order, and fair turns."""

from features.fairness import Fairness
from features.queue.lane import Lane
from features.queue.model import Order, Policy, Result, Run
from tests.features.queue.lanes import LEASE_MS, lane_of, take, tick

# Order by key.


def test_key_in_flight_keeps_its_messages_back_and_others_go_on() -> None:
    lane = lane_of(
        Run(0, 2, b"a"), Run(3, 3, b"b"), Run(4, 4, None), Run(5, 5, b"a"), order=Order.KEY
    )

    assert take(lane, 2) == [0, 1]
    assert take(lane, 9) == [3, 4]
    lane.ack([(0, 1)])
    assert take(lane, 9) == []
    assert lane.ack([(1, 1)])[1].wake
    assert take(lane, 9) == [2, 5]


def test_key_keeps_its_order_through_release_and_expiry() -> None:
    lane = lane_of(Run(0, 3, b"a"), order=Order.KEY)
    take(lane, 2, 0)
    lane.release([(1, 1)], delay_ms=0, now=1)

    assert take(lane, 9, 1) == []  # 0 is in flight: 1 may not pass it
    tick(lane, LEASE_MS)
    assert take(lane, 9, LEASE_MS) == [0, 1, 2, 3]


def test_message_that_was_given_back_goes_before_later_ones_that_are_in_flight() -> None:
    lane = lane_of(Run(0, 4, b"a"), Run(5, 5, b"b"), order=Order.KEY)
    take(lane, 4, 0)
    results, effects = lane.release([(0, 1), (2, 1)], delay_ms=0, now=1)

    assert (results, effects.wake) == ([Result.DONE] * 2, True)
    assert take(lane, 9, 1) == [0, 5]  # 1 is in flight: 2 may not pass it, nor may 4
    lane.ack([(1, 1)])
    assert take(lane, 9, 1) == []  # 0 is in flight again
    lane.ack([(0, 2)])
    assert take(lane, 9, 1) == [2]  # 3 is in flight, and later
    lane.ack([(2, 2)])
    assert take(lane, 9, 1) == []
    lane.ack([(3, 1)])
    assert take(lane, 9, 1) == [4]


def test_message_whose_lease_was_shortened_goes_before_later_ones_of_its_flight() -> None:
    lane = lane_of(Run(0, 2, b"a"), order=Order.KEY)
    take(lane, 2, 0)
    lane.extend([(0, 1)], lease_ms=[5], now=0)

    tick(lane, 5)

    assert take(lane, 9, 5) == [0]


def test_delayed_release_keeps_its_key_waiting() -> None:
    lane = lane_of(Run(0, 1, b"a"), Run(2, 2, b"b"), order=Order.KEY)
    take(lane, 1, 0)
    lane.release([(0, 1)], delay_ms=100, now=0)

    assert take(lane, 9, 99) == [2]
    tick(lane, 100)
    assert take(lane, 9, 100) == [0, 1]


def test_delayed_run_keeps_its_key_waiting() -> None:
    lane = lane_of(Run(0, 0, b"a", 50), Run(1, 1, b"a"), Run(2, 2, None), order=Order.KEY)

    assert take(lane, 9, 49) == [2]
    tick(lane, 50)
    assert take(lane, 9, 50) == [0, 1]


def test_key_goes_on_without_its_dead() -> None:
    lane = lane_of(Run(0, 2, b"a"), order=Order.KEY)
    take(lane, 1)

    _, effects = lane.reject([(0, 1)], reason="rejected")

    assert effects.wake
    assert take(lane, 9) == [1, 2]


def test_returned_message_goes_before_lower_ones_of_other_keys() -> None:
    lane = lane_of(Run(0, 1, b"a"), Run(2, 2, b"b"), order=Order.KEY)
    take(lane, 1)
    take(lane, 1)
    lane.ack([(0, 1)])
    lane.release([(2, 1)], delay_ms=0, now=1)

    assert take(lane, 2) == [2, 1]


# Fair turns.


def test_quiet_tenant_goes_before_a_noisy_one() -> None:
    lane = lane_of(Run(0, 99, b"noisy"), Run(100, 101, b"quiet"), order=Order.FAIR)
    take(lane, 40)

    assert take(lane, 9, quiet_only=True) == [100, 101]
    assert take(lane, 9, quiet_only=True) == []
    assert take(lane, 2) == [40, 41]


def test_what_a_noisy_tenant_gave_back_goes_behind_quiet_ones() -> None:
    lane = lane_of(Run(0, 99, b"noisy"), Run(100, 100, b"quiet"), order=Order.FAIR)
    take(lane, 41)
    lane.release([(0, 1)], delay_ms=0, now=1)

    assert take(lane, 9) == [100, 0, *range(41, 48)]


def test_noise_is_that_of_all_lanes_of_a_queue() -> None:
    fairness = Fairness()
    policy = Policy(Order.FAIR)
    one = Lane(policy, 0, fairness=fairness)
    one.feed([Run(0, 99, b"t")], 1)
    other = Lane(policy, 0, fairness=fairness)
    other.feed([Run(0, 9, b"t"), Run(10, 10, b"u")], 1)

    take(one, 40)

    assert take(other, 1) == [10]


def test_two_deliveries_of_a_key_are_settled_in_one_call() -> None:
    lane = lane_of(Run(0, 2, b"k"), order=Order.KEY)
    assert take(lane, 3) == [0, 1, 2]
    lane.release([(0, 1), (1, 1)], delay_ms=0, now=1)
    assert take(lane, 1) == [0], "while a later one of the key is in flight"

    results, _ = lane.ack([(2, 1), (0, 2)])

    assert results == [Result.DONE] * 2
    assert take(lane, 1) == [1]
