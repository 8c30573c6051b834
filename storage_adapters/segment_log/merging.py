"""Selection of neighbouring settled segments to merge or to rewrite together."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from storage_adapters.formats.footer import Part
from storage_adapters.segment_log.catalog import Catalog
from storage_adapters.segment_log.config import SegmentLogConfig
from storage_adapters.segment_log.segments import Segment
from storage_adapters.segment_log.settled_output import ROWS_MAX
from storage_adapters.segment_log.settled_set import record_of

FILES_MIN: Final = 4
SMALL_FILES_MAX: Final = 64  # of one partition each, before they are merged into a shared one
SHARED_FILES_MIN: Final = 8  # alike in size, before they are merged


class MergeLimits(NamedTuple):
    """Bounds of a merged segment."""

    bytes_max: int
    rows_max: int


def run_to_merge(
    sizes: Sequence[tuple[int, int]], limits: MergeLimits, files_min: int = FILES_MIN
) -> range | None:
    """Return the range of neighbours, given as (bytes, rows), to merge into one, or None.

    As many as fit, of which none holds more than half: so each byte is copied a number of times
    that grows with the logarithm of the size only.
    """
    for first in range(len(sizes) - files_min + 1):
        end = _fitting(sizes, first, limits)
        while end - first >= files_min:
            run = [data for data, _ in sizes[first:end]]
            if max(run) * 2 <= sum(run):
                return range(first, end)
            end -= 1
    return None


def _fitting(sizes: Sequence[tuple[int, int]], first: int, limits: MergeLimits) -> int:
    data = rows = 0
    for index in range(first, len(sizes)):
        data += sizes[index][0]
        rows += sizes[index][1]
        if data > limits.bytes_max or rows > limits.rows_max:
            return index
    return len(sizes)


def owned_run(
    catalog: Catalog, config: SegmentLogConfig, partition_id: int
) -> Sequence[Segment]:
    """Return neighbours of a partition's own segments that are worth merging."""
    limits = MergeLimits(config.settled_bytes_max, ROWS_MAX)
    parts = catalog.settled.parts(catalog.footers, partition_id)
    segments = [segment for segment, _ in parts]
    sizes = [
        _size_of(segment)
        if record_of(segment).owner == partition_id
        else (limits.bytes_max + 1, 0)
        for segment in segments
    ]
    found = run_to_merge(sizes, limits)
    return [] if found is None else segments[found.start : found.stop]


def shared_run(catalog: Catalog, config: SegmentLogConfig) -> Sequence[Segment]:
    """Return shared segments, or small ones of many partitions, that are worth merging."""
    settled = catalog.settled
    shared = settled.shared
    limits = MergeLimits(config.settled_bytes_max, ROWS_MAX)
    found = run_to_merge(list(map(_size_of, shared)), limits, SHARED_FILES_MIN)
    if found is not None:
        return list(shared[found.start : found.stop])
    small = [
        segment
        for owner in settled.owners()
        for segment in settled.owned(owner)
        if segment.disk_bytes < config.settle_own_bytes // 2
    ]
    return small if len(small) >= SMALL_FILES_MAX else []


def neighbours(
    catalog: Catalog, partition_id: int, offsets: tuple[int, int], bytes_max: int
) -> list[tuple[Segment, Part]]:
    """Return a partition's first settled part that covers some of ``offsets``.

    The parts after it follow, as long as they have no more than ``bytes_max`` together. A deleted
    partition has none.
    """
    start, is_deleted = catalog.peek(partition_id)
    first, end = max(offsets[0], start), offsets[1]
    found: list[tuple[Segment, Part]] = []
    size_bytes = 0
    for segment, part in catalog.settled.parts(catalog.footers, partition_id):
        if part.end <= first or part.start >= end or is_deleted:
            continue
        size_bytes += part.size_bytes
        if found and size_bytes > bytes_max:
            break
        found.append((segment, part))
    return found


def _size_of(segment: Segment) -> tuple[int, int]:
    assert segment.trailer is not None
    return segment.disk_bytes, segment.trailer.row_count
