"""Alarm of a full storage: while it is on, connections that publish are blocked.

It is raised by an append that the storage has no room for. It ends when the free room has grown
and, since not all room can be seen, after a wait that doubles while appends are still refused.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.clock import Clock
from gateway.errors import GatewayError, StorageFull

LOOK_S: Final = 1.0  # a storage tries again for room after that time, too
WAIT_MS_MIN: Final = 1_000
WAIT_MS_MAX: Final = 60_000


class DiskAlarm:
    """The node's alarm. Loop only. ``free_bytes``: free room of the data's disk."""

    def __init__(self, clock: Clock, free_bytes: Callable[[], int]) -> None:
        self._clock = clock
        self._free_bytes = free_bytes
        self.is_raised = False
        self._blocked: dict[Callable[[], None], None] = {}
        self._free_at_raise = 0
        self._has_grown = False
        self._wait_ms = WAIT_MS_MIN
        self._until_ms = 0
        self._ended_ms: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def blocked_count(self) -> int:
        """Number of connections that wait for room."""
        return len(self._blocked)

    def note(self, error: GatewayError | None) -> None:
        """Raise the alarm if an append has failed for want of room."""
        if self.is_raised or not isinstance(error, StorageFull):
            return
        now_ms = self._clock.monotonic_ms()
        is_again = self._ended_ms is not None and now_ms - self._ended_ms < WAIT_MS_MAX
        self._wait_ms = min(2 * self._wait_ms, WAIT_MS_MAX) if is_again else WAIT_MS_MIN
        self._until_ms = now_ms + self._wait_ms
        self._free_at_raise = self._free_bytes()
        self._has_grown = False
        self.is_raised = True
        self._look_later()

    def hold(self, release: Callable[[], None]) -> None:
        """Call ``release`` once, when the alarm ends."""
        self._blocked[release] = None

    def unhold(self, release: Callable[[], None]) -> None:
        """Do not call ``release`` any more."""
        self._blocked.pop(release, None)

    def look(self) -> None:
        """End the alarm if there may be room; growth must be seen twice, ``LOOK_S`` apart."""
        had_grown, self._has_grown = self._has_grown, self._free_bytes() > self._free_at_raise
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._until_ms and not (had_grown and self._has_grown):
            self._look_later()
            return
        self.close()
        self.is_raised = False
        self._ended_ms = now_ms
        blocked, self._blocked = self._blocked, {}
        for release in blocked:
            release()

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self.look)

    def close(self) -> None:
        """Stop looking for room."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
