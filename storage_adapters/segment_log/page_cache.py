"""Page cache advice for readers of settled segments on a disk.

Such a reader lags behind and reads in order: the next pages are fetched while it works, and the
pages that were fetched for it are dropped after it has read them, so that the pages at the tail
of the log stay cached for others. Pages that were cached before are left alone; so are those of
a reader that has never waited, since the kernel's readahead was faster: the two cases cannot be
told apart here.
"""

import asyncio
import mmap
import os
from concurrent.futures import Executor
from typing import Final, NamedTuple

from gateway.descriptors import NoDescriptors
from storage_adapters.segment_log.catalog import PartitionState, Window
from storage_adapters.segment_log.segments import Handles, Segment

# The kernel keeps pages in folios of at most this size, and drops a folio only as a whole:
# a range that ended within one is named again, so that the last advice covers all of it.
_FOLIO_BYTES_MAX: Final = 2 << 20


class Span(NamedTuple):
    """Positions [start, end) being read; the partition's batches end at ``part_end``."""

    segment: Segment
    start: int
    end: int
    part_end: int


class PageCache:
    """Tracker of one window per partition. Loop only; advice is given in threads."""

    def __init__(self, handles: Handles, executor: Executor, ahead_bytes: int) -> None:
        self._handles = handles
        self._executor = executor
        self._ahead_bytes = ahead_bytes
        self.advised_count = 0

    def note(self, state: PartitionState, span: Span, *, is_cold: bool) -> None:
        """Note a span of a settled segment that is being read, from the disk when ``is_cold``."""
        window = state.window
        if window is None or window.segment is not span.segment or not _follows(window, span):
            if window is not None:
                self._drop(window, window.end)
            state.window = None
            if is_cold and self._ahead_bytes:
                first = span.start & -mmap.PAGESIZE  # pages are dropped as a whole, too
                state.window = self._fetch(
                    span, Window(span.segment, first, span.start, span.end)
                )
            return
        if window.end - span.end < self._ahead_bytes // 2:
            window = self._fetch(span, window)
        if span.start - window.start >= self._ahead_bytes // 2:
            self._drop(window, span.start)
            window = window._replace(start=span.start)
        state.window = window

    def _fetch(self, span: Span, window: Window) -> Window:
        end = min(span.end + self._ahead_bytes, span.part_end)
        if end > window.end:
            self._advise(window.segment, window.end, end, os.POSIX_FADV_WILLNEED)
        return window._replace(end=max(window.end, end))

    def _drop(self, window: Window, upto: int) -> None:
        if upto > window.start and not window.segment.is_gone:
            start = max(window.first, window.start - _FOLIO_BYTES_MAX)
            self._advise(window.segment, start, upto, os.POSIX_FADV_DONTNEED)

    def _advise(self, segment: Segment, start: int, end: int, advice: int) -> None:
        """Advise in a thread, since fetching may wait for the disk."""
        try:
            fd = self._handles.acquire(segment)
        except (OSError, NoDescriptors):
            return  # The file is gone, and its pages with it; or no descriptor is free for advice.
        self.advised_count += 1
        done = self._loop_future(fd, start, end - start, advice)
        done.add_done_callback(lambda _: self._handles.release(segment))

    def _loop_future(
        self, fd: int, start: int, size_bytes: int, advice: int
    ) -> "asyncio.Future[None]":
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(
            self._executor, os.posix_fadvise, fd, start, size_bytes, advice
        )


def _follows(window: Window, span: Span) -> bool:
    return window.start <= span.start <= window.end
