"""Planning of a read: its objects and batches."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from gateway.model import HEADER_BYTES
from storage_adapters.formats.entry import ENTRY_HEADER_BYTES, TARGET_BYTES
from storage_adapters.formats.footer import HIGH_SHIFT, LOW_32, ROW_STRIDE, Rows
from storage_adapters.formats.row_search import find_base, find_offset
from storage_adapters.s3.caching import Span, join
from storage_adapters.s3.state import PartitionState

MISSING_MAX: Final = 16  # objects whose rows are looked up together
_STEP_ROWS: Final = 16  # examined first; most reads need few
_STEP_GROWTH: Final = 8
# Largest gap between two batches that cannot hold another entry.
_FRONT_BYTES_MAX: Final = ENTRY_HEADER_BYTES + TARGET_BYTES + HEADER_BYTES - 1


class Piece(NamedTuple):
    """Batches of one object in order of offset, with their positions and row fields.

    ``spans``: offsets + leader epoch << 32 of each.
    """

    number: int
    positions: list[int]
    sizes: list[int]
    base_offsets: Sequence[int]
    spans: Sequence[int]

    @property
    def next_offset(self) -> int:
        """One past the last offset."""
        return self.base_offsets[-1] + (self.spans[-1] & LOW_32)

    def areas(self) -> list[Span]:
        """Return the position ranges that hold exactly these batches, in order."""
        ends = map(int.__add__, self.positions, self.sizes)
        return join(zip(self.positions, ends, strict=True), _FRONT_BYTES_MAX)


class Plan(NamedTuple):
    """Plan of a read. ``missing``: objects whose rows are not in memory."""

    pieces: list[Piece]
    missing: list[int]


def plan_read(  # The read, and the lookup of rows.
    state: PartitionState,
    start: int,
    end: int,
    bytes_max: int,
    rows_of: Callable[[int], Rows | None],
) -> Plan:
    """Return the batches of a read, as ``StorageAdapter.read_cached`` defines it."""
    plan = Plan([], [])
    extents = state.extents
    start = max(start, state.start)
    if state.is_deleted or not extents or start >= min(end, extents[-1].end):
        return plan
    # Most readers are at the tail: no search for them.
    at = len(extents) - 1 if start >= extents[-1].first else state.find(start)
    for extent in map(extents.__getitem__, range(at, len(extents))):
        if extent.first >= end or bytes_max <= 0 or len(plan.missing) >= MISSING_MAX:
            break
        if not extent.row_count:
            continue
        rows = rows_of(extent.number)
        if rows is None or plan.missing:
            if rows is None:
                plan.missing.append(extent.number)
            bytes_max -= extent.size_bytes
            continue
        last = extent.first_row + extent.row_count
        row = find_offset(rows, extent.first_row, last, start)
        if row == last:
            continue  # Its batches from there on were compacted away.
        piece = take(extent.number, rows, (row, last), end, bytes_max)
        if not piece.sizes or (plan.pieces and piece.sizes[0] > bytes_max):
            break
        plan.pieces.append(piece)
        bytes_max -= sum(piece.sizes)
        if row + len(piece.sizes) < last:
            break
    return plan


def take(number: int, rows: Rows, between: tuple[int, int], end: int, bytes_max: int) -> Piece:
    """Return the batches of some rows below ``end``, the first one even above ``bytes_max``.

    Rows are taken as slices, at 100 ns each: a read can have thousands of small batches.
    """
    first, last = between
    if rows[(last - 1) * ROW_STRIDE] >= end:
        last = find_base(rows, first, last, end)
    places: list[int] = []
    sizes: list[int] = []
    step, left_bytes = _STEP_ROWS, 0
    while first + len(places) < last:
        at = first + len(places)
        some = rows[at * ROW_STRIDE + 2 : min(at + step, last) * ROW_STRIDE : ROW_STRIDE]
        places += some
        sizes += [place >> HIGH_SHIFT for place in some]
        left_bytes = bytes_max - sum(sizes)
        if left_bytes <= 0:
            break
        step *= _STEP_GROWTH
    if left_bytes < 0:
        count = max(bisect_right(list(accumulate(sizes)), bytes_max), 1)
        del places[count:], sizes[count:]
    last = first + len(places)
    return Piece(
        number,
        [place & LOW_32 for place in places],
        sizes,
        rows[first * ROW_STRIDE : last * ROW_STRIDE : ROW_STRIDE],
        rows[first * ROW_STRIDE + 3 : last * ROW_STRIDE : ROW_STRIDE],
    )
