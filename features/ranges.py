"""Offsets, or sequence numbers, as ranges that do not touch: a million in a row cost as one."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from operator import itemgetter

_BY_FIRST = itemgetter(0)
_BY_LAST = itemgetter(1)


def contiguous_ranges(offsets: Iterable[int]) -> Iterator[range]:
    """Yield ascending offsets as the fewest ranges.

    >>> list(contiguous_ranges([3, 4, 5, 9]))
    [range(3, 6), range(9, 10)]
    """
    first = end = -1
    for offset in offsets:
        if offset != end:
            if end >= 0:
                yield range(first, end)
            first = offset
        end = offset + 1
    if end >= 0:
        yield range(first, end)


class RangeSet:
    """A set of offsets. ``count`` is how many."""

    __slots__ = ("_ranges", "count")

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []
        self.count = 0

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._ranges)

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def __contains__(self, offset: int) -> bool:
        index = bisect_left(self._ranges, offset, key=_BY_LAST)
        return index < len(self._ranges) and self._ranges[index][0] <= offset

    def add(self, first: int, last: int) -> None:
        """Add all from ``first`` to ``last``, with both."""
        ranges = self._ranges
        begin = bisect_left(ranges, first - 1, key=_BY_LAST)  # those that touch are joined
        end = bisect_right(ranges, last + 1, lo=begin, key=_BY_FIRST)
        for old_first, old_last in ranges[begin:end]:
            self.count -= old_last - old_first + 1
            first = min(first, old_first)
            last = max(last, old_last)
        ranges[begin:end] = [(first, last)]
        self.count += last - first + 1

    def gaps(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield what lies between ``first`` and ``last``, with both, and is not in the set."""
        index = bisect_left(self._ranges, first, key=_BY_LAST)
        while first <= last:
            if index == len(self._ranges) or self._ranges[index][0] > last:
                yield first, last
                return
            held_first, held_last = self._ranges[index]
            if held_first > first:
                yield first, held_first - 1
            first = held_last + 1
            index += 1

    def drop_before(self, offset: int) -> None:
        """Remove all offsets below."""
        ranges = self._ranges
        end = bisect_left(ranges, offset, key=_BY_LAST)
        self.count -= sum(last - first + 1 for first, last in ranges[:end])
        del ranges[:end]
        if ranges and ranges[0][0] < offset:
            first, last = ranges[0]
            ranges[0] = (offset, last)
            self.count -= offset - first

    def clear(self) -> None:
        """Remove all."""
        self._ranges = []
        self.count = 0
