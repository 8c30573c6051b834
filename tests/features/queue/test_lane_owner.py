"""Requests of the owner of a queue, and the bounds of a lane."""

import pytest

from features.queue import journal, open_messages
from features.queue.lane import Lane
from features.queue.model import BY_TIME, Counts, Order, Policy, Result, Run
from tests.features.queue.lanes import LEASE_MS, lane_of, take, taking, tick

# The owner's calls.


def test_purge_takes_all_before_its_end_whatever_the_state() -> None:
    lane = lane_of(Run(0, 9, None))
    take(lane, 4)
    lane.release([(0, 1)], delay_ms=0, now=1)
    lane.release([(1, 1)], delay_ms=50, now=1)
    lane.reject([(2, 1)], reason="rejected")

    lane.purge(8)

    assert lane.counts(10) == Counts(ready=2, in_flight=0, delayed=0)
    assert lane.floor == 8
    assert take(lane, 9) == [8, 9]
    assert lane.ack([(3, 1)])[0] == [Result.GONE]


@pytest.mark.parametrize("visible_unix_ms", [0, 50])
def test_key_goes_on_when_what_kept_it_waiting_is_purged(visible_unix_ms: int) -> None:
    lane = lane_of(Run(0, 0, b"a", visible_unix_ms), Run(1, 1, b"a"), order=Order.KEY)
    if not visible_unix_ms:
        take(lane, 1)
        lane.release([(0, 1)], delay_ms=100, now=1)
    assert take(lane, 9) == []

    assert lane.purge(1).wake

    assert take(lane, 9) == [1]
    assert lane.next_due_unix_ms == 1 + LEASE_MS


def test_purge_beyond_what_was_fed_is_not_fed_again() -> None:
    lane = lane_of(Run(0, 4, None))

    lane.purge(8)
    lane.feed([Run(5, 9, None)], 1)

    assert take(lane, 9) == [8, 9]


def test_old_messages_expire_before_they_are_handed_out_and_those_in_flight_stay() -> None:
    lane = lane_of(Run(0, 9, None))
    take(lane, 1)

    assert lane.expire_before(5).journal is not None
    assert lane.expire_before(5).journal is None
    assert take(lane, 1) == [5]
    assert lane.ack([(0, 1)])[0] == [Result.DONE]


@pytest.mark.parametrize("delay_ms", [0, 500])
def test_old_messages_that_were_given_back_expire_also_after_a_load(delay_ms: int) -> None:
    lane = lane_of(Run(0, 9, None))
    taken, took = taking(lane, 3, holder=BY_TIME, lease_ms=LEASE_MS, now=1)
    ids = [(one.offset, one.attempt) for one in taken[:2]]
    _, gave = lane.release(ids, delay_ms=delay_ms, now=2)
    lane.ack([(2, 1)])

    expired = lane.expire_before(1)

    assert lane.floor == 1, "nobody receives it: it would keep the log from going for ever"
    assert lane.counts(10).ready + lane.counts(10).delayed == 8
    again = Lane(Policy(), 0)
    for effects in (took, gave, expired):
        assert effects.journal is not None
        again.apply(effects.journal)
    assert again.floor == 1


def test_move_that_failed_is_tried_again_though_the_order_has_changed() -> None:
    lane = lane_of(Run(0, 0, b"key"), attempts_max=1)
    take(lane, 1)
    lane.release([(0, 1)], delay_ms=0, now=2)
    assert take(lane, 1, 2) == []
    lane.move_failed([0], now=2, retry_ms=100)

    lane.policy = Policy(Order.KEY, attempts_max=1)

    assert tick(lane, 101) == []
    assert [dead.offset for dead in tick(lane, 102)] == [0]


def test_ack_that_is_kept_leaves_nothing() -> None:
    lane = lane_of(Run(0, 9, None))
    take(lane, 3)
    lane.ack([(0, 1)])
    kept = lane.ack_number
    lane.ack([(1, 1)])

    lane.kept(kept)

    assert [settled.offsets for settled in lane._acking._settled] == [[1]]
    lane.put_back([(1, 1)])
    assert lane.counts(10) == (7, 2, 0)


