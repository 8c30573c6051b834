"""Failed deliveries counted apart from all, their limit, and delays by attempt."""

from typing import Any

import pytest

from features.queue import journal_layout, journal_parser
from features.queue.journal import entry_of
from features.queue.lane import Lane
from features.queue.model import (
    BY_TIME,
    DELIVERY_LIMIT,
    Dead,
    Effects,
    Outcome,
    Policy,
    RetryOn,
    Run,
    SettledRange,
    TakenRange,
)
from features.queue.retrying import DeliveryEnd
from tests.features.queue.lanes import take, tick

HOLDER = 7
LEASE_MS = 1_000


def lane_with(*, messages: int = 1, **policy: Any) -> Lane:
    lane = Lane(Policy()._replace(**policy), 0)
    lane.feed([Run(0, messages - 1, None)], 1)
    return lane


def take_range(lane: Lane, now: int = 1, *, holder: int = HOLDER) -> tuple[TakenRange, Effects]:
    [taken], effects = lane.take_ranges(10, holder=holder, lease_ms=LEASE_MS, now=now)
    return taken, effects


def settle(lane: Lane, taken: TakenRange, outcome: Outcome, now: int = 1) -> Effects:
    settled = SettledRange(taken.offsets, taken.attempt, outcome)
    counts, effects = lane.settle_ranges([settled], holder=HOLDER, now=now)
    assert counts == [len(taken.offsets)]
    return effects


def test_only_failed_deliveries_count_as_failed_and_all_that_were_seen_as_attempts() -> None:
    lane = lane_with()
    seen = []
    for outcome in (Outcome.RELEASE, Outcome.REQUEUE, Outcome.RETURN, Outcome.RELEASE):
        taken, _ = take_range(lane)
        seen.append((taken.attempt, taken.failed_count))
        settle(lane, taken, outcome)
    taken, _ = take_range(lane)

    assert seen == [(1, 0), (2, 1), (3, 1), (3, 1)]
    assert (taken.attempt, taken.failed_count) == (4, 2)


def test_a_message_is_dead_when_it_has_failed_once_more_than_the_limit_allows() -> None:
    lane = lane_with(delivery_limit=1)

    assert settle(lane, take_range(lane)[0], Outcome.RELEASE).dead == []
    assert settle(lane, take_range(lane)[0], Outcome.REQUEUE).dead == []
    assert settle(lane, take_range(lane)[0], Outcome.RELEASE).dead == [
        Dead(0, 3, DELIVERY_LIMIT)
    ]
    assert take(lane, 1) == []


def test_the_end_of_a_holder_and_of_a_lease_are_failures() -> None:
    lane = lane_with(delivery_limit=0)
    take_range(lane)
    assert lane.end_holder(HOLDER, 2).dead == [Dead(0, 1, DELIVERY_LIMIT)]

    lane = lane_with(delivery_limit=0)
    take_range(lane, holder=BY_TIME)
    assert tick(lane, 1_000) == []
    assert tick(lane, 1_001) == [Dead(0, 1, DELIVERY_LIMIT)]


def test_a_dead_message_whose_move_was_lost_is_dead_again_after_a_load() -> None:
    lane = lane_with(delivery_limit=0)
    taken, took = take_range(lane)
    ended = settle(lane, taken, Outcome.RELEASE)
    for entries in ([entry_of(took), entry_of(ended)], [lane.snapshot()]):
        again = Lane(lane.policy, 0)
        for entry in entries:
            if entry is not None:
                again.apply(entry)
        dead = again.recovered(2).dead
        ranges, effects = again.take_ranges(1, holder=BY_TIME, lease_ms=1, now=3)
        assert ranges == []
        assert [one.reason for one in (*dead, *effects.dead)] == [DELIVERY_LIMIT]


@pytest.mark.parametrize("is_snapshot", [False, True])
def test_counts_survive_a_load(is_snapshot: bool) -> None:  # noqa: FBT001
    lane = lane_with(messages=3)
    entries: list[bytes | None] = []
    for outcome in (Outcome.REQUEUE, Outcome.RELEASE, Outcome.REQUEUE):
        taken, took = take_range(lane)
        entries += [entry_of(took), entry_of(settle(lane, taken, outcome))]
    again = Lane(lane.policy, 0)
    for entry in [lane.snapshot()] if is_snapshot else entries:
        assert entry is not None
        again.apply(entry)

    taken, _ = take_range(again)
    assert (taken.offsets, taken.attempt, taken.failed_count) == (range(3), 4, 1)


def test_entries_of_lanes_that_never_requeued_are_as_before() -> None:
    lane = lane_with(messages=2)
    taken, _ = take_range(lane)
    settle(lane, taken, Outcome.RELEASE)

    kinds = {type(change) for change in journal_parser.parse(lane.snapshot())}
    assert kinds == {journal_layout.Snapshot}


@pytest.mark.parametrize(
    ("kind", "delays"),
    [
        (RetryOn.ALL, [100, 200, 250, 250]),
        (RetryOn.FAILED, [100, 0, 200, 0]),
        (RetryOn.RETURNED, [0, 200, 0, 250]),
    ],
)
def test_a_message_comes_back_later_with_each_delivery(
    kind: RetryOn, delays: list[int]
) -> None:
    lane = lane_with(retry_delay_ms=100, retry_delay_ms_max=250, retry_delay_on=kind)
    if kind is RetryOn.ALL:
        outcomes = [Outcome.RELEASE] * 4
    else:
        outcomes = [Outcome.RELEASE, Outcome.REQUEUE] * 2
    now = 1
    for outcome, delay_ms in zip(outcomes, delays, strict=True):
        settle(lane, take_range(lane, now)[0], outcome, now)
        if delay_ms:
            tick(lane, now + delay_ms - 1)
            assert take(lane, 1, now + delay_ms - 1) == []
            assert lane.next_due_unix_ms == now + delay_ms
        now += delay_ms
        tick(lane, now)


def test_a_delay_that_the_receiver_asks_for_goes_before_that_of_the_queue() -> None:
    lane = lane_with(retry_delay_ms=100)
    lane.take_ranges(1, holder=BY_TIME, lease_ms=LEASE_MS, now=1)

    lane.release([(0, 1)], delay_ms=7, now=1)

    assert lane.next_due_unix_ms == 8


def test_the_delay_after_a_lease_counts_from_its_end_and_survives_a_load() -> None:
    lane = lane_with(retry_delay_ms=100)
    _, took = take_range(lane, 1, holder=BY_TIME)
    again = Lane(lane.policy, 0)
    again.apply(entry_of(took) or b"")

    for one in (lane, again):
        tick(one, 1_050)  # a late timer, or a node that was away
        assert one.next_due_unix_ms == 1_101


def test_a_delay_after_the_end_of_a_holder_survives_a_load() -> None:
    lane = lane_with(retry_delay_ms=100)
    _, took = take_range(lane)
    ended = lane.end_holder(HOLDER, 50)
    again = Lane(lane.policy, 0)
    for effects in (took, ended):
        again.apply(entry_of(effects) or b"")
    again.recovered(60)

    assert lane.next_due_unix_ms == again.next_due_unix_ms == 150


def test_a_message_that_nobody_has_seen_comes_back_at_once() -> None:
    lane = lane_with(retry_delay_ms=100, delivery_limit=0)
    take_range(lane)

    assert lane.end_holder(HOLDER, 2, DeliveryEnd.UNSEEN).dead == []
    assert take(lane, 1, 2) == [0]
