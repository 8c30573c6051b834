"""Lookup in a settled segment's key index: the batches that may hold wanted keys.

An answer that costs more than reading, or that lists nearly all batches, is of no use: then the
lookup returns None, mostly before half of the work is done.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from gateway.storage import WantedKeys
from storage_adapters.formats.footer import HIGH_SHIFT, LOW_32, ROW_STRIDE, Part, Rows
from storage_adapters.formats.key_index import KeyIndex

GAP_BYTES: Final = 16_384  # of batches between two wanted ones: read, not skipped
SAMPLE_KEYS: Final = 64

_LOOKUP_US: Final = 35.0
_KEY_US: Final = 1.5  # to step over a key in the dictionary
_RECORD_US: Final = 0.15  # half the cost of a record that is read in vain
_FREE_US: Final = 3_000.0

Span = tuple[int, int]


def rows_with_keys(
    index: KeyIndex, part: Part, keys: WantedKeys, *, rows_max: int
) -> list[int] | None:
    """Return the covered rows that may hold a wanted key, lowest first.

    None when that takes too long, or is more than ``rows_max``, or some batch could not be
    decoded. Errors: ``Damaged``.
    """
    if not index.is_whole(part.partition_id):
        return None
    passed = sum([index.count(part.partition_id, prefix) for prefix in keys.prefixes])
    cost_us = len(keys.exact) * _LOOKUP_US + passed * _KEY_US
    if cost_us > max(_FREE_US, (part.end - part.first_offset) * _RECORD_US):
        return None
    found: set[int] = set()
    for count, rows in enumerate(_look_up(index, part, keys.exact), 1):
        found.update(rows)
        if len(found) > rows_max or (
            # The remaining keys would add as many rows again: read all of them instead.
            count == SAMPLE_KEYS and len(found) * len(keys.exact) > count * part.row_count
        ):
            return None
    for prefix in keys.prefixes:
        for rows in index.find_matching(part.partition_id, prefix, keys.wants):
            found.update(rows)
            if len(found) > rows_max:
                return None
    return sorted(found)


def _look_up(index: KeyIndex, part: Part, keys: Iterable[bytes]) -> Iterator[list[int]]:
    return (index.find(part.partition_id, key) for key in keys)


def spans_of_rows(part: Part, rows: Rows, found: Sequence[int]) -> Iterator[Span]:
    """Yield the offset spans of rows; rows near each other share one span."""
    first = last = -1
    for row in found:
        if first >= 0 and _gap_bytes(part, rows, last, row) <= GAP_BYTES:
            last = row
            continue
        if first >= 0:
            yield offset_of(part, rows, first), offset_of(part, rows, last + 1)
        first = last = row
    if first >= 0:
        yield offset_of(part, rows, first), offset_of(part, rows, last + 1)


def offset_of(part: Part, rows: Rows, row: int) -> int:
    """Return the base offset of a partition's row; after the last row, the partition's end."""
    if row >= part.row_count:
        return part.end
    return rows[(part.first_row + row) * ROW_STRIDE]


def _gap_bytes(part: Part, rows: Rows, row: int, later: int) -> int:
    place = rows[(part.first_row + row) * ROW_STRIDE + 2]
    later_place = rows[(part.first_row + later) * ROW_STRIDE + 2]
    return (later_place & LOW_32) - (place & LOW_32) - (place >> HIGH_SHIFT)
