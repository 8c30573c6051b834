"""Verification of one settled segment: header, footer, rows, and the CRC of every batch."""

import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from gateway.errors import StorageUnavailable
from gateway.model import HEADER_BYTES, LAST_OFFSET_DELTA_AT, LENGTH_OVERHEAD_BYTES
from storage_adapters.formats.footer import LOW_32, ROW_STRIDE, Footer, Part, Rows
from storage_adapters.formats.manifest import FileRecord, Manifest
from storage_adapters.formats.segment import SEGMENT_HEADER_BYTES
from storage_adapters.segment_log.copying import is_intact
from storage_adapters.segment_log.inspect import inspect_footer, inspect_segment
from storage_adapters.segment_log.loading import mapped
from storage_adapters.segment_log.segments import settled_path
from storage_adapters.segment_log.settled_files import load_settled_segment

_FRONT: Final = struct.Struct(">qii")  # base offset, length, leader epoch
_LAST_DELTA: Final = struct.Struct(">i")


class Coverage(NamedTuple):
    """Offsets [first, end) of a partition that a file covers."""

    first: int
    end: int
    path: Path


class SettledReport(NamedTuple):
    """Findings in one file. ``bounds`` are those of all partitions that it mentions."""

    path: Path
    batches_count: int
    bytes_count: int
    problems: list[str]
    coverage: dict[int, Coverage]
    bounds: dict[int, tuple[int, int]]


def verify_settled(data_dir: Path, record: FileRecord, manifest: Manifest) -> SettledReport:
    """Verify one settled segment in use."""
    path = settled_path(data_dir, record.number)
    report = SettledReport(path, 0, record.file_bytes, [], {}, {})
    try:
        segment = load_settled_segment(data_dir, record)
    except StorageUnavailable as error:
        report.problems.append(str(error))
        return report
    if segment.header.data_uuid != manifest.data_uuid:
        report.problems.append("it belongs to another data directory")
    footer = inspect_footer(inspect_segment(path, record.number))
    assert footer is not None  # It was loaded above.
    if len(footer) != record.partition_count:
        report.problems.append(f"{len(footer)} partitions, not {record.partition_count}")
    firsts: dict[int, int] | None = {} if footer.trailer.repeated_bytes else None
    with mapped(path) as view:
        for part in footer:
            report.problems.extend(_part_problems(view, footer.rows, part, firsts))
            report.bounds[part.partition_id] = (part.start, part.end)
            if part.partition_id not in record.dead:
                coverage = Coverage(part.start, part.end, path)
                report.coverage[part.partition_id] = coverage
    report.problems.extend(
        _order_problems(footer) if firsts is None else _sharing_problems(footer, firsts)
    )
    return report._replace(batches_count=footer.trailer.row_count)


def _part_problems(
    view: memoryview, rows: Rows, part: Part, firsts: dict[int, int] | None
) -> Iterator[str]:
    """Yield what is wrong with a part. ``firsts``: see ``_sharing_problems``.

    The batch that several partitions share has the base offset of the first.
    """
    expected, size_bytes = part.start, 0
    for row in range(part.first_row, part.first_row + part.row_count):
        base_offset, _, place, span = rows[row * ROW_STRIDE : (row + 1) * ROW_STRIDE]
        position, batch_bytes = place & LOW_32, place >> 32
        size_bytes += batch_bytes
        where = f"position {position} (partition {part.partition_id}, offset {base_offset})"
        if base_offset < expected:
            yield f"{where}: the row before it reaches up to {expected}"
        expected = base_offset + (span & LOW_32)
        is_first = firsts is None or position not in firsts
        if firsts is not None:
            firsts[position] = batch_bytes
        batch = view[position : position + batch_bytes]
        problem = _batch_problem(batch, base_offset if is_first else None, span)
        if problem:
            yield f"{where}: {problem}"
    if expected > part.end:
        yield f"partition {part.partition_id}: batches up to {expected}, beyond {part.end}"
    if size_bytes != part.size_bytes:
        yield f"partition {part.partition_id}: {size_bytes} bytes, not {part.size_bytes}"


def _batch_problem(batch: memoryview, base_offset: int | None, span: int) -> str:
    if len(batch) < HEADER_BYTES:
        return "there is no batch"
    stored_offset, length, epoch = _FRONT.unpack_from(batch)
    (last_delta,) = _LAST_DELTA.unpack_from(batch, LAST_OFFSET_DELTA_AT)
    is_there = base_offset is None or stored_offset == base_offset
    if not is_there or length + LENGTH_OVERHEAD_BYTES != len(batch):
        return f"a batch of offset {stored_offset} and {length} bytes"
    if (last_delta + 1, epoch) != (span & LOW_32, span >> 32):
        return "the batch's last offset or epoch is not what its row says"
    return "" if is_intact(batch) else "the CRC of the batch does not match"


def _order_problems(footer: Footer) -> Iterator[str]:
    """Yield the places where the parts do not fill the file in order."""
    position, row, last_id = SEGMENT_HEADER_BYTES, 0, -1
    for part in footer:
        if part.partition_id <= last_id or part.first_row != row:
            yield f"partition {part.partition_id} is out of order in the footer"
        if part.row_count and footer.rows[row * ROW_STRIDE + 2] & LOW_32 != position:
            yield f"partition {part.partition_id} does not begin at position {position}"
        last_id, row = part.partition_id, row + part.row_count
        position += part.size_bytes
    if position != footer.trailer.entries_end:
        yield f"batches end at {position}, not at {footer.trailer.entries_end}"


def _sharing_problems(footer: Footer, firsts: dict[int, int]) -> Iterator[str]:
    """Yield the places where batches do not fill the file, each used by one or more rows.

    ``firsts``: the size of each batch by its position. A partition's positions grow.
    """
    position = SEGMENT_HEADER_BYTES
    for start in sorted(firsts):
        if start != position:
            yield f"a batch at position {start}, the one before it ends at {position}"
        position = start + firsts[start]
    if position != footer.trailer.entries_end:
        yield f"batches end at {position}, not at {footer.trailer.entries_end}"
    repeated_bytes = sum(part.size_bytes for part in footer) - sum(firsts.values())
    if repeated_bytes != footer.trailer.repeated_bytes:
        yield f"{repeated_bytes} bytes repeated, not {footer.trailer.repeated_bytes}"
    for part in footer:
        last = part.first_row + part.row_count
        places = list(
            footer.rows[part.first_row * ROW_STRIDE + 2 : last * ROW_STRIDE : ROW_STRIDE]
        )
        if any((one & LOW_32) >= (two & LOW_32) for one, two in pairwise(places)):
            yield f"partition {part.partition_id}: a batch lies before an earlier one"
