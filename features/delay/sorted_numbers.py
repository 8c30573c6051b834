"""Many numbers that are due in the same millisecond: sorted in pieces, merged as they are taken.

Sorting a million in one go, or again for each part that is taken, would stop a loop for a
second each time.
"""

import heapq
import struct
from typing import Final

NUMBER: Final = struct.Struct(">QQ")  # sorts as octets by due time, then by number


class SortedNumbers:
    """Numbers in pieces, 16 octets each. ``is_ready``: all of them are in, some may be taken."""

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
        """Octets of what is left."""
        return sum(len(self._pieces[index]) - at for _, index, at in self._heads)
