"""Verification of a whole data directory, without changing it.

It checks every CRC, sequence and footer of the log, every batch and row of settled segments, and
that each partition's offsets are consecutive over all of them. A start's repairs are tried
without writing. The node must be stopped.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from gateway.errors import StorageUnavailable
from gateway.model import Buffer
from storage_adapters.formats.footer import ROW_STRIDE, Footer
from storage_adapters.formats.manifest import Manifest
from storage_adapters.formats.segment import SEGMENT_HEADER_BYTES
from storage_adapters.segment_log.files import SystemFiles
from storage_adapters.segment_log.inspect import SegmentReport, inspect_footer, inspect_segment
from storage_adapters.segment_log.loading import mapped
from storage_adapters.segment_log.recovery import recover
from storage_adapters.segment_log.scanning import Scan, scan_segment
from storage_adapters.segment_log.segments import SETTLED_DIRECTORY, list_segments
from storage_adapters.segment_log.settled_files import read_manifest
from storage_adapters.segment_log.verify_settled import Coverage, verify_settled

DAMAGED: Final = "DAMAGED"
REPAIR: Final = "repair"


class Finding(NamedTuple):
    """A finding; ``kind`` is ``DAMAGED``, or ``REPAIR`` when a start repairs it without loss."""

    kind: str
    path: Path
    text: str


def _ignore(_size_bytes: int) -> None:
    """Show no progress."""


class Verification:
    """One pass over a data directory. The counts are complete when ``run`` has ended.

    ``on_file`` is called with the size of each file that was read.
    """

    def __init__(self, data_dir: Path, on_file: Callable[[int], None] = _ignore) -> None:
        self._data_dir = data_dir
        self._on_file = on_file
        self._coverage: dict[int, list[Coverage]] = {}
        self._bounds: dict[int, tuple[int, int]] = {}
        self._deleted: set[int] = set()
        self.files_count = 0
        self.batches_count = 0
        self.bytes_count = 0
        self.partitions_count = 0

    def run(self) -> Iterator[Finding]:
        """Yield the findings, file by file."""
        manifest: Manifest | None = None
        try:
            manifest = read_manifest(self._data_dir)
        except StorageUnavailable as error:
            yield Finding(DAMAGED, self._data_dir / SETTLED_DIRECTORY, str(error))
        if manifest is not None:
            yield from self._settled(manifest)
        yield from self._log(manifest)
        yield from self._start(manifest)
        yield from self._offsets()

    def _settled(self, manifest: Manifest) -> Iterator[Finding]:
        known = {record.number: record for record in manifest.files}
        there = list_segments(self._data_dir, SETTLED_DIRECTORY)
        for number, path in there:
            if number not in known:
                yield Finding(REPAIR, path, "does not count; it would be removed")
        for record in manifest.files:
            found = verify_settled(self._data_dir, record, manifest)
            self.files_count += 1
            self.batches_count += found.batches_count
            self.bytes_count += found.bytes_count
            self._on_file(found.bytes_count)
            for problem in found.problems:
                yield Finding(DAMAGED, found.path, problem)
            if record.number == manifest.directory:
                self._bounds |= found.bounds
            else:
                for partition_id, coverage in found.coverage.items():
                    self._coverage.setdefault(partition_id, []).append(coverage)

    def _log(self, manifest: Manifest | None) -> Iterator[Finding]:
        upto = 0 if manifest is None else manifest.wal_upto
        for number, path in list_segments(self._data_dir):
            if number <= upto:
                yield Finding(REPAIR, path, "is settled; it would be removed")
                continue
            report = inspect_segment(path, number)
            self.files_count += 1
            self._on_file(path.stat().st_size)
            if report.header is None:
                continue  # The trial start decides whether that is allowed.
            with mapped(path) as view:
                scan = scan_segment(view, report.header, None)
            footer = inspect_footer(report)
            if footer is not None:
                for problem in _compare(report, footer, scan):
                    yield Finding(DAMAGED, path, problem)
            self._note(path, scan)

    def _note(self, path: Path, scan: Scan) -> None:
        self.bytes_count += scan.entries_end
        for live in scan.live.parts.values():
            part = live.to_part()
            self._bounds[part.partition_id] = (part.start, part.end)
            if part.is_deleted:
                self._deleted.add(part.partition_id)
            if part.row_count:
                self.batches_count += part.row_count
                first = part.first_offset
                coverage = Coverage(first, part.end, path)
                self._coverage.setdefault(part.partition_id, []).append(coverage)

    def _start(self, manifest: Manifest | None) -> Iterator[Finding]:
        """Try a start with files that are never written."""
        files = _UntouchedFiles()
        try:
            recovered = recover(self._data_dir, files, manifest)
        except StorageUnavailable as error:
            yield Finding(DAMAGED, self._data_dir, str(error))
            return
        for path in files.written:
            if path.stat().st_size <= SEGMENT_HEADER_BYTES:
                continue  # A clean stop without appends leaves it.
            yield Finding(REPAIR, path, "has no footer; it would be cut behind its last append")
        for path in files.removed:
            yield Finding(REPAIR, path, "follows a torn tail; it would be removed")
        if recovered.cut_bytes:
            text = f"{recovered.cut_bytes} bytes that were never acknowledged would be cut"
            yield Finding(REPAIR, self._data_dir, text)

    def _offsets(self) -> Iterator[Finding]:
        for partition_id, (start, end) in sorted(self._bounds.items()):
            if partition_id in self._deleted:
                continue
            self.partitions_count += 1
            places = sorted(self._coverage.get(partition_id, ()))
            for text in _gaps(places, start, end):
                yield Finding(DAMAGED, self._data_dir, f"partition {partition_id}: {text}")


def _compare(report: SegmentReport, footer: Footer, scan: Scan) -> Iterator[str]:
    """Yield the contradictions between a log segment's footer and its entries."""
    trailer = footer.trailer
    if scan.entries_end != trailer.entries_end:
        yield f"position {scan.damage_at}: {scan.damage}"
        return
    said = (trailer.first_sequence, trailer.next_sequence)
    if said != (scan.first_sequence, scan.next_sequence):
        yield f"the footer says sequences {said}, the entries {scan[2:4]}"
    # 0 is also what older versions wrote, which did not count them.
    if trailer.repeated_bytes not in {0, scan.live.repeated_bytes}:
        yield f"{scan.live.repeated_bytes} bytes repeated, not {trailer.repeated_bytes}"
    parts = {part.partition_id: part for part in footer}
    if parts.keys() != scan.live.parts.keys():
        yield "footer and entries know different partitions"
        return
    for partition_id, live in scan.live.parts.items():
        part = parts[partition_id]
        first, end = part.first_row * ROW_STRIDE, (part.first_row + part.row_count) * ROW_STRIDE
        same = live.to_part()._replace(first_row=part.first_row, identity_at=part.identity_at)
        if part.is_deleted:  # Its bounds have no meaning any more.
            same = same._replace(start=part.start, end=part.end, first_offset=part.first_offset)
        if same != part or list(footer.rows[first:end]) != list(live.rows):
            yield f"footer and entries of {report.path.name} differ in partition {partition_id}"


def _gaps(places: Sequence[Coverage], start: int, end: int) -> Iterator[str]:
    expected = start
    for first, last, path in places:
        if last <= start:
            continue
        if first > expected:
            yield f"offsets {expected} to {first - 1} are nowhere (before {path.name})"
        elif first < expected and expected != start:
            yield f"offsets {first} to {expected - 1} are twice there (in {path.name})"
        expected = last
    if expected != end:
        yield f"offsets end at {expected}, not at {end}"


class _UntouchedFiles(SystemFiles):
    """``Files`` that record changes instead of making them."""

    def __init__(self) -> None:
        self.written: list[Path] = []
        self.removed: list[Path] = []

    def open(self, path: Path) -> int:
        """See ``Files``."""
        self.written.append(path)
        return super().open(path)

    def write(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        """See ``Files``."""
        del fd, position
        return sum(map(len, buffers))

    def truncate(self, fd: int, size_bytes: int) -> None:
        """See ``Files``."""

    def sync(self, fd: int) -> None:
        """See ``Files``."""

    def sync_directory(self, path: Path) -> None:
        """See ``Files``."""

    def unlink(self, path: Path) -> None:
        """See ``Files``."""
        self.removed.append(path)
