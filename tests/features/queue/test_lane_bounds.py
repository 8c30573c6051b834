"""Cost of a lane by its open messages, not by its backlog or age.

Times are of the process, with room for a slow machine; they tell O(1) and O(log n) from O(n).
"""

import time
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from features.fairness import Fairness
from features.queue.lane import Lane
from features.queue.model import BY_TIME, Counts, Order, Policy, Run
from features.queue.unread_ranges import KEYLESS_AHEAD_MAX
from tests.features.queue.lanes import taking

pytestmark = pytest.mark.heavy

BACKLOG = 10_000_000
IN_FLIGHT = 120_000
LEASE_MS = 30_000
NOW = 1_700_000_000_000


@pytest.fixture
def traced_bytes() -> Iterator[Callable[[], int]]:
    """Return the bytes that Python has allocated since the test began."""
    tracemalloc.start()
    begin = tracemalloc.get_traced_memory()[0]
    yield lambda: tracemalloc.get_traced_memory()[0] - begin
    tracemalloc.stop()


def seconds_of(work: Callable[[], object]) -> float:
    begin_s = time.process_time()
    work()
    return time.process_time() - begin_s


def lane_of(order: Order, *runs: Run, fairness: Fairness | None = None) -> Lane:
    lane = Lane(Policy(order), 0, fairness=fairness)
    lane.feed(runs, NOW)
    return lane


def take_ids(lane: Lane, count: int) -> list[tuple[int, int]]:
    taken, _ = taking(lane, count, holder=BY_TIME, lease_ms=LEASE_MS, now=NOW)
    return [(message.offset, message.attempt) for message in taken]


@pytest.mark.parametrize("order", list(Order))
def test_what_is_done_behind_a_stuck_message_costs_nothing(
    order: Order, traced_bytes: Callable[[], int]
) -> None:
    runs = [Run(0, 0, b"\xff")]
    runs += [Run(at, at + 9, b"%d" % (at % 97)) for at in range(1, 20_000, 10)]
    lane = lane_of(order, *runs, fairness=Fairness())
    take_ids(lane, 1)
    for _ in range(700):
        lane.ack(take_ids(lane, 10))
        assert lane.floor == 0
    before = traced_bytes()

    for _ in range(1_200):
        lane.ack(take_ids(lane, 10))
        assert lane.floor == 0

    assert traced_bytes() - before < 50_000
    assert lane.open_count == 1


def test_long_way_behind_a_stuck_message_is_no_long_way_when_it_is_done() -> None:
    lane = lane_of(Order.NONE, Run(0, BACKLOG - 1, None))
    take_ids(lane, 1)
    for _ in range(10):
        lane.ack(take_ids(lane, 50_000))

    assert len(lane.snapshot()) < 100
    assert seconds_of(lambda: lane.ack([(0, 1)])) < 0.01
    assert seconds_of(lambda: lane.floor) < 0.05
    assert lane.floor == 500_001


def test_quiet_tenant_is_found_behind_ten_million_of_a_noisy_one(
    traced_bytes: Callable[[], int],
) -> None:
    lane = Lane(Policy(Order.FAIR), 0, fairness=Fairness())
    for first in range(0, BACKLOG, 1_000):
        assert lane.wants_more
        lane.feed([Run(first, first + 999, b"noisy")], NOW)
    lane.feed([Run(BACKLOG, BACKLOG, b"quiet")], NOW)
    take_ids(lane, 30)  # from now on it is noisy

    assert take_ids(lane, 2) == [(BACKLOG, 1), (30, 1)]
    assert lane.counts(BACKLOG + 1) == Counts(BACKLOG - 31, 32, 0)
    assert traced_bytes() < 100_000


def test_other_keys_go_on_behind_ten_million_of_one_that_is_locked() -> None:
    lane = lane_of(Order.KEY, Run(0, BACKLOG - 1, b"a"), Run(BACKLOG, BACKLOG, b"b"))
    take_ids(lane, 10)

    assert take_ids(lane, 10) == [(BACKLOG, 1)]
    assert take_ids(lane, 10) == []


