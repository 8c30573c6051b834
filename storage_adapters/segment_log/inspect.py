"""Read-only inspection of a data directory, also of a damaged one.

``list_partitions`` takes the lock, since callers act on its answer; the others may be used
beside a running node, whose last entries may then look torn.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from gateway.errors import StorageUnavailable
from gateway.model import PartitionIdentity
from storage_adapters.formats.bodies import (
    decode_bounds,
    decode_deletion,
    decode_introductions,
)
from storage_adapters.formats.damage import Damaged, TooNew
from storage_adapters.formats.entry import (
    KIND_BATCH,
    KIND_BOUNDS,
    KIND_DELETE,
    KIND_PARTITION,
    EntryHeader,
    check_body,
    decode_targets,
)
from storage_adapters.formats.footer import (
    LOW_32,
    ROW_STRIDE,
    TRAILER_BYTES,
    Footer,
    Part,
    Trailer,
    decode_trailer,
)
from storage_adapters.formats.manifest import Manifest
from storage_adapters.formats.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
)
from storage_adapters.segment_log.loading import load_segment, mapped
from storage_adapters.segment_log.lockfile import DataLock, lock_holder
from storage_adapters.segment_log.scanning import later_entries, scan_segment, valid_entry
from storage_adapters.segment_log.segments import list_segments, map_footer, settled_path
from storage_adapters.segment_log.settled_files import read_manifest


class SegmentReport(NamedTuple):
    """Report on one segment file; ``problem`` and ``footer_problem`` tell why either is missing."""

    path: Path
    number: int
    file_bytes: int
    header: SegmentHeader | None
    problem: str
    trailer: Trailer | None
    footer_problem: str


class EntryReport(NamedTuple):
    """One entry, or bytes that are no entry. ``problem`` is empty when the entry is intact.

    Without ``header``, ``size_bytes`` bytes from ``position`` on are no entry.
    """

    position: int
    size_bytes: int
    header: EntryHeader | None
    targets: tuple[tuple[int, int], ...]
    detail: str
    problem: str


class PartitionListing(NamedTuple):
    """Partitions of the log by partition id, without the deleted ones."""

    data_uuid: UUID | None
    incarnation: int
    identities: list[PartitionIdentity]
    bounds: dict[int, tuple[int, int]]


def node_beside(data_dir: Path) -> str | None:
    """Return the process id of the node that runs on this data, or None."""
    return lock_holder(data_dir)


def inspect_segments(data_dir: Path) -> Iterator[SegmentReport]:
    """Yield all segment files in order of their numbers."""
    for number, path in list_segments(data_dir):
        yield inspect_segment(path, number)


def inspect_segment(path: Path, number: int) -> SegmentReport:
    """Return header and trailer of a segment file, or the problems found in them."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        file_bytes = os.fstat(fd).st_size
        header, problem = None, ""
        try:
            header = decode_segment_header(os.pread(fd, SEGMENT_HEADER_BYTES, 0))
        except (Damaged, TooNew) as error:
            problem = str(error)
        trailer, footer_problem = None, ""
        try:
            trailer = decode_trailer(
                os.pread(fd, TRAILER_BYTES, max(0, file_bytes - TRAILER_BYTES))
            )
            map_footer(fd, trailer).check()
        except (Damaged, TooNew, ValueError) as error:
            footer_problem = str(error)
        return SegmentReport(path, number, file_bytes, header, problem, trailer, footer_problem)
    finally:
        os.close(fd)


