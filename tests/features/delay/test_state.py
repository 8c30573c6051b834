"""Waiting messages compared with a plain model: counts, locations, truncation and cost."""

import gc
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from features.delay.message_locations import MessageLocation, MessageLocations
from features.delay.state import LOG_BLOCK_BITS, DelayState
from tests.support.examples import examples

NOW_UNIX_MS = 1_700_000_000_000
TOPICS = [b"a" * 16, b"b" * 16, b"c" * 16]
HOUR_MS = 3_600_000


@pytest.mark.heavy
def test_a_million_that_wait_cost_no_objects() -> None:
    count = 30_000
    tracemalloc.start()
    state = DelayState(NOW_UNIX_MS)
    state.loaded()
    for number in range(1, count + 1):
        state.add(NOW_UNIX_MS + HOUR_MS + number, (5 << 40) + number, TOPICS[0], number, 200)
    each_bytes = tracemalloc.get_traced_memory()[0] / count
    tracemalloc.stop()

    assert each_bytes < 60


@pytest.mark.heavy
def test_the_last_of_many_cost_little() -> None:
    tracemalloc.start()
    state = DelayState(NOW_UNIX_MS)
    state.loaded()
    for number in range(1, 20_001):
        waits = number % 1_000 == 0
        after_ms = 1_000 * HOUR_MS if waits else 0
        state.add(NOW_UNIX_MS + after_ms, number, TOPICS[0], number, 200)
        if not waits:
            found, _ = state.take(10, 1 << 20)
            state.settled([(one, location) for _, one, location in found])
    gc.collect()  # what the interpreter keeps of tuples that are gone is nobody's
    each_bytes = tracemalloc.get_traced_memory()[0] / state.count
    tracemalloc.stop()

    assert state.count == 20
    assert each_bytes < 3_000


def test_the_last_of_many_cost_little_while_they_are_loaded() -> None:
    count = 2_000
    tracemalloc.start()
    state = DelayState(NOW_UNIX_MS)
    for number in range(1, count * 256, 256):
        state.add(NOW_UNIX_MS + HOUR_MS, number, TOPICS[0], number >> 8, 200)
    each_bytes = tracemalloc.get_traced_memory()[0] / count
    tracemalloc.stop()

    assert each_bytes < 600


@given(st.lists(st.integers(1, 600), max_size=400), st.integers(0, 400))
def test_places_are_found_whatever_the_order_in_which_they_were_loaded(
    numbers: list[int], loaded_count: int
) -> None:
    places = MessageLocations()
    model: dict[int, MessageLocation] = {}
    for offset, number in enumerate(numbers):
        if offset == loaded_count:
            places.tighten()
        if number % 3 == 0:
            assert places.pop(number) == model.pop(number, None)
        else:
            if offset >= loaded_count:
                number += 600 * (number % 2)  # noqa: PLW2901 - from then on higher ones come
            model[number] = (offset, 1, 1)
            places.set(number, model[number])

    assert len(places) == len(model)
    assert {number: places.get(number) for number in model} == model


def test_bytes_bound_what_is_taken_and_keep_the_order() -> None:
    state = DelayState(NOW_UNIX_MS)
    sizes = [10, 1_000, 10, 2_000, 10, 10]
    for number, size_bytes in enumerate(sizes, start=1):
        state.add(NOW_UNIX_MS, number, TOPICS[0], number, size_bytes)
    chunks = []
    while chunk := state.take(100, 1_500)[0]:
        chunks.append([number for _, number, _ in chunk])

    assert [number for taken in chunks for number in taken] == [1, 2, 3, 4, 5, 6]
    for taken in chunks:
        assert len(taken) == 1 or sum(sizes[number - 1] for number in taken) <= 1_500


