"""End of a micro-batch with limits of rows or bytes."""

from collections.abc import Mapping

from pipeline.log.splits import Positions
from pipeline.log.views import PartitionView


def limited(
    views: Mapping[str, PartitionView],
    start: Positions,
    goal: Positions,
    *,
    rows_max: int,
    bytes_max: int,
) -> Positions:
    """Return positions towards ``goal`` within the limits; 0 is no limit.

    Partitions get equal shares, and unused shares go to the others. At least one row is taken, if
    there is any, whatever its size.
    """
    if rows_max:
        goal = _within_rows(start, goal, rows_max)
    if bytes_max:
        goal = _within_bytes(views, start, goal, bytes_max)
    return goal


def _within_rows(start: Positions, goal: Positions, rows_max: int) -> Positions:
    behind = {place: goal[place] - start[place] for place in goal if goal[place] > start[place]}
    shares = _shares(behind, rows_max)
    return goal | {place: start[place] + share for place, share in shares.items()}


def _within_bytes(
    views: Mapping[str, PartitionView], start: Positions, goal: Positions, bytes_max: int
) -> Positions:
    behind = {
        place: _size_bytes(views[place], start[place], goal[place])
        for place in goal
        if goal[place] > start[place]
    }
    shares = _shares(behind, bytes_max)
    return goal | {
        place: _reached(views[place], start[place], goal[place], share)
        for place, share in shares.items()
        if share < behind[place]
    }


def _shares(behind: Mapping[str, int], most: int) -> dict[str, int]:
    shares: dict[str, int] = {}
    left = most
    for taken, (place, count) in enumerate(sorted(behind.items(), key=lambda one: one[1])):
        shares[place] = min(count, -(-left // (len(behind) - taken)))
        left -= shares[place]
    return shares


def _size_bytes(view: PartitionView, start: int, end: int) -> int:
    return sum([size_bytes for _, _, size_bytes in _pieces(view, start, end)])


def _reached(view: PartitionView, start: int, end: int, bytes_max: int) -> int:
    """Return the offset after about ``bytes_max`` from ``start``, and above ``start``."""
    left_bytes = bytes_max
    for first, last, size_bytes in _pieces(view, start, end):
        if size_bytes > left_bytes:  # records of a piece are assumed to have equal sizes
            return max(first + (last - first) * left_bytes // size_bytes, start + 1)
        left_bytes -= size_bytes
    return end


def _pieces(view: PartitionView, start: int, end: int) -> list[tuple[int, int, int]]:
    """Return (first, last, size) of the extents' parts between two offsets."""
    pieces = []
    for extent in view.extents:
        first, last = max(extent.first, start), min(extent.end, end)
        if first < last:
            share = (last - first) / (extent.end - extent.first)
            pieces.append((first, last, int(extent.size_bytes * share)))
    return pieces
