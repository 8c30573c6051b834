"""Offset at which the last bytes of a partition begin, without waiting."""

from bisect import bisect_right
from itertools import accumulate
from typing import Final

from storage_adapters.formats.footer import HIGH_SHIFT, ROW_STRIDE, Rows
from storage_adapters.s3.rows import RowsCache
from storage_adapters.s3.state import Extent, PartitionState

_STEP_ROWS: Final = 4_096


def offset_for_size(rows: RowsCache, state: PartitionState, bytes_max: int) -> int:
    """See ``StorageAdapter.offset_for_size``.

    For an object whose rows are not in memory it returns the first offset: then more is kept.
    """
    # Batches that are not committed yet are not counted.
    offset = state.committed_end
    for at in range(len(state.extents) - 1, -1, -1):
        extent = state.extents[at]
        size_bytes = extent.size_bytes - (0 if at else state.below_bytes)
        if size_bytes > bytes_max:
            known = rows.peek(extent.number)
            found = extent.first if known is None else _within(known, extent, offset, bytes_max)
            return max(found, state.start)
        bytes_max -= size_bytes
        if extent.row_count:
            offset = extent.first
    return max(offset, state.start)


def _within(rows: Rows, extent: Extent, end: int, bytes_max: int) -> int:
    """Return the lowest base offset with so many bytes after it in an extent, or ``end``."""
    first = behind = extent.first_row + extent.row_count
    # Several rows at a time take a tenth of the time: an extent can have a million.
    while first > extent.first_row:
        behind, first = first, max(first - _STEP_ROWS, extent.first_row)
        places = rows[first * ROW_STRIDE + 2 : behind * ROW_STRIDE : ROW_STRIDE]
        sums = list(accumulate([place >> HIGH_SHIFT for place in reversed(places)]))
        if sums[-1] > bytes_max:
            kept = bisect_right(sums, bytes_max)
            return rows[(behind - kept) * ROW_STRIDE] if behind - kept < _end(extent) else end
        bytes_max -= sums[-1]
    return rows[first * ROW_STRIDE] if extent.row_count else end


def _end(extent: Extent) -> int:
    return extent.first_row + extent.row_count