def test_messages_in_flight_cost_little(traced_bytes: Callable[[], int]) -> None:
    lane = lane_of(Order.NONE, Run(0, BACKLOG - 1, None))

    for _ in range(2_000):
        take_ids(lane, 10)

    assert traced_bytes() < 20_000 * 300


def test_looks_and_ends_of_leases_are_quick_with_all_that_may_be_in_flight() -> None:
    lane = lane_of(Order.NONE, Run(0, IN_FLIGHT - 1, None))
    for _ in range(IN_FLIGHT // 10):
        take_ids(lane, 10)

    def look() -> None:
        for _ in range(1_000):
            assert lane.next_due_unix_ms == NOW + LEASE_MS
            assert lane.counts(IN_FLIGHT).in_flight == IN_FLIGHT
            assert lane.floor == 0

    assert seconds_of(look) < 1
    assert seconds_of(lambda: lane.tick(NOW + LEASE_MS, messages_max=IN_FLIGHT)) < 5
    assert lane.counts(IN_FLIGHT) == Counts(ready=IN_FLIGHT, in_flight=0, delayed=0)
    assert len(take_ids(lane, IN_FLIGHT)) == IN_FLIGHT


def test_leases_that_are_extended_for_ever_leave_nothing(
    traced_bytes: Callable[[], int],
) -> None:
    lane = lane_of(Order.NONE, Run(0, 99, None))
    ids = take_ids(lane, 100)
    begin = traced_bytes()

    for turn in range(2_000):
        lane.extend(ids[turn % 90 :][:10], lease_ms=[LEASE_MS + turn] * 10, now=NOW + turn)

    assert traced_bytes() - begin < 100_000
    assert lane.next_due_unix_ms is not None


def test_message_that_comes_back_for_ever_leaves_nothing(
    traced_bytes: Callable[[], int],
) -> None:
    runs = [Run(at, at, b"%d" % (at % 3)) for at in range(9)]
    lane = lane_of(Order.KEY, *runs)
    for _ in range(500):
        lane.release(take_ids(lane, 2), delay_ms=0, now=NOW)
    begin = traced_bytes()

    for _ in range(3_000):
        lane.release(take_ids(lane, 2), delay_ms=0, now=NOW)

    assert traced_bytes() - begin < 50_000


def test_keys_that_are_done_leave_nothing(traced_bytes: Callable[[], int]) -> None:
    lane = Lane(Policy(Order.KEY), 0)

    def turn(first: int) -> None:
        lane.feed([Run(at, at, b"%d" % at) for at in range(first, first + 100)], NOW)
        while ids := take_ids(lane, 10):
            lane.ack(ids)

    for first in range(0, 3_000, 100):
        turn(first)
    begin = traced_bytes()
    for first in range(3_000, 10_000, 100):
        turn(first)

    assert traced_bytes() - begin < 50_000


def test_plain_take_and_ack_of_ten_is_a_matter_of_microseconds() -> None:
    lane = lane_of(Order.NONE, Run(0, 99_999, None))

    def work() -> None:
        while ids := take_ids(lane, 10):
            lane.ack(ids)

    assert seconds_of(work) < 100_000 * 10e-6  # some 2 us of a message on an idle machine


def test_keyless_messages_ahead_are_bounded_whatever_the_run() -> None:
    lane = lane_of(Order.FAIR, Run(0, KEYLESS_AHEAD_MAX - 1, None))

    wants = [lane.wants_more]
    lane.ack(take_ids(lane, 1))
    wants.append(lane.wants_more)

    assert wants == [False, True]


def test_look_in_vain_is_quick_when_all_that_may_be_open_is() -> None:
    lane = Lane(Policy(Order.KEY, in_flight_max=1_000), 0)
    lane.feed([Run(at, at, b"%d" % at) for at in range(52_000)], NOW)
    while ids := take_ids(lane, 1_000):
        lane.release(ids, delay_ms=LEASE_MS, now=NOW)
    assert lane.open_count == 2_000

    def look() -> None:
        for _ in range(100):
            assert take_ids(lane, 10) == []

    assert seconds_of(look) < 1
    lane.tick(NOW + LEASE_MS, messages_max=1)
    assert take_ids(lane, 10) == [(0, 2)]
