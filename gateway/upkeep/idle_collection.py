"""Garbage collection, and return of its memory, when a node has become quiet.

Python keeps up to 2,000 tuples of each length for reuse, wherever in memory they are, and a
megabyte that holds one of them cannot be given back: after a burst of messages these are most of
what is held. A full collection lets them go; it looks at what was made since the start, so it runs
only when nobody is served, and when there is little to look at. glibc keeps freed memory of its own
(``gateway.allocator``).
"""

import asyncio
import contextlib
import ctypes
import gc
import sys
import time
from collections.abc import Callable
from typing import Final

LOOK_EVERY_S: Final = 5.0
QUIET_SHARE: Final = 0.05  # of a processor
WORK_S_MIN: Final = 0.5  # of processor time since the last time
BLOCKS_MAX: Final = 500_000  # pieces of memory since the start: 20 ms


class IdleCollection:
    """Periodic check whether the node was busy and is quiet now. Loop only."""

    def __init__(self, cpu_s: Callable[[], float] = time.process_time) -> None:
        self._cpu_s = cpu_s
        self._looked_at_s = self._freed_at_s = cpu_s()
        self._blocks_at_start = sys.getallocatedblocks()
        self._timer: asyncio.TimerHandle | None = None
        self.times = 0
        """Number of times that memory was given back."""

    def start(self) -> None:
        """Start the periodic check."""
        self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY_S, self._on_time)

    def stop(self) -> None:
        """Stop the periodic check."""
        if self._timer is not None:
            self._timer.cancel()

    def _on_time(self) -> None:
        self.start()
        self.look()

    def look(self) -> None:
        """Collect and free memory if the node was busy and has been quiet since the last check."""
        now_s = self._cpu_s()
        used_s, self._looked_at_s = now_s - self._looked_at_s, now_s
        if used_s > QUIET_SHARE * LOOK_EVERY_S or now_s - self._freed_at_s < WORK_S_MIN:
            return
        self.times += 1
        if sys.getallocatedblocks() - self._blocks_at_start <= BLOCKS_MAX:
            gc.collect()
        with contextlib.suppress(AttributeError, OSError):
            ctypes.CDLL(None).malloc_trim(0)
        self._looked_at_s = self._freed_at_s = self._cpu_s()
