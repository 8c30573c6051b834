"""Zeros written ahead of the log's end, so that a small group's sync waits for its data alone.

A segment's space is allocated, not written: the first write to a block makes the file system note
that, and the next sync waits for its journal too. A block that was written before needs none of
it. What is there reads as zeros, written or not.
"""

from typing import Final

from storage_adapters.segment_log.segments import Segment

AHEAD_BYTES: Final = 1_048_576
GROUP_BYTES_MAX: Final = 65_536
"""A larger group takes long enough itself, and zeros double what is written."""

_ZEROS: Final = memoryview(bytearray(AHEAD_BYTES))  # io_uring takes writable memory


class ZerosAhead:
    """Position up to which the active segment was ever written. For one writer at a time."""

    def __init__(self) -> None:
        self._segment: Segment | None = None
        self._end = 0

    def behind(self, segment: Segment, position: int, size_bytes: int) -> memoryview:
        """Return the zeros to write after a group that is to be synced; may be empty."""
        end = position + size_bytes
        if segment is not self._segment:
            self._segment, self._end = segment, 0
        if end <= self._end or size_bytes > GROUP_BYTES_MAX:
            return _ZEROS[:0]
        self._end = max(end, min(end + AHEAD_BYTES, segment.disk_bytes))
        return _ZEROS[: self._end - end]

    def forget(self) -> None:
        """Forget the zeros returned last, which may not have been written."""
        self._segment = None
