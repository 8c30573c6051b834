"""Leases, ids, delays and the dead; ``test_lane_properties`` has them together."""

import pytest

from features.queue.lane import Lane
from features.queue.model import BY_TIME, Counts, Dead, Order, Policy, Result, Run, Taken
from features.queue.retrying import DeliveryEnd
from tests.features.queue.lanes import LEASE_MS, lane_of, take, taking, tick

CONNECTION = 7


# Leases.


def test_message_is_handed_out_again_when_its_lease_is_over_and_not_before() -> None:
    lane = lane_of(Run(0, 0, None))
    take(lane, 1, 5)

    lane.tick(1_004, messages_max=10)
    assert take(lane, 1, 1_004) == []
    assert lane.next_due_unix_ms == 1_005
    assert lane.tick(1_005, messages_max=10).wake
    taken, _ = taking(lane, 1, holder=BY_TIME, lease_ms=1, now=1_005)

    assert taken == [Taken(0, 2, 5)]


def test_extended_lease_ends_at_its_new_time() -> None:
    lane = lane_of(Run(0, 1, None))
    take(lane, 2, 0)

    results, _ = lane.extend([(1, 1)], lease_ms=[5_000], now=500)
    tick(lane, 5_499)

    assert results == [Result.DONE]
    assert take(lane, 2, 5_499) == [0]
    tick(lane, 5_500)
    assert take(lane, 2, 5_500) == [1]


def test_lease_of_zero_gives_back_at_once() -> None:
    lane = lane_of(Run(0, 0, None))
    take(lane, 1)

    _, effects = lane.extend([(0, 1)], lease_ms=[0], now=1)

    assert effects.wake
    assert take(lane, 1) == [0]


def test_end_of_a_holder_gives_back_what_it_holds_and_nothing_else() -> None:
    lane = lane_of(Run(0, 3, None))
    take(lane, 2, holder=CONNECTION)
    take(lane, 2)

    assert lane.end_holder(CONNECTION, 1).wake
    assert lane.end_holder(CONNECTION, 1).dead == []
    assert take(lane, 4) == [0, 1]


# Ids.


def test_end_of_a_holder_may_count_no_attempt_also_after_a_load() -> None:
    lane = lane_of(Run(0, 1, None), attempts_max=1)
    _, took = taking(lane, 2, holder=7, lease_ms=LEASE_MS, now=1)

    ended = lane.end_holder(7, 2, DeliveryEnd.UNSEEN)

    again = Lane(lane.policy, 0)
    for effects in (took, ended):
        assert effects.journal is not None
        again.apply(effects.journal)
    assert ended.dead == again.recovered(3).dead == []
    assert taking(again, 2, holder=BY_TIME, lease_ms=LEASE_MS, now=3)[0][0].attempt == 1


def test_id_is_out_of_date_once_the_message_was_handed_out_again() -> None:
    lane = lane_of(Run(0, 0, None))
    take(lane, 1, 0)
    tick(lane, LEASE_MS)
    take(lane, 1, LEASE_MS)

    assert lane.ack([(0, 1)])[0] == [Result.STALE]
    assert lane.extend([(0, 1)], lease_ms=[9], now=LEASE_MS)[0] == [Result.STALE]
    assert lane.ack([(0, 2), (0, 2)])[0] == [Result.DONE, Result.GONE]
    assert lane.release([(0, 2)], delay_ms=0, now=LEASE_MS)[0] == [Result.GONE]


@pytest.mark.parametrize(
    ("order", "result"),
    [(Order.NONE, Result.DONE), (Order.FAIR, Result.DONE), (Order.KEY, Result.STALE)],
)
def test_late_ack_counts_only_where_no_order_is_kept(order: Order, result: Result) -> None:
    lane = lane_of(Run(0, 0, b"a"), order=order)
    take(lane, 1, 0)
    tick(lane, LEASE_MS)

    assert lane.ack([(0, 1)])[0] == [result]
    assert take(lane, 1, LEASE_MS) == ([] if result is Result.DONE else [0])


