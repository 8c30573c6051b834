from hypothesis import given
from hypothesis import strategies as st

from features.ranges import RangeSet

PAIRS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 6)), max_size=15)


def members(ranges: RangeSet) -> set[int]:
    return {offset for first, last in ranges for offset in range(first, last + 1)}


@given(PAIRS, st.integers(0, 50), st.tuples(st.integers(0, 50), st.integers(0, 20)))
def test_ranges_are_a_set_of_offsets(
    pairs: list[tuple[int, int]], drop_before: int, window: tuple[int, int]
) -> None:
    ranges = RangeSet()
    expected: set[int] = set()
    for first, size in pairs:
        ranges.add(first, first + size)
        expected |= set(range(first, first + size + 1))
        assert members(ranges) == expected
        assert ranges.count == len(expected)
    begin, size = window
    wanted = set(range(begin, begin + size))
    gaps = [range(first, last + 1) for first, last in ranges.gaps(begin, begin + size - 1)]
    assert [at for gap in gaps for at in gap] == sorted(wanted - expected)
    assert {at for at in range(60) if at in ranges} == expected

    ranges.drop_before(drop_before)

    assert members(ranges) == {at for at in expected if at >= drop_before}
    assert ranges.count == len(members(ranges))
    assert bool(ranges) == bool(members(ranges))


def test_ranges_that_touch_are_one() -> None:
    ranges = RangeSet()
    for first in (10, 30, 20):
        ranges.add(first, first + 9)

    assert list(ranges) == [(10, 39)]
