"""After a load: holders that were kept have their messages, the others' are free."""

from features.queue.lane import Lane
from features.queue.model import Policy, Result, Run, Taken
from tests.features.queue.lanes import taking

POLICY = Policy()
LEASE_MS = 1_000
NOW = 50


def loaded(*entries: bytes | None) -> Lane:
    lane = Lane(POLICY, 0)
    for entry in entries:
        assert entry is not None
        lane.apply(entry)
    return lane


def taken_by(lane: Lane, holder: int, count: int) -> bytes:
    taken, effects = taking(lane, count, holder=holder, lease_ms=LEASE_MS, now=1)
    assert len(taken) == count
    assert effects.journal is not None
    return effects.journal


def fed(count: int) -> Lane:
    lane = Lane(POLICY, 0)
    lane.feed([Run(0, count - 1, None)], 1)
    return lane


def test_what_is_claimed_stays_and_the_rest_is_given_back() -> None:
    before = fed(6)
    lane = loaded(before.snapshot(), taken_by(before, 1, 4), taken_by(before, 2, 2))
    assert lane.claim(range(1, 3), holder=7, now=NOW) == [Taken(1, 1, 1), Taken(2, 1, 1)]
    lane.recovered(NOW)
    assert lane.returned_count == 4
    assert lane.returned(3) == [0, 3, 4]
    assert lane.returned(9) == [0, 3, 4, 5]
    assert lane.returned(9) == [0, 3, 4, 5], "looking changes nothing"
    taken, _ = taking(lane, 9, holder=8, lease_ms=LEASE_MS, now=NOW)
    assert [(one.offset, one.attempt) for one in taken] == [(0, 2), (3, 2), (4, 2), (5, 2)]
    assert lane.ack([(1, 1)])[0] == [Result.DONE]
    lane.end_holder(7, NOW)
    assert lane.returned(9) == [2]
    assert (lane.floor, lane.open_count) == (0, 5)


def test_what_is_done_cannot_be_claimed() -> None:
    before = fed(3)
    snapshot = before.snapshot()
    took, done = taken_by(before, 1, 3), before.ack([(1, 1)])[1].journal
    lane = loaded(snapshot, took, done)
    assert [one.offset for one in lane.claim(range(3), holder=7, now=NOW)] == [0, 2]
    lane.recovered(NOW)
    assert not lane.returned_count


def test_a_claim_counts_though_its_take_was_lost() -> None:
    lane = loaded(fed(9).snapshot())
    assert lane.claim([2, 3], holder=7, now=NOW) == [Taken(2, 1, NOW), Taken(3, 1, NOW)]
    lane.recovered(NOW)
    lane.feed([Run(0, 8, None)], NOW)
    taken, _ = taking(lane, 9, holder=8, lease_ms=LEASE_MS, now=NOW)
    assert [one.offset for one in taken] == [0, 1, 4, 5, 6, 7, 8]
    again = loaded(lane.snapshot())
    assert [one.offset for one in again.claim([2, 3], holder=7, now=NOW)] == [2, 3]


def test_what_waits_to_go_again_can_be_claimed() -> None:
    before = fed(2)
    took = taken_by(before, 1, 2)
    gave = before.release([(0, 1)], delay_ms=0, now=2)[1].journal
    lane = loaded(fed(2).snapshot(), took, gave)
    assert [one.offset for one in lane.claim([0, 1], holder=7, now=NOW)] == [0, 1]
    lane.recovered(NOW)
    assert (lane.returned_count, lane.counts(2).in_flight) == (0, 2)


def test_what_is_settled_is_not_named_twice_when_it_comes_back() -> None:
    """The heap may hold an offset more than once."""
    lane = fed(2)
    taken_by(lane, 1, 2)
    lane.end_holder(1, NOW)
    assert lane.ack([(0, 1)])[0] == [Result.DONE]
    lane.put_back([(0, 1)])
    assert lane.returned(9) == [0, 1]
