"""Queries of a partition that extents and rows answer."""

from typing import Final

from gateway.errors import StorageUnavailable, as_value
from gateway.model import parse_batch_header
from storage_adapters.formats.footer import HIGH_SHIFT, ROW_STRIDE, Rows
from storage_adapters.formats.row_search import find_offset, find_time
from storage_adapters.s3.reading import PLANS_MAX, Reader
from storage_adapters.s3.rows import RowsGone
from storage_adapters.s3.state import Extent, PartitionState

READ_BYTES: Final = 8 * 1_048_576  # at a time, when the batches themselves must be read

_UNKNOWN: Final = -1


async def base_offset_for_time(
    reader: Reader, state: PartitionState, timestamp_unix_ms: int
) -> int | None:
    """See ``StorageAdapter.base_offset_for_time``."""
    offset = state.start
    for _ in range(PLANS_MAX):
        try:
            return await _offset_for_time(reader, state, offset, timestamp_unix_ms)
        except RowsGone as error:  # The object was merged meanwhile.
            gone = as_value(error)
    raise StorageUnavailable(f"partition {state.partition_id}: {gone}")


async def _offset_for_time(
    reader: Reader, state: PartitionState, start: int, timestamp_unix_ms: int
) -> int | None:
    for extent in state.extents[state.find(start) :]:
        if extent.max_timestamp_unix_ms < timestamp_unix_ms or not extent.row_count:
            continue
        rows = await reader.rows_of(extent.number)
        end = extent.first_row + extent.row_count
        first = find_offset(rows, extent.first_row, end, start)
        row = find_time(rows, extent.first_row, end, timestamp_unix_ms)
        if row >= first:
            return rows[row * ROW_STRIDE]
        # Batches below the log start offset have that time already, so the running maximum tells
        # nothing about the rest: the batches themselves are read.
        found = await _read_for_time(reader, state, extent, timestamp_unix_ms)
        if found is not None:
            return found
    return None


async def _read_for_time(
    reader: Reader, state: PartitionState, extent: Extent, timestamp_unix_ms: int
) -> int | None:
    offset = state.start
    while True:
        batches = await reader.read(state, offset, extent.end, bytes_max=READ_BYTES)
        if not batches:
            return None
        for batch in batches:
            header = parse_batch_header(batch)
            if header.max_timestamp_unix_ms >= timestamp_unix_ms:
                return header.base_offset
            offset = header.last_offset + 1


def end_offset_for_epoch(state: PartitionState, leader_epoch: int) -> tuple[int, int]:
    """See ``StorageAdapter.end_offset_for_epoch``."""
    known = _UNKNOWN
    for epoch, base_offset in _epochs(state):
        if epoch > leader_epoch:
            end = max(state.start, base_offset)
            return (leader_epoch if known == _UNKNOWN else known), end
        known = epoch
    return (known, state.end) if known != _UNKNOWN else (_UNKNOWN, _UNKNOWN)


def _epochs(state: PartitionState) -> list[tuple[int, int]]:
    """Return (epoch, base offset) of the epochs that end after the start, in order."""
    pairs = [
        pair for extent in state.extents[state.find(state.start) :] for pair in extent.epochs
    ]
    first = 0
    while first + 1 < len(pairs) and pairs[first + 1][1] <= state.start:
        first += 1
    return pairs[first:]


def rows_below(rows: Rows, extent: Extent, offset: int) -> int:
    """Return the size of an extent's batches that end at or before ``offset``."""
    first, end = extent.first_row, extent.first_row + extent.row_count
    kept = find_offset(rows, first, end, offset)
    places = rows[first * ROW_STRIDE + 2 : kept * ROW_STRIDE : ROW_STRIDE]
    return sum([place >> HIGH_SHIFT for place in places])
