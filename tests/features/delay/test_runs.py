"""Runs are found by any of their messages, and never have two blocks of numbers."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.delay.message_locations import BLOCK_COUNT
from features.delay.runs import RUN_COUNT_MIN, Runs, start_of_run
from features.delay.state import DelayState

NOW_UNIX_MS = 1_700_000_000_000
TOPIC = b"t" * 16


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, BLOCK_COUNT)), max_size=30))
def test_a_message_is_found_in_its_run_and_in_no_other(steps: list[tuple[int, int]]) -> None:
    runs = Runs()
    last = 0
    first_of: dict[int, int] = {}
    for alone, count in steps:
        last += alone
        first = start_of_run(last, count)
        assert last < first <= last + BLOCK_COUNT
        runs.add(first, count)
        first_of |= dict.fromkeys(range(first, first + count), first)
        last = first + count - 1

    for number in range(last + 2):
        run = runs.of(number)
        assert (None if run is None else run.first) == first_of.get(number)
    for first in set(first_of.values()):
        found = runs.pop(first)
        assert found is not None
        assert found.first == first
        assert runs.pop(first) is runs.of(first) is None
    assert not runs


def test_a_run_counts_its_messages_and_is_one_row() -> None:
    state = DelayState(NOW_UNIX_MS)
    state.loaded()
    state.add(NOW_UNIX_MS, 1, TOPIC, 0, 100)
    state.add(NOW_UNIX_MS, 2, TOPIC, 1, 900, 20)
    counted = (state.count, state.count_of(TOPIC), state.live_bytes)
    run = state.runs.of(7)
    assert run is not None
    location = state.find(2)
    assert location is not None

    state.settle_part(run, 1, location)
    without_one = (state.count, state.count_of(TOPIC), state.live_bytes)
    taken, _ = state.take(10, 1 << 20)
    state.settled([(number, one) for _, number, one in taken])

    assert counted == (21, 21, 1_000)
    assert without_one == (20, 20, 1_000)
    assert [number for _, number, _ in taken] == [1, 2]
    assert (state.count, state.live_bytes, state.lowest_offset) == (0, 0, None)
    assert state.topic_counts == {}
    assert not state.runs


@pytest.mark.parametrize("is_purged_first", [True, False])
def test_a_purged_run_counts_for_nothing_whenever_its_parts_end(is_purged_first: bool) -> None:  # noqa: FBT001
    state = DelayState(NOW_UNIX_MS)
    state.loaded()
    state.add(NOW_UNIX_MS, 2, TOPIC, 1, 900, 20)
    state.add(NOW_UNIX_MS + 5, 30, TOPIC, 2, 100)
    run, location = state.runs.of(2), state.find(2)
    assert run is not None
    assert location is not None

    for purges in (is_purged_first, not is_purged_first):
        if purges:
            state.purge(TOPIC, 30)
            state.add(NOW_UNIX_MS + 5, 31, TOPIC, 3, 100)
        else:
            state.settle_part(run, 20, location)
    assert state.count == state.count_of(TOPIC) == 1
    taken, gone = state.take(10, 1 << 20)

    assert (taken, gone) == ([], [2])
    assert state.count == 1
    assert not state.runs


def test_small_runs_cost_no_more_than_messages_that_wait_alone() -> None:
    count = 50_000
    state = DelayState(0)
    state.loaded()
    last = 1 << 40
    tracemalloc.start()
    for at in range(count // RUN_COUNT_MIN):
        first = start_of_run(last, RUN_COUNT_MIN)
        last = first + RUN_COUNT_MIN - 1
        state.add(10**12 + at, first, bytes(16), at, 1_000, RUN_COUNT_MIN)
    each_bytes = tracemalloc.get_traced_memory()[0] / state.count
    tracemalloc.stop()
    assert each_bytes < 42
