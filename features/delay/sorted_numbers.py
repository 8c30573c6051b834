"""Numbers due in the same millisecond: sorted in pieces, merged when taken.

Sorting a million numbers in one call, or again for each part taken, would block the loop for a
second each time.
"""

import heapq
import struct
from typing import Final

NUMBER: Final = struct.Struct(">QQ")  # sorts as bytes by due time, then by number


class SortedNumbers:
    """Numbers in pieces, 16 bytes each. ``is_ready``: all were added, taking may begin."""

    __slots__ = ("_heads", "_pieces", "is_ready")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._heads: list[tuple[bytes, int, int]] = []  # a heap: number, piece, place in it
        self.is_ready = False

    def __bool__(self) -> bool:
        return bool(self._heads)

    def add(self, packed: bytes) -> None:
        """Add numbers in any order, as one piece: 0.5 us each."""
        size = NUMBER.size
        piece = b"".join(sorted([packed[at : at + size] for at in range(0, len(packed), size)]))
        heapq.heappush(self._heads, (piece[:size], len(self._pieces), 0))
        self._pieces.append(piece)

    def take(self, count_max: int) -> list[tuple[int, int]]:
        """Take the first (due time, number), in order."""
        heads, pieces = self._heads, self._pieces
        taken: list[bytes] = []
        while heads and len(taken) < count_max:
            number, index, at = heads[0]
            taken.append(number)
            at += NUMBER.size
            piece = pieces[index]
            if at < len(piece):
                heapq.heapreplace(heads, (piece[at : at + NUMBER.size], index, at))
            else:
                heapq.heappop(heads)
                pieces[index] = b""
        return list(NUMBER.iter_unpack(b"".join(taken)))

    def numbers(self) -> list[int]:
        """Return all numbers, in no order."""
        rest = b"".join(self._pieces[index][at:] for _, index, at in self._heads)
        return [number for _, number in NUMBER.iter_unpack(rest)]

    @property
    def size_bytes(self) -> int:
        """Size of the remaining numbers in bytes."""
        return sum(len(self._pieces[index]) - at for _, index, at in self._heads)