def test_seek_begins_anew() -> None:
    lane = lane_of(Run(0, 9, b"a"), order=Order.KEY)
    take(lane, 5)

    lane.seek(3, end_offset=10)

    assert (lane.next_offset, lane.fed_end, lane.floor) == (3, 3, 3)
    assert lane.counts(10) == Counts(ready=7, in_flight=0, delayed=0)
    lane.feed([Run(3, 9, b"a")], 1)
    assert take(lane, 9) == [3, 4, 5, 6, 7, 8, 9]


def test_seek_ends_at_the_end() -> None:
    lane = lane_of(Run(0, 9, None))

    lane.seek(99, end_offset=10)

    assert lane.next_offset == 10


def test_browse_says_what_state_each_message_is_in() -> None:
    lane = lane_of(Run(0, 4, None), Run(5, 5, None, 99), Run(6, 6, None))
    take(lane, 4)
    lane.ack([(0, 1)])
    lane.release([(1, 1)], delay_ms=0, now=1)
    lane.release([(2, 1)], delay_ms=9, now=1)

    assert [state for _, state in lane.browse(0, 9)] == [
        "done", "ready", "delayed", "in_flight", "ready", "delayed", "ready", "ready", "ready",
    ]  # fmt: skip


def test_browse_finds_what_is_there_far_behind_what_is_done() -> None:
    lane = lane_of(Run(0, 5_000, None), Run(5_001, 5_001, None, 900))
    taken, _ = taking(lane, 5_000, holder=BY_TIME, lease_ms=LEASE_MS, now=1)
    lane.ack([(one.offset, one.attempt) for one in taken[1:-1]])
    lane.release([(4_999, 1)], delay_ms=9, now=2)

    there = [(0, "in_flight"), (4_999, "delayed"), (5_000, "ready"), (5_001, "delayed")]
    assert lane.browse_there(0, 5_003, 9) == [*there, (5_002, "ready")]
    assert lane.browse_there(1, 5_002, 2) == there[1:3]
    assert lane.browse_there(6_000, 5_000, 2) == []


def test_change_of_order_keeps_what_is_open_and_is_fed_anew() -> None:
    lane = lane_of(Run(0, 9, b"a"))
    take(lane, 2)
    lane.release([(0, 1)], delay_ms=0, now=1)
    lane.reject([(1, 1)], reason="rejected")

    lane.policy = Policy(Order.KEY)
    assert lane.fed_end == 2
    lane.feed([Run(0, 9, b"a")], 1)

    assert lane.counts(10) == Counts(ready=9, in_flight=1, delayed=0)
    assert take(lane, 3) == [0, 2, 3]
    assert take(lane, 3) == []


def test_what_could_not_be_moved_expires_and_what_is_being_moved_stays() -> None:
    lane = lane_of(Run(0, 2, None))
    take(lane, 2)
    lane.reject([(0, 1), (1, 1)], reason="rejected")
    lane.move_failed([0], now=1, retry_ms=5_000)

    expired = lane.expire_before(2)

    assert expired.journal == journal.encode_done([0])
    assert (lane.floor, lane.next_due_unix_ms) == (1, None)
    assert lane.counts(3) == Counts(ready=1, in_flight=1, delayed=0)


def test_what_is_given_up_where_it_waits_is_not_lost_with_its_move() -> None:
    """A take of later messages must not skip a message that was never delivered."""
    lane = lane_of(Run(0, 3, None))
    gave_up = lane.reject_ready([0, 2], reason="expired", now=5)
    _, took = taking(lane, 1, holder=BY_TIME, lease_ms=LEASE_MS, now=6)

    again = Lane(Policy(), 0)
    for effects in (gave_up, took):
        assert effects.journal is not None
        again.apply(effects.journal)
    again.feed([Run(0, 3, None)], 7)

    dead = [(one.offset, one.attempts, one.reason) for one in gave_up.dead]
    assert dead == [(0, 0, "expired"), (2, 0, "expired")]
    found, _ = taking(again, 9, holder=BY_TIME, lease_ms=LEASE_MS, now=7)
    assert [(one.offset, one.attempt) for one in found] == [(0, 1), (2, 1), (3, 1)]


def test_only_what_is_at_hand_is_given_up_and_no_more_than_may_be_in_flight() -> None:
    later = Run(4, 4, None, visible_unix_ms=900)
    lane = lane_of(Run(0, 3, None), later, Run(5, 9, None), in_flight_max=3)
    take(lane, 2)
    lane.release([(0, 1)], delay_ms=500, now=1)

    effects = lane.reject_ready(range(20), reason="expired", now=2)

    assert [one.offset for one in effects.dead] == [2, 3]
    assert lane.counts(10) == Counts(ready=5, in_flight=3, delayed=2)


