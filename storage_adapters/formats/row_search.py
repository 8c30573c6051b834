"""Searches in the rows of an index (``formats.footer.Rows``, sorted by offset)."""

from bisect import bisect_left, bisect_right

from storage_adapters.formats.footer import HIGH_SHIFT, LOW_32, ROW_STRIDE, Rows


def find_offset(rows: Rows, first: int, end: int, offset: int) -> int:
    """Return the first row in [first, end) whose last offset is at or after ``offset``."""
    if first < end:
        last = (end - 1) * ROW_STRIDE
        if offset >= rows[last]:  # Readers at the tail want the last batch: no search.
            return end - 1 if offset < rows[last] + (rows[last + 3] & LOW_32) else end
    at = first + bisect_right(range(first, end), offset, key=lambda i: rows[i * ROW_STRIDE])
    if at > first:
        before = (at - 1) * ROW_STRIDE
        if offset < rows[before] + (rows[before + 3] & LOW_32):
            return at - 1
    return at


def find_base(rows: Rows, first: int, end: int, offset: int) -> int:
    """Return the first row in [first, end) whose base offset is at or after ``offset``."""
    return first + bisect_left(range(first, end), offset, key=lambda i: rows[i * ROW_STRIDE])


def find_position(rows: Rows, first: int, end: int, position: int) -> int:
    """Return the first row in [first, end) whose batch begins at or after a position.

    For rows of a partition in a log segment, whose positions grow.
    """
    return first + bisect_left(
        range(first, end), position, key=lambda i: rows[i * ROW_STRIDE + 2] & LOW_32
    )


def find_time(rows: Rows, first: int, end: int, timestamp_unix_ms: int) -> int:
    """Return the first row in [first, end) with a running max timestamp at or after that."""
    return first + bisect_left(
        range(first, end), timestamp_unix_ms, key=lambda i: rows[i * ROW_STRIDE + 1]
    )


def find_epoch_above(rows: Rows, first: int, end: int, leader_epoch: int) -> int:
    """Return the first row in [first, end) with a higher leader epoch."""
    return first + bisect_right(
        range(first, end), leader_epoch, key=lambda i: rows[i * ROW_STRIDE + 3] >> 32
    )


def sizes_of(rows: Rows, first: int, end: int) -> list[int]:
    """Return the size of each batch of rows [first, end)."""
    return [rows[i * ROW_STRIDE + 2] >> HIGH_SHIFT for i in range(first, end)]
