"""Queries of a partition that its index answers."""

import os
import struct
from typing import Final

from gateway.model import MAX_TIMESTAMP_AT
from storage_adapters.formats.footer import LOW_32, ROW_STRIDE, Part, Rows
from storage_adapters.formats.row_search import (
    find_epoch_above,
    find_offset,
    find_time,
    sizes_of,
)
from storage_adapters.segment_log.catalog import Catalog, PartitionState
from storage_adapters.segment_log.reading import Reader

_MAX_TIMESTAMP: Final = struct.Struct(">q")
_UNKNOWN: Final = -1


def _kept_rows(state: PartitionState, part: Part, rows: Rows) -> tuple[int, int]:
    """Return the range of the part's rows at or above the log start offset."""
    end = part.first_row + part.row_count
    if part.first_offset >= state.start:
        return part.first_row, end
    return find_offset(rows, part.first_row, end, state.start), end


def _end_of(part: Part, rows: Rows) -> int:
    """Return one past the last offset of the part's batches, which must not be empty."""
    last = (part.first_row + part.row_count - 1) * ROW_STRIDE
    return rows[last] + (rows[last + 3] & LOW_32)


def size_bytes(catalog: Catalog, state: PartitionState) -> int:
    """See ``StorageAdapter.size_bytes``."""
    total = 0
    for _, part, rows in catalog.places(state, state.start):
        first, end = _kept_rows(state, part, rows)
        if first == part.first_row:
            total += part.size_bytes
        else:
            total += sum(sizes_of(rows, first, end))
    return total


def offset_for_size(catalog: Catalog, state: PartitionState, bytes_max: int) -> int:
    """See ``StorageAdapter.offset_for_size``."""
    places = list(catalog.places(state, state.start))
    # Batches that are not written yet have no position, and are not counted.
    offset = _end_of(*places[-1][1:]) if places else state.start
    for _, part, rows in reversed(places):
        first, end = _kept_rows(state, part, rows)
        if first == part.first_row and part.size_bytes <= bytes_max:
            bytes_max -= part.size_bytes
            offset = part.first_offset
            continue
        sizes = sizes_of(rows, first, end)
        for row, size in zip(range(end - 1, first - 1, -1), reversed(sizes), strict=True):
            if size > bytes_max:
                return offset
            bytes_max -= size
            offset = rows[row * ROW_STRIDE]
    return max(offset, state.start)


def end_offset_for_epoch(
    catalog: Catalog, state: PartitionState, leader_epoch: int
) -> tuple[int, int]:
    """See ``StorageAdapter.end_offset_for_epoch``."""
    known = _UNKNOWN
    for _, part, rows in catalog.places(state, state.start):
        if part.last_epoch <= leader_epoch:
            known = part.last_epoch
            continue
        first, end = _kept_rows(state, part, rows)
        if first == end:
            continue
        row = find_epoch_above(rows, first, end, leader_epoch)
        if row > first:
            known = rows[(row - 1) * ROW_STRIDE + 3] >> 32
        if known == _UNKNOWN:
            return leader_epoch, max(state.start, rows[row * ROW_STRIDE])
        return known, max(state.start, rows[row * ROW_STRIDE])
    return (known, state.end) if known != _UNKNOWN else (_UNKNOWN, _UNKNOWN)


async def base_offset_for_time(
    catalog: Catalog, reader: Reader, state: PartitionState, timestamp_unix_ms: int
) -> int | None:
    """See ``StorageAdapter.base_offset_for_time``."""
    for segment, part, rows in list(catalog.places(state, state.start)):
        if part.max_timestamp_unix_ms < timestamp_unix_ms:
            continue
        first, end = _kept_rows(state, part, rows)
        row = find_time(rows, part.first_row, end, timestamp_unix_ms)
        if row >= first:
            return rows[row * ROW_STRIDE]
        # Batches below the log start offset have that time already, so the running maximum tells
        # nothing about the rest: the batches themselves are read.
        places = [(rows[i * ROW_STRIDE], rows[i * ROW_STRIDE + 2]) for i in range(first, end)]
        found = await reader.in_thread(
            segment,
            lambda fd, places=places: _first_at(fd, places, timestamp_unix_ms),  # type: ignore[misc]
        )
        if found is not None:
            return found
    return None


def _first_at(fd: int, places: list[tuple[int, int]], timestamp_unix_ms: int) -> int | None:
    for base_offset, place in places:
        stored = os.pread(fd, _MAX_TIMESTAMP.size, (place & LOW_32) + MAX_TIMESTAMP_AT)
        if _MAX_TIMESTAMP.unpack(stored)[0] >= timestamp_unix_ms:
            return base_offset
    return None
