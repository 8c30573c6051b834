"""Deadlines of many owners with one timer, set for the earliest.

A deadline that is put off costs nothing: the owner is called when the old one is reached, does
nothing, and says when it wants to be called next.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Final, Generic, TypeVar

from gateway.clock import Clock

Owner = TypeVar("Owner")

_STALE_MIN: Final = 1_024  # entries that hold no more, below which they are left where they are


class Deadlines(Generic[Owner]):
    """Timer that calls ``on_due(owner)`` on the loop at or shortly after an owner's deadline.

    Deadlines are monotonic milliseconds. Owners are hashable; each has one deadline at a time.
    """

    def __init__(self, clock: Clock, on_due: Callable[[Owner], None]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._loop = asyncio.get_running_loop()
        self._armed: dict[Owner, int] = {}
        self._heap: list[tuple[int, int, Owner]] = []  # with entries that no longer hold
        self._order = count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    def arm(self, owner: Owner, deadline_ms: int | None) -> None:
        """Set a deadline of ``owner``; an earlier one that is set stays."""
        if deadline_ms is None:
            return
        armed_ms = self._armed.get(owner)
        if armed_ms is not None and armed_ms <= deadline_ms:
            return
        self._armed[owner] = deadline_ms
        heapq.heappush(self._heap, (deadline_ms, next(self._order), owner))
        self._set_timer()

    def forget(self, owner: Owner) -> None:
        """Remove the deadlines of ``owner``."""
        self._armed.pop(owner, None)
        if len(self._heap) > 2 * len(self._armed) + _STALE_MIN:
            armed = self._armed
            self._heap = [entry for entry in self._heap if armed.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)

    def run_due(self) -> None:
        """Call ``on_due`` for each owner whose deadline is reached."""
        now_ms = self._clock.monotonic_ms()
        due: deque[Owner] = deque()
        while self._heap and self._heap[0][0] <= now_ms:
            deadline_ms, _, owner = heapq.heappop(self._heap)
            if self._armed.get(owner) == deadline_ms:
                del self._armed[owner]
                due.append(owner)
        try:
            while due:
                self._on_due(due.popleft())
        finally:  # one owner's bug must not leave the others without their calls
            self._timer = None
            for owner in due:
                self.arm(owner, now_ms)
            self._set_timer()

    def close(self) -> None:
        """Stop the timer."""
        self._armed.clear()
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        if not self._heap:
            return
        deadline_ms = self._heap[0][0]
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._timer_ms = deadline_ms
        delay_ms = max(deadline_ms - self._clock.monotonic_ms(), 1)
        self._timer = self._loop.call_later(delay_ms / 1_000, self.run_due)