def test_ack_of_a_take_that_was_lost_in_a_crash_counts() -> None:
    lane = Lane(Policy(), 0)  # the journal is empty: the take of 0 to 4 was lost
    results, effects = lane.ack([(3, 1)])
    assert effects.journal is not None
    again = Lane(Policy(), 0)
    again.apply(effects.journal)

    for one in (lane, again):
        one.feed([Run(0, 4, None)], 1)
        assert take(one, 9) == [0, 1, 2, 4]
    assert results == [Result.DONE]


def test_ack_that_is_not_kept_is_undone() -> None:
    lane = lane_of(Run(0, 1, b"a"), order=Order.KEY)
    take(lane, 1, 0)
    lane.ack([(0, 1)])

    lane.put_back([(0, 1)])

    assert lane.floor == 0
    assert take(lane, 1) == []  # its key is locked again
    assert lane.ack([(0, 1)])[0] == [Result.DONE]
    assert take(lane, 1) == [1]


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("is_snapshot", [False, True])
def test_loaded_lane_goes_on_where_it_was(order: Order, *, is_snapshot: bool) -> None:
    lane = lane_of(Run(0, 3, b"a"), Run(4, 5, b"b"), Run(6, 9, b"a"), order=order)
    entries: list[bytes | None] = []
    for count in (2, 3, 2):
        taken, effects = taking(lane, count, holder=BY_TIME, lease_ms=LEASE_MS, now=1)
        entries.append(effects.journal)
        ids = [(message.offset, message.attempt) for message in taken if message.offset > 1]
        entries.append(lane.ack(ids)[1].journal)
    if is_snapshot:
        entries = [lane.snapshot()]

    loaded = Lane(Policy(order), 0)
    for entry in entries:
        if entry is not None:
            loaded.apply(entry)

    assert loaded.next_offset == loaded.fed_end == lane.next_offset
    assert loaded.floor == lane.floor == 0
    assert loaded.counts(10) == lane.counts(10)
    loaded.feed([Run(0, 9, b"a")], 1)
    assert loaded.browse(0, 10) == lane.browse(0, 10)


# Delays.


def test_released_message_waits_for_its_delay_and_no_other_does() -> None:
    lane = lane_of(Run(0, 2, None))
    take(lane, 1, 0)
    lane.release([(0, 1)], delay_ms=100, now=10)

    assert lane.counts(3) == Counts(ready=2, in_flight=0, delayed=1)
    assert take(lane, 1, 109) == [1]
    tick(lane, 110)
    assert take(lane, 2, 110) == [0, 2]


def test_attempt_that_does_not_count_is_not_counted() -> None:
    lane = lane_of(Run(0, 0, None), attempts_max=1)
    take(lane, 1)

    _, effects = lane.release([(0, 1)], delay_ms=0, now=1, ending=DeliveryEnd.UNSEEN)
    taken, _ = taking(lane, 1, holder=BY_TIME, lease_ms=1, now=2)

    assert effects.dead == []
    assert taken == [Taken(0, 1, 1)]


def test_delayed_message_keeps_nobody_waiting_though_it_was_ready_before_a_restart() -> None:
    lane = lane_of(Run(0, 1, None))
    loaded = Lane(Policy(), 0)
    for attempt in (1, 2):
        loaded.apply(
            taking(lane, 1, holder=BY_TIME, lease_ms=LEASE_MS, now=1)[1].journal or b""
        )
        if attempt == 1:
            loaded.apply(lane.release([(0, 1)], delay_ms=0, now=1)[1].journal or b"")

    results, _ = loaded.release([(0, 2)], delay_ms=100, now=1)
    loaded.feed([Run(0, 1, None)], 1)

    assert results == [Result.DONE]
    assert take(loaded, 9) == [1]


