"""Settings of the C library's allocator for frequent allocations of megabytes.

A fetch answer or a produced frame is a buffer of up to some megabytes that lives for milliseconds.
glibc gives the top of its heap back to the system after each and takes it again for the next, at
the price of a page fault per 4 KiB: 0.35 ms for each MiB, three times what reading it from the page
cache takes. Keeping a bounded rest avoids that.
"""

import contextlib
import ctypes
from typing import Final

KEPT_BYTES_MAX: Final = 32 * 1024 * 1024
LARGE_BYTES: Final = (
    4 * 1024 * 1024
)  # from here on a buffer is the system's own, and goes at once

_M_TRIM_THRESHOLD: Final = -1  # malloc.h
_M_MMAP_THRESHOLD: Final = -3


def keep_freed_memory(bytes_max: int = KEPT_BYTES_MAX) -> None:
    """Keep up to ``bytes_max`` of freed memory for reuse; does nothing without glibc."""
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_TRIM_THRESHOLD, bytes_max)
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