# Bounds.


def test_no_more_are_in_flight_than_the_policy_allows() -> None:
    lane = lane_of(Run(0, 9, None), in_flight_max=3)

    assert take(lane, 9) == [0, 1, 2]
    assert take(lane, 9) == []
    assert lane.ack([(1, 1)])[1].wake
    assert take(lane, 9) == [3]


def test_the_dead_take_nobodys_place_but_only_so_many_die_at_a_time() -> None:
    lane = lane_of(Run(0, 9, None), attempts_max=1)
    take(lane, 6)
    tick(lane, 1 + LEASE_MS)

    first, effects = taking(lane, 2, holder=BY_TIME, lease_ms=1, now=2_000, dead_max=4)
    assert ([one.offset for one in effects.dead], first) == ([0, 1, 2, 3], [])
    second, effects = taking(lane, 2, holder=BY_TIME, lease_ms=1, now=2_000, dead_max=4)

    assert [one.offset for one in effects.dead] == [4, 5]
    assert [one.offset for one in second] == [6, 7]


def test_others_go_on_while_the_dead_wait_to_be_moved() -> None:
    lane = lane_of(Run(0, 19, None), attempts_max=1, in_flight_max=3)
    for _ in range(4):
        assert len(take(lane, 3)) == 3
        tick(lane, 1 + LEASE_MS)
    take(lane, 1, 2_000)  # it meets the dead

    assert take(lane, 9, 2_000) == [13, 14]
    assert (lane.moving_count, lane.in_flight_count) == (12, 3)
    assert lane.counts(20) == Counts(ready=5, in_flight=15, delayed=0)


def test_the_dead_that_wait_to_be_moved_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_messages, "MOVING_FREE_MAX", 5)
    lane = lane_of(Run(0, 99, None), in_flight_max=3)
    taken = 0
    for _ in range(50):
        got, _ = taking(lane, 3, holder=BY_TIME, lease_ms=LEASE_MS, now=1)
        taken += len(got)
        lane.reject([(one.offset, one.attempt) for one in got], reason="rejected", now=1)

    assert taken == lane.moving_count == lane.open_count == 5 + 2 * 3
    lane.moved([0])
    assert take(lane, 3) == [11]


def test_messages_that_wait_to_come_again_are_bounded_too() -> None:
    lane = lane_of(Run(0, 99, None), in_flight_max=3)
    for _ in range(9):
        taken, _ = taking(lane, 3, holder=BY_TIME, lease_ms=1, now=1)
        ids = [(message.offset, message.attempt) for message in taken]
        lane.release(ids, delay_ms=1_000, now=1)

    assert lane.open_count == 6
    assert lane.next_offset == 6
    tick(lane, 1_001)
    assert take(lane, 9, 1_001) == [0, 1, 2]


def test_lane_wants_no_more_than_its_lookahead() -> None:
    lane = Lane(Policy(Order.KEY, lookahead=3), 0)
    wants: list[bool] = []

    for run in (Run(0, 0, b"a"), Run(1, 500_000, b"b"), Run(500_001, 500_001, b"c")):
        lane.feed([run], 1)
        wants.append(lane.wants_more)
    take(lane, 1)
    wants.append(lane.wants_more)

    assert wants == [True, True, False, True]


@pytest.mark.parametrize("order", list(Order))
def test_messages_without_a_key_are_not_looked_behind(order: Order) -> None:
    lane = lane_of(Run(0, 9_998, None), order=order)

    wants = [lane.wants_more]
    lane.feed([Run(9_999, 9_999, None)], 1)
    wants.append(lane.wants_more)

    is_looked_behind = order is Order.PRIORITY  # without a key it is the lowest priority
    assert wants == [True, is_looked_behind]


def test_tick_stops_at_its_bound_and_says_that_there_is_more() -> None:
    lane = lane_of(Run(0, 9, None))
    for _ in range(5):
        take(lane, 2, 0)

    lane.tick(LEASE_MS, messages_max=4)

    assert lane.counts(10) == Counts(ready=4, in_flight=6, delayed=0)
    assert lane.next_due_unix_ms == LEASE_MS