class StateMachine(RuleBasedStateMachine):
    """Messages by number: (due, topic, offset); taken ones besides."""

    def __init__(self) -> None:
        super().__init__()
        self.now_unix_ms = NOW_UNIX_MS
        self.state = DelayState(self.now_unix_ms)
        self.state.loaded()
        self.waiting: dict[int, tuple[int, bytes, int]] = {}
        self.taken: dict[int, tuple[MessageLocation, bytes, int]] = {}
        self.last = 0
        self.offset = 0

    @rule(
        after_ms=st.sampled_from([0, 1, 300, 70_000, HOUR_MS, 10_000 * HOUR_MS]),
        topic=st.sampled_from(TOPICS),
        count=st.sampled_from([1, 2, 40, 300]),
    )
    def put(self, after_ms: int, topic: bytes, count: int) -> None:
        for _ in range(count):
            self.last += 1
            self.offset += 1
            due_unix_ms = self.now_unix_ms + after_ms
            assert self.state.add(due_unix_ms, self.last, topic, self.offset, 100)
            self.waiting[self.last] = (due_unix_ms, topic, self.offset)

    @rule(ms=st.sampled_from([1, 300, 70_000, HOUR_MS]), count=st.integers(1, 500))
    def take(self, ms: int, count: int) -> None:
        self.now_unix_ms += ms
        while self.state.wheel.advance(self.now_unix_ms, moves_max=1_000):
            pass
        found, _ = self.state.take(count, 1 << 30)
        for wheel_unix_ms, number, location in found:
            due_unix_ms, topic, offset = self.waiting.pop(number)
            assert wheel_unix_ms == due_unix_ms
            assert due_unix_ms <= self.now_unix_ms
            assert location[:2] == (offset, 100)
            self.taken[number] = (location, topic, due_unix_ms)

    @rule()
    def settle(self) -> None:
        self.state.settled([(number, one[0]) for number, one in self.taken.items()])
        self.taken.clear()

    @rule()
    def put_back(self) -> None:
        for number, (location, topic, due_unix_ms) in self.taken.items():
            self.state.back(number, location, due_unix_ms)
            self.waiting[number] = (due_unix_ms, topic, location[0])
        self.taken.clear()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.waiting)))
        location = self.state.remove(number)
        assert location is not None
        assert self.state.remove(number) is None
        self.state.settled([(number, location)])
        del self.waiting[number]

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def append_again(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.waiting)))
        due_unix_ms, topic, offset = self.waiting[number]
        location = self.state.find(number)
        assert location is not None
        assert location[0] == offset
        self.offset += 1
        self.state.move(number, location, self.offset)
        self.waiting[number] = (due_unix_ms, topic, self.offset)

    @rule(topic=st.sampled_from(TOPICS))
    def purge(self, topic: bytes) -> None:
        self.settle()
        self.state.purge(topic, self.last + 1)
        self.waiting = {n: one for n, one in self.waiting.items() if one[1] != topic}

    @invariant()
    def counts_are_right(self) -> None:
        topics = [one[1] for one in (*self.waiting.values(), *self.taken.values())]
        assert self.state.count == len(topics)
        assert self.state.live_bytes == 100 * len(topics)
        for topic in TOPICS:
            assert self.state.count_of(topic) == topics.count(topic)

    @invariant()
    def nothing_that_is_needed_is_cut_off(self) -> None:
        offsets = [one[2] for one in self.waiting.values()]
        offsets += [location[0] for location, _, _ in self.taken.values()]
        lowest = self.state.lowest_offset
        if offsets:
            assert lowest is not None
            assert lowest <= min(offsets)

    @rule()
    def end(self) -> None:
        """Take all messages: none is left, and the whole stream may be cut off."""
        self.settle()
        self.take(ms=20_000 * HOUR_MS, count=1 << 20)
        while self.state.take(1 << 20, 1 << 30)[1]:
            pass
        self.settle()
        assert self.waiting == {}
        assert self.state.lowest_offset is None
        assert self.state.topic_counts == {}


TestState = StateMachine.TestCase
TestState.settings = settings(max_examples=examples(25), stateful_step_count=20, deadline=None)


def test_a_block_of_the_log_may_go_when_nothing_of_it_waits() -> None:
    state = DelayState(NOW_UNIX_MS)
    size = 1 << LOG_BLOCK_BITS
    for number in range(1, 3 * size + 1):
        state.add(NOW_UNIX_MS, number, TOPICS[0], number - 1, 100)
    found, _ = state.take(size + 1, 1 << 30)
    state.settled([(number, location) for _, number, location in found])

    assert state.lowest_offset == size