def test_run_is_visible_at_its_time_and_not_before() -> None:
    lane = lane_of(Run(0, 1, None, 50), Run(2, 2, None))

    assert take(lane, 9, 49) == [2]
    assert lane.next_due_unix_ms == 50
    tick(lane, 50)
    assert take(lane, 9, 50) == [0, 1]


# The dead.


def test_message_is_dead_when_it_would_be_handed_out_once_too_often() -> None:
    lane = lane_of(Run(0, 3, None), attempts_max=2)
    for now in (0, LEASE_MS):
        take(lane, 4, now)
        lane.ack([(2, 1)])
        if not now:
            tick(lane, LEASE_MS)

    _, effects = lane.release([(0, 2)], delay_ms=500, now=LEASE_MS)
    dead = tick(lane, 2 * LEASE_MS)

    assert effects.dead == dead == [], "nobody has asked for them"
    assert lane.counts(4) == Counts(ready=3, in_flight=0, delayed=0)
    assert lane.ack([(1, 2)])[0] == [Result.DONE], "late, and in time"
    taken, effects = taking(lane, 9, holder=BY_TIME, lease_ms=1, now=2 * LEASE_MS)
    assert taken == []
    assert effects.dead == [Dead(0, 2, "attempts"), Dead(3, 2, "attempts")]


def test_message_that_came_back_before_the_policy_changed_is_dead_at_take() -> None:
    lane = lane_of(Run(0, 1, None))
    take(lane, 1)
    lane.release([(0, 1)], delay_ms=0, now=1)
    lane.policy = Policy(attempts_max=1)

    taken, effects = taking(lane, 2, holder=BY_TIME, lease_ms=1, now=1)

    assert [message.offset for message in taken] == [1]
    assert effects.dead == [Dead(0, 1, "attempts")]


def test_dead_message_is_needed_until_it_has_moved() -> None:
    lane = lane_of(Run(0, 1, None))
    take(lane, 2)
    lane.ack([(1, 1)])
    _, effects = lane.reject([(0, 1)], reason="rejected")

    assert effects.dead == [Dead(0, 1, "rejected")]
    assert lane.floor == 0
    entry = lane.moved([0])
    assert lane.floor == 2
    again = Lane(Policy(), 0)
    again.apply(entry)
    again.feed([Run(0, 0, None)], 1)
    assert take(again, 1) == []


def test_move_that_failed_is_tried_again_at_its_time() -> None:
    lane = lane_of(Run(0, 0, None))
    take(lane, 1)
    lane.reject([(0, 1)], reason="rejected")
    lane.move_failed([0], now=10, retry_ms=90)

    assert tick(lane, 99) == []
    assert lane.next_due_unix_ms == 100
    assert tick(lane, 100) == [Dead(0, 1, "rejected", is_again=True)]


def test_message_that_is_not_moved_after_all_goes_again_and_so_after_a_load() -> None:
    lane = lane_of(Run(0, 0, b"k"), order=Order.KEY, attempts_max=1)
    taken, effects = taking(lane, 1, holder=BY_TIME, lease_ms=LEASE_MS, now=0)
    entries = [effects.journal or b""]
    _, effects = lane.release([(0, 1)], delay_ms=0, now=1)
    entries.append(effects.journal or b"")
    _, effects = taking(lane, 1, holder=BY_TIME, lease_ms=LEASE_MS, now=1)
    assert effects.dead == [Dead(0, 1, "attempts")]
    lane.policy = Policy(order=Order.KEY)

    effects = lane.not_moved([0, 7], now=2)

    entries.append(effects.journal or b"")
    assert effects.wake
    again = Lane(Policy(order=Order.KEY), 0)
    for entry in entries:
        again.apply(entry)
    again.feed([Run(0, 0, b"k")], 2)
    for one in (lane, again):
        assert one.counts(1) == (1, 0, 0)
        (message,) = taking(one, 1, holder=BY_TIME, lease_ms=LEASE_MS, now=2)[0]
        assert (message.offset, message.attempt) == (0, 2)
        assert message.first_taken_unix_ms == taken[0].first_taken_unix_ms
