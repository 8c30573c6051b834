"""The timing wheel gives everything back at its time, in order, in bounded steps."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from features.delay.wheel import (
    DUE_UNIX_MS_MAX,
    GROUP_COUNT,
    PEEK_COUNT_MAX,
    WINDOW_MS,
    TimingWheel,
)
from tests.support.examples import examples

NOW_UNIX_MS = 1_700_000_000_000
SPANS_MS = (1, 255, 256, 257, 65_535, 65_536, 65_537, 16_777_217, 4_294_967_297)
YEAR_MS = 365 * 86_400_000

spans_ms = st.one_of(
    st.integers(0, 1_000),
    st.integers(0, 200_000),
    st.integers(0, YEAR_MS),
    st.integers(0, 1_000 * YEAR_MS),
    st.sampled_from(SPANS_MS),
)


def taken(wheel: TimingWheel, now_unix_ms: int) -> list[tuple[int, int]]:
    while wheel.advance(now_unix_ms, moves_max=100):
        pass
    return wheel.take_due(1_000_000)


@pytest.mark.parametrize("after_ms", [*SPANS_MS, YEAR_MS, 100 * YEAR_MS])
@pytest.mark.parametrize("step_ms", [1, 3, 1_000, 70_000])
def test_a_number_comes_at_its_time_and_not_before(after_ms: int, step_ms: int) -> None:
    wheel = TimingWheel(NOW_UNIX_MS)
    due_unix_ms = NOW_UNIX_MS + after_ms
    wheel.insert(due_unix_ms, 7)
    before: list[tuple[int, int]] = []
    now_unix_ms = max(NOW_UNIX_MS, due_unix_ms - 200 * step_ms)
    while now_unix_ms < due_unix_ms:
        before += taken(wheel, now_unix_ms)
        now_unix_ms += step_ms

    assert before == taken(wheel, due_unix_ms - 1) == []
    assert taken(wheel, due_unix_ms) == [(due_unix_ms, 7)]
    assert len(wheel) == 0
    assert wheel.next_unix_ms is None


def test_the_latest_time_is_kept() -> None:
    wheel = TimingWheel(NOW_UNIX_MS)
    wheel.insert(DUE_UNIX_MS_MAX, 1)
    assert taken(wheel, DUE_UNIX_MS_MAX - 1) == []
    assert taken(wheel, DUE_UNIX_MS_MAX) == [(DUE_UNIX_MS_MAX, 1)]


def test_what_is_dealt_out_at_a_time_is_bounded() -> None:
    wheel = TimingWheel(NOW_UNIX_MS)
    for number in range(1_000):
        wheel.insert(NOW_UNIX_MS + 3_600_000 + number % 7, number)
    rounds = 1
    while wheel.advance(NOW_UNIX_MS + 3_600_007, moves_max=10):
        rounds += 1

    assert rounds >= 200  # two levels above the lowest
    assert len(wheel.take_due(10_000)) == 1_000


@pytest.mark.parametrize("after_ms", [0, 100, 100_000])
def test_group_of_a_millisecond_comes_in_order_through_all_detours(after_ms: int) -> None:
    wheel = TimingWheel(NOW_UNIX_MS)
    due_unix_ms = NOW_UNIX_MS + after_ms
    count = 3 * GROUP_COUNT
    for number in range(count):
        wheel.insert(due_unix_ms, (number * 7_919) % count)  # 7,919 is prime: each comes once
    wheel.insert(due_unix_ms + 1, count + 1)
    while wheel.advance(due_unix_ms - 1, moves_max=500):
        pass
    found = [] if after_ms == 0 else wheel.take_due(10)
    while wheel.advance(due_unix_ms + 1, moves_max=500):
        pass
    while some := wheel.take_due(700):
        back = some[600:]
        if back:
            wheel.put_back(back)
        found += some[:600]
        if len(found) == 1_200:
            wheel.insert(due_unix_ms, count)  # after those that were there
        wheel.advance(due_unix_ms + 1, moves_max=500)

    numbers = [number for _, number in found]
    assert numbers == list(range(count + 2))
    assert len(wheel) == 0
    assert wheel.next_unix_ms is None


def test_group_of_a_millisecond_is_sorted_in_bounded_steps() -> None:
    wheel = TimingWheel(NOW_UNIX_MS)
    for number in range(2 * GROUP_COUNT):
        wheel.insert(NOW_UNIX_MS, number)

    assert wheel.take_due(10) == []  # it is too many to be sorted here
    rounds = 1
    while wheel.advance(NOW_UNIX_MS, moves_max=GROUP_COUNT // 4):
        rounds += 1
    assert rounds == 8
    assert len(wheel.take_due(10)) == 10


def test_window_with_too_much_in_it_is_not_looked_at() -> None:
    wheel = TimingWheel(NOW_UNIX_MS)
    window = NOW_UNIX_MS // WINDOW_MS + 2
    for number in range(PEEK_COUNT_MAX):
        wheel.insert(window * WINDOW_MS + number % 2, number)
    before = wheel.peek(window)
    wheel.insert(window * WINDOW_MS, PEEK_COUNT_MAX)

    assert len(before or []) == PEEK_COUNT_MAX
    assert wheel.peek(window) is None


def test_nothing_is_taken_before_what_is_not_dealt_out_yet() -> None:
    wheel = TimingWheel(NOW_UNIX_MS)
    later_ms = NOW_UNIX_MS + 100_000
    wheel.insert(later_ms, 1)
    wheel.advance(later_ms + 1, moves_max=0)
    wheel.insert(later_ms + 1, 2)

    assert wheel.take_due(10) == []
    assert taken(wheel, later_ms + 1) == [(later_ms, 1), (later_ms + 1, 2)]


def test_a_window_shows_what_is_due_in_it() -> None:
    wheel = TimingWheel(NOW_UNIX_MS)
    window = NOW_UNIX_MS // WINDOW_MS + 2
    for number, at_ms in enumerate((-1, 0, 255, 256)):
        wheel.insert(window * WINDOW_MS + at_ms, number)

    assert sorted(wheel.peek(window) or []) == [1, 2]


@given(st.lists(spans_ms, max_size=50), st.integers(1, 20))
@settings(max_examples=examples(200), deadline=None)
def test_next_time_is_never_too_late(afters_ms: list[int], moves_max: int) -> None:
    """A caller that wakes only at the returned time misses nothing."""
    wheel = TimingWheel(NOW_UNIX_MS)
    for number, after_ms in enumerate(afters_ms):
        wheel.insert(NOW_UNIX_MS + after_ms, number)
    late = []
    now_unix_ms = NOW_UNIX_MS
    while (next_unix_ms := wheel.next_unix_ms) is not None:
        now_unix_ms = max(now_unix_ms, next_unix_ms)
        while wheel.advance(now_unix_ms, moves_max=moves_max):
            pass
        late += [now_unix_ms - due for due, _ in wheel.take_due(100)]

    assert late == [0] * len(afters_ms)


class WheelMachine(RuleBasedStateMachine):
    """The wheel against a list, under any order of puts, steps of time and takes."""

    @initialize(now_unix_ms=st.integers(0, NOW_UNIX_MS))
    def begin(self, now_unix_ms: int) -> None:
        self.wheel = TimingWheel(now_unix_ms)
        self.now_unix_ms = self.highest_unix_ms = now_unix_ms
        self.waiting: list[tuple[int, int]] = []
        self.last = 0
        self.late: set[int] = set()

    @rule(after_ms=spans_ms, count=st.integers(1, 5))
    def put(self, after_ms: int, count: int) -> None:
        for _ in range(count):
            self.last += 1
            if self.now_unix_ms + after_ms <= self.highest_unix_ms:
                self.late.add(self.last)
            self.wheel.insert(self.now_unix_ms + after_ms, self.last)
            self.waiting.append((self.now_unix_ms + after_ms, self.last))

    @rule(before_ms=spans_ms)
    def put_late(self, before_ms: int) -> None:
        self.last += 1
        due_unix_ms = max(self.now_unix_ms - before_ms, 0)
        self.wheel.insert(due_unix_ms, self.last)
        self.waiting.append((due_unix_ms, self.last))
        self.late.add(self.last)  # its turn is that of now

    @rule(after_ms=spans_ms, moves_max=st.integers(0, 20))
    def pass_time(self, after_ms: int, moves_max: int) -> None:
        self.now_unix_ms = min(self.now_unix_ms + after_ms, DUE_UNIX_MS_MAX // 2)
        self.highest_unix_ms = max(self.highest_unix_ms, self.now_unix_ms)
        self.wheel.advance(self.now_unix_ms, moves_max=moves_max)

    @rule(before_ms=spans_ms)
    def set_back(self, before_ms: int) -> None:
        self.now_unix_ms = max(self.now_unix_ms - before_ms, 0)
        self.wheel.advance(self.now_unix_ms, moves_max=5)

    @rule(count_max=st.integers(1, 7), given_back=st.integers(0, 3))
    def take(self, count_max: int, given_back: int) -> None:
        while self.wheel.advance(self.now_unix_ms, moves_max=100):
            pass
        expected = sorted(one for one in self.waiting if one[0] <= self.highest_unix_ms)
        found = self.wheel.take_due(count_max)
        if 0 < given_back < len(found):
            self.wheel.put_back(found[-given_back:])
            del found[-given_back:]
        assert len(found) <= count_max
        assert bool(found) == bool(expected)
        in_time = [one for one in found if one[1] not in self.late]
        assert in_time == sorted(in_time)
        assert set(found) <= set(expected)
        for one in found:
            self.waiting.remove(one)

    @rule(ahead_ms=st.integers(0, 600), count_max=st.integers(1, 7), kept=st.integers(0, 7))
    def take_ahead(self, ahead_ms: int, count_max: int, kept: int) -> None:
        """Messages due soon are taken in order; those put back are not delivered early."""
        while self.wheel.advance(self.now_unix_ms, moves_max=100):
            pass
        until_unix_ms = self.highest_unix_ms + ahead_ms
        expected = sorted(one for one in self.waiting if one[0] <= until_unix_ms)
        there_for_sure_ms = min(until_unix_ms, self.highest_unix_ms | WINDOW_MS - 1)
        found = self.wheel.take_due(count_max, until_unix_ms=until_unix_ms)
        if found[kept:]:
            self.wheel.put_back(found[kept:])
        assert set(found) <= set(expected)
        sure = [one for one in expected if one[0] <= there_for_sure_ms]
        assert len(found) >= min(len(sure), count_max)
        in_time = [one for one in found if one[1] not in self.late]
        assert in_time == sorted(in_time)
        for one in found[:kept]:
            self.waiting.remove(one)

    @rule()
    def take_all(self) -> None:
        assert sorted(taken(self.wheel, self.now_unix_ms)) == sorted(
            one for one in self.waiting if one[0] <= self.highest_unix_ms
        )
        self.waiting = [one for one in self.waiting if one[0] > self.highest_unix_ms]

    @invariant()
    def nothing_is_lost(self) -> None:
        assert len(self.wheel) == len(self.waiting)


TestWheel = WheelMachine.TestCase
TestWheel.settings = settings(max_examples=examples(150), stateful_step_count=30, deadline=None)
