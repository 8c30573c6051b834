"""Recovery at a start: check the log, cut a torn tail, refuse to start on corruption.

A segment with an intact footer was synced as a whole before its footer was written, and is
taken as it is. One without (the last, after a crash) is read entry by entry. Where that ends
before what anything else says was synced (a later entry's durable sequence, a later segment
that was begun only after this one was synced, a mark of a clean stop), acknowledged data is
damaged: refuse to start. Otherwise it is a torn tail, which was never promised to be durable:
cut it.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from gateway.errors import StorageUnavailable
from storage_adapters.formats.entry import ENTRY_MAGIC
from storage_adapters.formats.manifest import Manifest
from storage_adapters.formats.segment import SEGMENT_HEADER_BYTES, SegmentHeader
from storage_adapters.segment_log.durability_claims import (
    Claim,
    claims_inside,
    claims_of,
    find_strays,
    is_after_closing,
)
from storage_adapters.segment_log.files import Files
from storage_adapters.segment_log.loading import Loaded, load_segment, mapped
from storage_adapters.segment_log.scanning import Scan, later_entries, scan_segment
from storage_adapters.segment_log.segment_files import write_footer
from storage_adapters.segment_log.segments import Segment, list_segments


class Recovered(NamedTuple):
    """Result of a recovery.

    ``segments`` are all closed. ``leftovers`` are empty and can be removed once the new
    segment is on the disk (they may be the last that have the incarnation). ``previous_number``:
    the segment whose entries end right before ``next_sequence``, 0 when that is not there.
    """

    segments: list[Segment]
    leftovers: list[Path]
    data_uuid: UUID | None
    incarnation: int
    next_sequence: int
    next_number: int
    previous_number: int
    cut_bytes: int


def recover(data_dir: Path, files: Files, settled: Manifest | None = None) -> Recovered:
    """Check and repair the log of ``data_dir``. In a thread; nothing else writes there.

    Segments that ``settled`` lists as settled are ignored.
    Errors: ``StorageUnavailable``, whose text names file, position and what is wrong.
    """
    upto = 0 if settled is None else settled.wal_upto
    found = list_segments(data_dir)
    loaded = [load_segment(path, number) for number, path in found if number > upto]
    there = [segment for segment in loaded if segment.segment is not None]
    leftovers = [path for number, path in found if number <= upto]
    leftovers += [segment.path for segment in loaded if segment.segment is None]
    headers = [segment.header for segment in there]
    uuids = {header.data_uuid for header in headers}
    if settled is not None:
        uuids.add(settled.data_uuid)
    if len(uuids) > 1:
        raise StorageUnavailable(f"{data_dir}: segments of several data directories are mixed")
    repair = _Repair(files, there)
    repair.run()
    kept, next_sequence = repair.kept, _next_sequence(repair, headers)
    incarnation = max([header.incarnation for header in headers], default=0)
    if settled is not None:
        next_sequence = max(next_sequence, settled.next_sequence)
        incarnation = max(incarnation, settled.incarnation)
    is_adjacent = bool(kept) and kept[-1].next_sequence == next_sequence
    return Recovered(
        kept,
        leftovers + [segment.path for segment in repair.empty],
        uuids.pop() if uuids else None,
        incarnation,
        next_sequence,
        max(upto, found[-1][0] if found else 0) + 1,
        kept[-1].number if is_adjacent else 0,
        repair.cut_bytes,
    )


def _next_sequence(repair: "_Repair", headers: Sequence[SegmentHeader]) -> int:
    """Return the next sequence: after the kept entries, without a gap.

    When only empty segments are left of what came after them (the rest was removed as obsolete),
    their headers give the sequence.
    """
    there = {header.number for header in headers}
    kept = [segment.next_sequence for segment in repair.kept[-1:]]
    empty = [
        segment.header.first_sequence
        for segment in repair.empty
        if not kept or segment.header.previous not in there
    ]
    return max(kept + empty, default=1)


class _Repair:
    """One pass over the segments, oldest first."""

    def __init__(self, files: Files, loaded: Sequence[Loaded]) -> None:
        self._files = files
        self._loaded = loaded
        self.kept: list[Segment] = []
        self.empty: list[Segment] = []
        self.cut_bytes = 0

    def run(self) -> None:
        """Keep, close or cut every segment."""
        for index, loaded in enumerate(self._loaded):
            segment = loaded.segment
            assert segment is not None
            if segment.trailer is not None:
                self.kept.append(segment)
            elif self._mend(loaded, segment, self._loaded[index + 1 :]):
                return

    def _mend(self, loaded: Loaded, segment: Segment, later: Sequence[Loaded]) -> bool:
        """Read a segment without a footer; True when later segments were cut off too."""
        expected = None
        if self.kept and self.kept[-1].number == segment.header.previous:
            expected = self.kept[-1].next_sequence
        with mapped(segment.path) as view:
            scan = scan_segment(view, segment.header, expected)
            claims = [*claims_inside(view, loaded, scan), *claims_of(loaded, later)]
            _check_claims(segment, scan, claims)
            looks_torn = bytes(view[scan.damage_at :][:4]) == ENTRY_MAGIC
        followers = [other for other in later if other.header.previous == segment.number]
        is_cut = any(_begins_behind(other, scan.next_sequence) for other in followers)
        strays = find_strays(loaded, later)
        if any(is_after_closing(loaded, stray, scan.next_sequence) for stray in strays):
            if looks_torn:
                raise _corrupt(segment, scan, "later segments say that it was closed")
        elif strays:
            is_cut = True
        if is_cut:
            self._remove(later)
        self._close(segment, scan)
        return is_cut

    def _clear(self, segment: Segment) -> None:
        """Cut the file to its header; it is removed when the new segment exists."""
        fd = self._files.open(segment.path)
        try:
            self._files.truncate(fd, SEGMENT_HEADER_BYTES)
            self._files.sync(fd)
        finally:
            os.close(fd)
        self.empty.append(segment)

    def _remove(self, later: Sequence[Loaded]) -> None:
        """Remove the segments after a torn tail, newest first, before the tail is cut."""
        for loaded in reversed(later):
            self._files.unlink(loaded.path)
            self.cut_bytes += loaded.file_bytes
        self._files.sync_directory(later[0].path.parent)

    def _close(self, segment: Segment, scan: Scan) -> None:
        if scan.entries_end == SEGMENT_HEADER_BYTES:
            self._clear(segment)
            return
        segment.live = scan.live
        segment.entries_end = scan.entries_end
        segment.first_sequence = scan.first_sequence
        segment.next_sequence = scan.next_sequence
        fd = self._files.open(segment.path)
        try:
            self._files.truncate(fd, scan.entries_end)
            segment.close_with(write_footer(self._files, segment, fd))
        finally:
            os.close(fd)
        self.kept.append(segment)
        self.cut_bytes += max(0, scan.damage_at - scan.entries_end)


def _begins_behind(other: Loaded, next_sequence: int) -> bool:
    """Return whether ``other`` has entries that do not continue at ``next_sequence``."""
    segment = other.segment
    assert segment is not None
    if segment.trailer is not None:
        return segment.trailer.first_sequence != next_sequence
    with mapped(other.path) as view:
        first = next(later_entries(view, other.header, SEGMENT_HEADER_BYTES), None)
        return first is not None and first[1].sequence != next_sequence


def _check_claims(segment: Segment, scan: Scan, claims: Sequence[Claim]) -> None:
    for claim in claims:
        if claim.sequence >= scan.next_sequence:
            raise _corrupt(segment, scan, claim.why)


def _corrupt(segment: Segment, scan: Scan, why: str) -> StorageUnavailable:
    return StorageUnavailable(
        f"{segment.path}: the entry with sequence {scan.next_sequence} at position "
        f"{scan.damage_at} is damaged ({scan.damage}), but {why}: acknowledged data is lost. "
        "Restore the file from a backup; `headgate log dump` shows what is left of it"
    )
