"""Who goes next: one line per key, and the lines that have something to hand out, in order.

A line whose messages must keep their order (``Order.KEY``) gives nothing while messages of its
key are in flight, but what was given back and comes before all of those; nor does it give anything
past one that waits to be visible. What has no key is in no order.
"""

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import Final

from features.fairness import Fairness
from features.ordering import KeyLocks
from features.queue.model import Order
from features.queue.states import NO_TIME, Back, Flight, Open, Stretch

_GIVEN_BACK: Final = 0  # goes before what was never handed out
_FRESH: Final = 1
_STALE_MIN: Final = 64

Place = tuple[int, int]  # _GIVEN_BACK or _FRESH, offset


class Line:
    """What waits of one key: offsets that were given back, and stretches, each as a heap.

    ``place`` is where it stands among the lines that have something; None when it does not.
    """

    __slots__ = ("back", "key", "number", "place", "stretches")

    def __init__(self, key: bytes | None, number: int) -> None:
        self.key = key
        self.number = number
        self.back: list[int] = []
        self.stretches: list[tuple[int, Stretch]] = []
        self.place: Place | None = None


class Lines:
    """All lines of a lane. ``items`` are its open messages."""

    __slots__ = ("_fairness", "_items", "_lines", "_locks", "_number", "_ready", "is_ordered")

    def __init__(
        self,
        order: Order,
        items: Mapping[int, Open],
        locks: KeyLocks[Flight],
        fairness: Fairness | None,
    ) -> None:
        self._items = items
        self._locks = locks
        self._fairness = fairness if order is Order.FAIR else None
        self.is_ordered = order is Order.KEY
        self.clear()

    def clear(self) -> None:
        """Nothing waits."""
        self._lines: dict[bytes | None, Line] = {}
        self._ready: list[tuple[Place, int, Line]] = []
        self._number = 0

    def keeps_order(self, key: bytes | None) -> bool:
        """Whether messages of that key go one after the other."""
        return self.is_ordered and key is not None

    @property
    def only_keyless(self) -> Line | None:
        """What has no key, when nothing else waits."""
        lines = self._lines
        return lines.get(None) if len(lines) == 1 else None

    def add_back(self, back: Back) -> None:
        """A message was given back. A delayed one is added at once if it keeps others waiting."""
        line = self._line_of(back.key)
        heappush(line.back, back.offset)
        self.offer(line)

    def add_stretch(self, stretch: Stretch) -> None:
        """Messages have come. Delayed ones are added at once if they keep others waiting."""
        line = self._line_of(stretch.key)
        heappush(line.stretches, (stretch.first, stretch))
        self.offer(line)

    def _line_of(self, key: bytes | None) -> Line:
        line = self._lines.get(key)
        if line is None:
            self._number += 1
            line = self._lines[key] = Line(key, self._number)
        return line

    def offer_key(self, key: bytes | None) -> None:
        """Something of a key has changed: a lock has ended, a delay is over."""
        line = self._lines.get(key)
        if line is not None:
            self.offer(line)

    def offer_back(self, key: bytes) -> None:
        """Not all of a key are in flight any more: one that was given back may be the first."""
        line = self._lines.get(key)
        if line is not None and line.back:
            self.offer(line)

    def offer(self, line: Line) -> None:
        """Let a line take its place, if it has something to hand out."""
        place = self._place_of(line)
        if place is None:
            if not line.back and not line.stretches:
                self._lines.pop(line.key, None)
                line.place = None
            return
        if line.place is not None and line.place <= place:
            return
        line.place = place
        ready = self._ready
        heappush(ready, (place, line.number, line))
        if len(ready) > 2 * len(self._lines) + _STALE_MIN:
            self._ready = [
                (line.place, line.number, line)
                for line in self._lines.values()
                if line.place is not None
            ]
            heapify(self._ready)

    def _place_of(self, line: Line) -> Place | None:
        """Return where a line's next message stands, None when it may hand out nothing."""
        back = self.first_back(line)
        stretches = line.stretches
        while stretches and stretches[0][1].first > stretches[0][1].last:
            heappop(stretches)
        if back is not None:
            lowest = self.lowest_in_flight(line.key)
            may_go = lowest is None or back.offset < lowest
            return (
                (_GIVEN_BACK, back.offset) if may_go and back.due_unix_ms == NO_TIME else None
            )
        if self.is_ordered and line.key is not None and self._locks.is_locked(line.key):
            return None
        if stretches:
            stretch = stretches[0][1]
            return (_FRESH, stretch.first) if stretch.due_unix_ms == NO_TIME else None
        return None

    def lowest_in_flight(self, key: bytes | None) -> int | None:
        """Return the lowest offset in flight of a key, None of one that is not locked."""
        if not self.is_ordered or key is None or not self._locks.is_locked(key):
            return None
        items = self._items
        return min(
            at
            for flight in self._locks.holders(key)
            for at in flight.offsets
            if items.get(at) is flight
        )

    def first_back(self, line: Line) -> Back | None:
        """Return the lowest message that was given back; it is delayed only if others wait for it.

        What is in the heap without cause is thrown out: it was purged, or settled when its lease
        was over, and may have come back later than it was there.
        """
        heap = line.back
        may_be_delayed = self.keeps_order(line.key)
        while heap:
            back = self._items.get(heap[0])
            if type(back) is Back and (may_be_delayed or back.due_unix_ms == NO_TIME):
                return back
            heappop(heap)
        return None

    def returned(self, count: int) -> list[int]:
        """Return the first that were given back and may go: line after line, ascending in each."""
        found: list[int] = []
        seen: dict[Line, Place] = {}
        ready = self._ready
        while ready and ready[0][0][0] == _GIVEN_BACK and len(found) < count:
            place, _, line = heappop(ready)
            if line.place == place and line not in seen:
                seen[line] = place
                found += self._returned_of(line, count - len(found))
        for line, place in seen.items():
            heappush(ready, (place, line.number, line))
        return found

    def _returned_of(self, line: Line, count: int) -> list[int]:
        found: list[int] = []
        while len(found) < count and (back := self.first_back(line)) is not None:
            if back.due_unix_ms != NO_TIME:
                break
            heappop(line.back)
            if not found or found[-1] != back.offset:
                found.append(back.offset)
        for offset in found:
            heappush(line.back, offset)
        return found

    def pop(self, now_unix_ms: int, noisy: list[Line]) -> Line | None:
        """Take the next quiet line from its place; ``offer`` it again when done with it.

        Noisy ones that are met go to ``noisy``, in their order, and must be offered again too.
        """
        while self._ready:
            place, _, line = heappop(self._ready)
            if line.place != place:
                continue
            line.place = None
            if self._place_of(line) != place:
                self.offer(line)  # what stood there has gone
            elif self._is_noisy(line.key, now_unix_ms):
                noisy.append(line)
            else:
                return line
        return None

    def _is_noisy(self, key: bytes | None, now_unix_ms: int) -> bool:
        fairness = self._fairness
        return fairness is not None and key is not None and fairness.is_noisy(key, now_unix_ms)