def inspect_footer(report: SegmentReport) -> Footer | None:
    """Return the footer of a segment, or None without an intact one."""
    if report.trailer is None or report.footer_problem:
        return None
    fd = os.open(report.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return map_footer(fd, report.trailer)
    finally:
        os.close(fd)


def inspect_entries(report: SegmentReport) -> Iterator[EntryReport]:
    """Yield the entries of a segment, and the bytes between them that are no entry.

    Continues after damage at the next bytes that look like an entry of this segment. The space
    after the last entry (zeros that were never written, or the footer) is not reported.
    """
    header = report.header
    if header is None:
        return
    with mapped(report.path) as view:
        at = SEGMENT_HEADER_BYTES
        expected: int | None = None
        for found_at, found in later_entries(view, header, SEGMENT_HEADER_BYTES):
            if found_at > at:
                yield _gap(view, header, at, found_at, expected)
            yield _entry(view, found_at, found, expected)
            at = found_at + found.size_bytes
            expected = found.sequence + 1
        if any(view[at : at + 4]) and (
            report.trailer is None or at < report.trailer.entries_end
        ):
            yield _gap(view, header, at, len(view), expected)


def _gap(
    view: memoryview, header: SegmentHeader, at: int, end: int, expected: int | None
) -> EntryReport:
    try:
        valid_entry(view, at, header, expected)
        problem = "no entry"
    except Damaged as error:
        problem = str(error)
    return EntryReport(at, end - at, None, (), "", problem)


def _entry(view: memoryview, at: int, entry: EntryHeader, expected: int | None) -> EntryReport:
    problem, detail = "", ""
    try:
        check_body(view, at, entry)
        detail = _detail(view, at, entry)
    except Damaged as error:
        problem = str(error)
    if not problem and expected is not None and entry.sequence != expected:
        problem = f"sequence {entry.sequence} where {expected} is due"
    targets = decode_targets(view, at, entry.target_count) if entry.target_count else ()
    return EntryReport(at, entry.size_bytes, entry, targets, detail, problem)


def _detail(view: memoryview, at: int, entry: EntryHeader) -> str:
    """Describe an entry other than a batch."""
    body = view[at + entry.body_at : at + entry.size_bytes]
    if entry.kind == KIND_PARTITION:
        return ", ".join(
            f"{identity.partition_id} = {identity.topic.namespace}/{identity.topic.name}"
            f"-{identity.number} ({identity.topic_uuid}) [{start}, {end})"
            for identity, start, end in decode_introductions(body)
        )
    if entry.kind == KIND_BOUNDS:
        return ", ".join(
            f"{row.partition_id} [{row.start}, {row.end})" for row in decode_bounds(body)
        )
    if entry.kind == KIND_DELETE:
        return ", ".join(map(str, decode_deletion(body)))
    return ""


def read_batch(report: SegmentReport, entry: EntryReport) -> bytes:
    """Return the batch of an intact batch entry."""
    assert entry.header is not None
    assert entry.header.kind == KIND_BATCH
    with mapped(report.path) as view:
        start = entry.position + entry.header.body_at
        return bytes(view[start : start + entry.header.body_bytes])


def settled_batches(path: Path, footer: Footer, part: Part) -> Iterator[bytes]:
    """Yield a partition's batches in a settled segment without checking their CRCs."""
    with mapped(path) as view:
        for row in range(part.first_row, part.first_row + part.row_count):
            place = footer.rows[row * ROW_STRIDE + 2]
            position = place & LOW_32
            yield bytes(view[position : position + (place >> 32)])


def list_partitions(data_dir: Path) -> PartitionListing:
    """Return the partitions of the log, without the metadata store.

    The node must be stopped. Errors: ``StorageUnavailable`` when it is not, or when a segment
    cannot be read at all. A torn tail is ignored as in a start, but not cut.
    """
    lock = DataLock(data_dir)
    lock.acquire()
    try:
        return _list_partitions(data_dir)
    finally:
        lock.release()


def _list_partitions(data_dir: Path) -> PartitionListing:
    known: dict[int, tuple[PartitionIdentity, int, int]] = {}
    deleted: set[int] = set()
    settled = read_manifest(data_dir)
    uuids, incarnations = [], []
    if settled is not None:
        uuids.append(settled.data_uuid)
        incarnations.append(settled.incarnation)
    for report in _reports_that_count(data_dir, settled):
        assert report.header is not None
        uuids.append(report.header.data_uuid)
        incarnations.append(report.header.incarnation)
        for part, identity in _parts_of(report):
            if part.is_deleted:
                deleted.add(part.partition_id)
            elif identity is not None:
                known[part.partition_id] = (identity, part.start, part.end)
    kept = {i: known[i] for i in sorted(known) if i not in deleted}
    return PartitionListing(
        uuids[0] if uuids else None,
        max(incarnations, default=0),
        [identity for identity, _, _ in kept.values()],
        {i: (start, end) for i, (_, start, end) in kept.items()},
    )


def _reports_that_count(data_dir: Path, settled: Manifest | None) -> Iterator[SegmentReport]:
    """Yield the settled segments' directory and the log segments, oldest first."""
    upto = 0
    if settled is not None:
        upto = settled.wal_upto
        if settled.directory:
            path = settled_path(data_dir, settled.directory)
            yield inspect_segment(path, settled.directory)
    for number, path in list_segments(data_dir):
        if number > upto and load_segment(path, number).segment is not None:
            yield inspect_segment(path, number)


def _parts_of(report: SegmentReport) -> Iterator[tuple[Part, PartitionIdentity | None]]:
    """Yield a segment's parts, from its footer or else from its entries."""
    footer = inspect_footer(report)
    if footer is not None:
        for part in footer:
            introduction = footer.introduction(part)
            yield part, None if introduction is None else introduction.identity
        return
    if report.header is None:
        raise StorageUnavailable(f"{report.path}: {report.problem}")
    with mapped(report.path) as view:
        scan = scan_segment(view, report.header, None)
    for live in scan.live.parts.values():
        yield live.to_part(), live.identity
