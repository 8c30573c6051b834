"""Timers of a lane: a heap in which cancelled entries are skipped, or removed in bulk."""

from heapq import heapify, heappop, heappush
from typing import Final

from features.queue.states import NO_TIME, Timed

_STALE_MIN: Final = 64  # below it nothing is thrown out: it comes up soon enough


class Timers:
    """Each item has one time at most. All calls are O(log n), amortised."""

    __slots__ = ("_heap", "_number", "_stale_count")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timed]] = []
        self._number = 0  # of items put so far: among equal times the first goes first
        self._stale_count = 0

    def put(self, item: Timed, due_unix_ms: int) -> None:
        """Set an item's time, in place of the one it has."""
        if item.due_unix_ms == due_unix_ms:
            return
        if item.due_unix_ms != NO_TIME:
            self.cancel(item)
        item.due_unix_ms = due_unix_ms
        self._number += 1
        heappush(self._heap, (due_unix_ms, self._number, item))

    def add(self, item: Timed) -> None:
        """Take in an item that says itself when it is due."""
        self._number += 1
        heappush(self._heap, (item.due_unix_ms, self._number, item))

    def cancel(self, item: Timed) -> None:
        """An item that has a time has none any more."""
        item.due_unix_ms = NO_TIME
        self._stale_count += 1
        if self._stale_count > _STALE_MIN and self._stale_count * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].due_unix_ms == entry[0]]
            heapify(self._heap)
            self._stale_count = 0

    def pop(self, now_unix_ms: int) -> Timed | None:
        """Take out the item whose time came first, when it has come."""
        due_unix_ms = self.next_due_unix_ms
        if due_unix_ms is None or due_unix_ms > now_unix_ms:
            return None
        item = heappop(self._heap)[2]
        item.due_unix_ms = NO_TIME
        return item

    @property
    def next_due_unix_ms(self) -> int | None:
        """Time of the first item; None without one."""
        heap = self._heap
        while heap:
            due_unix_ms, _, item = heap[0]
            if item.due_unix_ms == due_unix_ms:
                return due_unix_ms
            heappop(heap)
            self._stale_count -= 1
        return None

    def clear(self) -> None:
        """Call everything off. What was in it keeps a time that means nothing."""
        self._heap = []
        self._stale_count = 0
