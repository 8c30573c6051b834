"""Batches of a compaction round that keep no record, found before any is read again."""

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

BATCHES_MAX: Final = 1_000_000  # 13 MB; what is noted beyond is looked at again
NOT_NOTED: Final = -1


class NotedBatches:
    """Base offset of each noted batch, and whether any of its records may stay."""

    __slots__ = ("_counts", "_is_needed", "_starts")

    def __init__(self) -> None:
        self._starts = array("q")
        self._counts = array("I")
        self._is_needed = bytearray()

    def add(self, base_offset: int, record_count: int, *, is_needed: bool) -> None:
        """Note a batch, in order of offset; ``is_needed``: it must be looked at again."""
        if len(self._starts) < BATCHES_MAX:
            self._starts.append(base_offset)
            self._counts.append(record_count)
            self._is_needed.append(is_needed)

    def seal(self, latest_offsets: Iterable[int]) -> None:
        """Mark the batches that hold one of these offsets, and the last one; none comes."""
        starts, is_needed = self._starts, self._is_needed
        for offset in latest_offsets:
            is_needed[bisect_right(starts, offset) - 1] = True
        is_needed[-1:] = b"\1"

    def superseded_count(self, base_offset: int) -> int:
        """Return how many records a batch has of which none stays, else ``NOT_NOTED``."""
        index = bisect_right(self._starts, base_offset) - 1
        if index < 0 or self._starts[index] != base_offset or self._is_needed[index]:
            return NOT_NOTED
        return self._counts[index]
