"""Return of freed memory to the system while the node is quiet (``malloc_trim``).

What is free below something that is still used glibc does not give back by itself: 500 buffers of
1 MB that come and go beside small ones leave 500 MB. To give it back takes some 0.35 ms for each
MB, and what comes next is faulted in anew, so this waits until little is going on.
"""

import asyncio
import ctypes
import os
import resource
from pathlib import Path
from typing import Final

from gateway.allocator import KEPT_BYTES_MAX

LOOK_EVERY_S: Final = 2.0
QUIET_SHARE: Final = 0.2  # of a processor; above it the node is at work
FREE_BYTES_MIN: Final = 64 * 1024 * 1024
GROWN_BYTES_MIN: Final = 32 * 1024 * 1024  # since the last time: the rest could not be had

_STATM: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_MALLINFO: Final = (
    "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks",
    "keepcost",
)  # fmt: skip


class _Mallinfo2(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_size_t) for name in _MALLINFO)


class MallocTrim:
    """Periodic ``malloc_trim``; does nothing without glibc 2.33 and ``/proc``."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._libc = ctypes.CDLL(None)
        self._looked_s = loop.time()
        self._cpu_s = _cpu_s()
        self._kept_bytes = 0  # resident after the last time
        self.is_known = hasattr(self._libc, "mallinfo2") and _STATM.exists()

    def start(self) -> None:
        """Start the periodic check."""
        if self.is_known:
            self._libc.mallinfo2.restype = _Mallinfo2
            self._timer = self._loop.call_later(LOOK_EVERY_S, self._look)

    def stop(self) -> None:
        """Stop the periodic check."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK_EVERY_S, self._look)
        cpu_s, self._cpu_s = self._cpu_s, _cpu_s()
        looked_s, self._looked_s = self._looked_s, self._loop.time()
        if self._cpu_s - cpu_s > QUIET_SHARE * (self._looked_s - looked_s):
            return
        if (
            resident_bytes() - self._kept_bytes >= GROWN_BYTES_MIN
            and self._libc.mallinfo2().fordblks >= FREE_BYTES_MIN
        ):
            self._libc.malloc_trim(KEPT_BYTES_MAX)
            self._kept_bytes = resident_bytes()


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    return int(_STATM.read_text().split()[1]) * _PAGE_BYTES


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
