"""Sizes of a partition's messages by offset, for queues whose length is bounded in bytes.

Messages are kept in blocks. The sizes of the latest ones are known one by one; of older blocks only
the sum is, of which a part is estimated by the number of its messages. So the memory is bounded,
and a queue of a few thousand messages is counted exactly.
"""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

EXACT_MAX: Final = 65_536  # messages whose sizes are known one by one: 8 bytes each
BLOCK_MESSAGES: Final = 256  # up to so many, a block is filled further
BLOCKS_MAX: Final = 8_192  # above it two neighbours become one
_DROPPED_MIN: Final = 64  # blocks that were dropped and are still in the lists


class SizeIndex:
    """Sizes of the messages from one offset to another. Offsets without a message have size 0."""

    __slots__ = (
        "_dropped",
        "_ends",
        "_exact_count",
        "_firsts",
        "_sizes",
        "_sums",
        "end_offset",
    )

    def __init__(self, start_offset: int) -> None:
        self.end_offset = start_offset
        """Offset up to which sizes are known."""
        self._firsts: list[int] = []
        self._ends: list[int] = []
        self._sums: list[int] = [0]  # before each block, and after the last one
        self._sizes: list[array[int] | None] = []  # sums within a block; None where estimated
        self._dropped = 0  # blocks at the front that count no more
        self._exact_count = 0

    def add(self, first: int, sizes: Sequence[int]) -> None:
        """Add contiguous messages; those below ``end_offset`` are known."""
        sizes = sizes[max(self.end_offset - first, 0) :]
        first = max(first, self.end_offset)
        if not sizes:
            return
        block = self._open_block(first)
        total = block[-1]
        for size in sizes:
            total += size
            block.append(total)
        self.end_offset = self._ends[-1] = first + len(sizes)
        self._sums[-1] = self._sums[-2] + total
        self._exact_count += len(sizes)
        self._shrink()

    def add_sum(self, first: int, end: int, size_bytes: int) -> None:
        """Add messages of which only the sum of the sizes is known."""
        first = max(first, self.end_offset)
        if end > first:
            self._begin(first, end, None)
            self._sums[-1] += size_bytes
            self.end_offset = end
            self._shrink()

    def drop_before(self, offset: int) -> None:
        """Forget blocks of messages below an offset."""
        while self._dropped < len(self._ends) and self._ends[self._dropped] <= offset:
            self._forget_exact(self._dropped)
            self._dropped += 1
        if self._dropped > _DROPPED_MIN and self._dropped * 2 > len(self._firsts):
            for part in (self._firsts, self._ends, self._sums, self._sizes):
                del part[: self._dropped]
            self._dropped = 0

    def bytes_between(self, first: int, end: int) -> int:
        """Return the bytes of the messages from ``first`` up to ``end``, without that."""
        return max(self._before(end) - self._before(first), 0)

    def end_of_bytes(self, first: int, size_bytes: int) -> int:
        """Return the lowest end for which ``bytes_between(first, end)`` is at least that."""
        low, high = first, max(self.end_offset, first)
        while low < high:
            middle = (low + high) // 2
            if self.bytes_between(first, middle) >= size_bytes:
                high = middle
            else:
                low = middle + 1
        return low

    def _before(self, offset: int) -> int:
        """Return the bytes of all blocks' messages below an offset."""
        index = bisect_right(self._firsts, offset, lo=self._dropped) - 1
        if index < self._dropped:
            return self._sums[self._dropped]
        first, end = self._firsts[index], self._ends[index]
        if offset >= end:
            return self._sums[index + 1]
        sizes = self._sizes[index]
        if sizes is not None:
            return self._sums[index] + sizes[offset - first]
        block_bytes = self._sums[index + 1] - self._sums[index]
        return self._sums[index] + block_bytes * (offset - first) // (end - first)

    def _open_block(self, first: int) -> "array[int]":
        if len(self._ends) > self._dropped and self._ends[-1] == first:
            sizes = self._sizes[-1]
            if sizes is not None and len(sizes) <= BLOCK_MESSAGES:
                return sizes
        block = array("Q", [0])
        self._begin(first, first, block)
        return block

    def _begin(self, first: int, end: int, sizes: "array[int] | None") -> None:
        self._firsts.append(first)
        self._ends.append(end)
        self._sizes.append(sizes)
        self._sums.append(self._sums[-1])

    def _forget_exact(self, index: int) -> None:
        sizes = self._sizes[index]
        if sizes is not None:
            self._exact_count -= len(sizes) - 1
            self._sizes[index] = None

    def _shrink(self) -> None:
        index = self._dropped
        while self._exact_count > EXACT_MAX:
            self._forget_exact(index)
            index += 1
        if len(self._firsts) - self._dropped > BLOCKS_MAX:
            self._merge_pairs()

    def _merge_pairs(self) -> None:
        """Make one block of each two neighbours; gaps between them are part of it."""
        start = self._dropped
        firsts, ends, sums = self._firsts[start:], self._ends[start:], self._sums[start:]
        last_end = ends[-1]
        self._firsts = firsts[::2]
        self._ends = ends[1::2]
        if len(self._ends) < len(self._firsts):
            self._ends.append(last_end)
        self._sums = sums[::2]
        if len(self._sums) <= len(self._firsts):
            self._sums.append(sums[-1])
        self._sizes = [None] * len(self._firsts)
        self._dropped = 0
        self._exact_count = 0
