"""Sizes of messages by offset, against a plain dictionary; estimates keep their sums."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.queue import size_index
from features.queue.size_index import SizeIndex

RUNS = st.lists(
    st.tuples(
        st.integers(0, 3),  # offsets without a message before the run
        st.lists(st.integers(0, 50), min_size=1, max_size=8),
    ),
    max_size=25,
)


def fill(index: SizeIndex, runs: list[tuple[int, list[int]]]) -> dict[int, int]:
    sizes: dict[int, int] = {}
    offset = index.end_offset
    for gap, run in runs:
        offset += gap
        index.add(offset, run)
        sizes.update(zip(range(offset, offset + len(run)), run, strict=True))
        offset += len(run)
    return sizes


@given(runs=RUNS, first=st.integers(0, 120), count=st.integers(0, 120))
def test_few_messages_are_counted_exactly(
    runs: list[tuple[int, list[int]]], first: int, count: int
) -> None:
    index = SizeIndex(5)
    sizes = fill(index, runs)
    wanted = sum(size for at, size in sizes.items() if first <= at < first + count)
    assert index.bytes_between(first, first + count) == wanted


@given(runs=RUNS, dropped=st.integers(0, 120), first=st.integers(0, 120))
def test_dropped_messages_change_nothing_behind_them(
    runs: list[tuple[int, list[int]]], dropped: int, first: int
) -> None:
    index = SizeIndex(0)
    sizes = fill(index, runs)
    index.drop_before(dropped)
    first = max(first, dropped)
    wanted = sum(size for at, size in sizes.items() if at >= first)
    assert index.bytes_between(first, index.end_offset) == wanted


@given(runs=RUNS)
def test_known_messages_are_not_added_again(runs: list[tuple[int, list[int]]]) -> None:
    index = SizeIndex(0)
    sizes = fill(index, runs)
    end = index.end_offset
    index.add(max(end - 3, 0), [1_000] * min(end, 3))
    assert index.bytes_between(0, end) == sum(sizes.values())


@pytest.mark.parametrize("pieces", [3, 97, 400])
def test_a_long_queue_is_estimated_in_bounded_memory(
    monkeypatch: pytest.MonkeyPatch, pieces: int
) -> None:
    monkeypatch.setattr(size_index, "EXACT_MAX", 1_000)
    monkeypatch.setattr(size_index, "BLOCKS_MAX", 64)
    monkeypatch.setattr(size_index, "BLOCK_MESSAGES", 16)
    index = SizeIndex(0)
    total = 0
    for number in range(pieces):
        index.add(index.end_offset, [10] * 50)
        index.add_sum(index.end_offset, index.end_offset + 50, 500)
        total += 1_000
        assert len(index._firsts) - index._dropped <= 64 + 2
        assert index.bytes_between(0, index.end_offset) == total, number
        middle = index.end_offset // 3
        assert abs(index.bytes_between(0, middle) - 10 * middle) <= 20
    index.drop_before(index.end_offset)
    assert index.bytes_between(0, index.end_offset) == 0
