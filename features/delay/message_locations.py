"""Log locations of delayed messages by number, packed in blocks of 256.

Numbers are consecutive, so a new block is full, 16 bytes a message. The last few messages of a
block move into a dictionary, so that one long delay does not keep a whole block. While stored
messages are loaded, in any order, the first few of a block are in the dictionary.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final

BLOCK_COUNT: Final = 256
SPARSE_COUNT: Final = 16  # with fewer messages a block costs more than the dictionary

_SLICE_COUNT_MIN: Final = 4  # for fewer, a slice does not pay
_LOCATION: Final = struct.Struct(">QII")
_BLOCK_BYTES: Final = BLOCK_COUNT * _LOCATION.size
_NOTHING: Final = bytes(_LOCATION.size)


# Location of a message: offset, size in bytes (never 0), index of its topic. A plain tuple,
# because every delayed message needs one when it is due.
MessageLocation = tuple[int, int, int]


class MessageLocations:
    """Number to place. Numbers are above 0, and only grow from ``tighten`` on."""

    def __init__(self) -> None:
        self._blocks: dict[int, bytearray] = {}
        self._counts: dict[int, int] = {}
        self._sparse: dict[int, bytes] = {}
        self._strays: dict[int, int] = {}  # until ``tighten``: how many of a block are sparse
        self._newest = 0  # block
        self._is_tight = False

    def __len__(self) -> int:
        return sum(self._counts.values()) + len(self._sparse)

    def get(self, number: int) -> MessageLocation | None:
        """Return the location of a number, or None when it is not delayed."""
        block = self._blocks.get(number >> 8)
        if block is None:
            packed = self._sparse.get(number)
            return None if packed is None else _LOCATION.unpack(packed)
        location: MessageLocation = _LOCATION.unpack_from(
            block, (number & 0xFF) * _LOCATION.size
        )
        return location if location[1] else None

    def set(self, number: int, location: MessageLocation) -> None:
        """Add a number, or change its location."""
        index = number >> 8
        block = self._blocks.get(index)
        if block is None:
            block = self._block_for(number, index)
        if block is None:
            self._sparse[number] = _LOCATION.pack(*location)
            return
        at = (number & 0xFF) * _LOCATION.size
        if block[at : at + _LOCATION.size] == _NOTHING:
            self._counts[index] += 1
        _LOCATION.pack_into(block, at, *location)

    def _block_for(self, number: int, index: int) -> bytearray | None:
        """Return a new block if a number without a block justifies one, else None."""
        if self._is_tight:
            if index < self._newest:
                return None
            before, self._newest = self._newest, index
            block = self._open_block(index)
            if before != index:
                self._close_block(before)
            return block
        self._newest = max(index, self._newest)
        if number in self._sparse:
            return None
        count = self._strays.get(index, 0) + 1
        if count < SPARSE_COUNT:
            self._strays[index] = count
            return None
        self._strays.pop(index, None)
        return self._open_block(index)

    def _open_block(self, index: int) -> bytearray:
        """Return a new block that holds the block's numbers of the dictionary."""
        block = self._blocks[index] = bytearray(_BLOCK_BYTES)
        self._counts[index] = 0
        if self._sparse:
            for low in range(BLOCK_COUNT):
                packed = self._sparse.pop(index << 8 | low, None)
                if packed is not None:
                    block[low * _LOCATION.size : (low + 1) * _LOCATION.size] = packed
                    self._counts[index] += 1
        return block

    def pop(self, number: int) -> MessageLocation | None:
        """Remove a number; return its location, or None when it was not delayed."""
        index = number >> 8
        block = self._blocks.get(index)
        if block is None:
            packed = self._sparse.pop(number, None)
            return None if packed is None else _LOCATION.unpack(packed)
        at = (number & 0xFF) * _LOCATION.size
        location: MessageLocation = _LOCATION.unpack_from(block, at)
        if not location[1]:
            return None
        block[at : at + _LOCATION.size] = _NOTHING
        self._popped(index, 1)
        return location

    def pop_many(self, numbers: Sequence[int]) -> list[MessageLocation | None]:
        """Remove many numbers; consecutive ones cost 0.2 us each instead of 1 us."""
        found: list[MessageLocation | None] = []
        at, count = 0, len(numbers)
        while at < count:
            first = numbers[at]
            end = at + 1
            if end < count and numbers[end] != first + 1:
                found.append(self.pop(first))
                at = end
                continue
            stop = min(count, at + BLOCK_COUNT - (first & 0xFF))
            while end < stop and numbers[end] == first + end - at:
                end += 1
            found += self._pop_row(first, end - at)
            at = end
        return found

    def _pop_row(self, first: int, count: int) -> list[MessageLocation | None]:
        """Remove consecutive numbers of one block."""
        block = self._blocks.get(first >> 8)
        if block is None or count < _SLICE_COUNT_MIN:
            return [self.pop(number) for number in range(first, first + count)]
        start = (first & 0xFF) * _LOCATION.size
        end = start + count * _LOCATION.size
        locations: list[MessageLocation] = list(_LOCATION.iter_unpack(block[start:end]))
        block[start:end] = bytes(end - start)
        found = [location if location[1] else None for location in locations]
        self._popped(first >> 8, count - found.count(None))
        return found

    def _popped(self, index: int, count: int) -> None:
        self._counts[index] -= count
        if self._is_tight and index != self._newest:
            self._close_block(index)

    def tighten(self) -> None:
        """Finish loading: from now on every new number is above all others."""
        self._is_tight = True
        self._strays.clear()
        if self._newest not in self._blocks:  # where the next ones may go
            self._open_block(self._newest)
        for index in [one for one in self._blocks if one != self._newest]:
            self._close_block(index)

    def _close_block(self, index: int) -> None:
        """Move the rest of a block without new numbers to the dictionary, if it is small."""
        if self._counts.get(index, BLOCK_COUNT) >= SPARSE_COUNT:
            return
        block = self._blocks.pop(index)
        del self._counts[index]
        for number, packed in _present(index, block):
            self._sparse[number] = packed


def _present(index: int, block: bytearray) -> Iterator[tuple[int, bytes]]:
    for low in range(BLOCK_COUNT):
        packed = bytes(block[low * _LOCATION.size : (low + 1) * _LOCATION.size])
        if packed != _NOTHING:
            yield index << 8 | low, packed
