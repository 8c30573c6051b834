"""A start: what is on the disk is checked, a torn tail is cut, corruption is named and refused.

A segment with an intact footer was synced as a whole before its footer was written, and is
taken as it is. One without (the last, after a crash) is read entry by entry. Where that ends
before what anything else says was synced (a later entry's durable sequence, a later segment
that was begun only after this one was synced, a mark of a clean stop), acknowledged data is
damaged: refuse to start. Otherwise it is a torn tail, which was never promised to be durable:
cut it.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from gateway.errors import StorageUnavailable
from storage_adapters.formats.entry import ENTRY_MAGIC, KIND_CLOSE
from storage_adapters.formats.segment import SEGMENT_HEADER_BYTES
from storage_adapters.segment_log.files import Files
from storage_adapters.segment_log.loading import Loaded, load_segment, mapped
from storage_adapters.segment_log.scanning import Scan, later_entries, scan_segment
from storage_adapters.segment_log.segment_files import write_footer
from storage_adapters.segment_log.segments import Segment, list_segments


class Recovered(NamedTuple):
    """What is there after a start.

    ``segments`` are all closed. ``leftovers`` hold nothing and may be removed once the new
    segment is on the disk (they may be the last to know the incarnation).
    """

    segments: list[Segment]
    leftovers: list[Path]
    data_uuid: UUID | None
    incarnation: int
    next_sequence: int
    next_number: int
    cut_bytes: int


class Claim(NamedTuple):
    """Something that says that all sequences up to ``sequence`` were synced."""

    sequence: int
    why: str


def recover(data_dir: Path, files: Files) -> Recovered:
    """Check and repair the segments of ``data_dir``. In a thread; nothing else writes there.

    Errors: ``StorageUnavailable``, whose text names file, position and what is wrong.
    """
    found = list_segments(data_dir)
    loaded = [load_segment(path, number) for number, path in found]
    there = [segment for segment in loaded if segment.segment is not None]
    leftovers = [segment.path for segment in loaded if segment.segment is None]
    headers = [segment.header for segment in there]
    if len({header.data_uuid for header in headers}) > 1:
        raise StorageUnavailable(f"{data_dir}: segments of several data directories are mixed")
    repair = _Repair(files, there)
    repair.run()
    next_sequence = max([header.first_sequence for header in headers], default=1)
    if repair.kept:
        next_sequence = max(next_sequence, repair.kept[-1].next_sequence)
    return Recovered(
        repair.kept,
        leftovers + repair.empty,
        headers[0].data_uuid if headers else None,
        max([header.incarnation for header in headers], default=0),
        next_sequence,
        found[-1][0] + 1 if found else 1,
        repair.cut_bytes,
    )


class _Repair:
    """One pass over the segments, oldest first."""

    def __init__(self, files: Files, loaded: Sequence[Loaded]) -> None:
        self._files = files
        self._loaded = loaded
        self.kept: list[Segment] = []
        self.empty: list[Path] = []
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
        """Read a segment without a footer; True when what follows it was cut off too."""
        expected = None
        if self.kept and self.kept[-1].number == segment.header.previous:
            expected = self.kept[-1].next_sequence
        with mapped(segment.path) as view:
            scan = scan_segment(view, segment.header, expected)
            claims = [*_claims_inside(view, loaded, scan), *_claims_of(loaded, later)]
            _check_claims(segment, scan, claims)
            if later and not claims and bytes(view[scan.damage_at :][:4]) == ENTRY_MAGIC:
                raise _corrupt(segment, scan, "later segments were begun after it was closed")
        followers = [other for other in later if other.header.previous == segment.number]
        is_cut = any(_begins_behind(other, scan.next_sequence) for other in followers)
        if is_cut:
            self._remove(later)
        self._close(segment, scan)
        return is_cut

    def _remove(self, later: Sequence[Loaded]) -> None:
        """Take away what follows a torn tail, newest first, before the tail is mended."""
        for loaded in reversed(later):
            self._files.unlink(loaded.path)
            self.cut_bytes += loaded.file_bytes
        self._files.sync_directory(later[0].path.parent)

    def _close(self, segment: Segment, scan: Scan) -> None:
        if scan.entries_end == SEGMENT_HEADER_BYTES:
            self.empty.append(segment.path)
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
    """Say whether ``other`` has entries that do not continue at ``next_sequence``."""
    segment = other.segment
    assert segment is not None
    if segment.trailer is not None:
        return segment.trailer.first_sequence != next_sequence
    with mapped(other.path) as view:
        first = next(later_entries(view, other.header, SEGMENT_HEADER_BYTES), None)
        return first is not None and first[1].sequence != next_sequence


def _claims_inside(view: memoryview, loaded: Loaded, scan: Scan) -> Iterator[Claim]:
    """Yield what the segment itself says was synced, from behind the place where it is bad."""
    if loaded.trailer is not None:
        yield Claim(loaded.trailer.next_sequence - 1, "the segment was closed behind it")
    for at, entry in later_entries(view, loaded.header, scan.damage_at + 1):
        if entry.kind == KIND_CLOSE:
            yield Claim(entry.sequence, f"the stop was clean (position {at})")
        else:
            yield Claim(
                entry.durable_sequence, f"the entry at position {at} says it was synced"
            )


def _claims_of(loaded: Loaded, later: Sequence[Loaded]) -> Iterator[Claim]:
    """Yield what the segments that follow say was synced before they were written."""
    chain = {loaded.header.number}
    for other in later:
        header, segment = other.header, other.segment
        assert segment is not None
        if header.previous not in chain:
            continue
        chain.add(header.number)
        name = other.path.name
        if header.incarnation > loaded.header.incarnation:
            yield Claim(header.first_sequence - 1, f"{name} was begun by a later start")
            return
        if segment.trailer is not None:
            yield Claim(segment.trailer.first_sequence - 1, f"{name} was closed after it")
            return
        yield from _claims_of_entries(other)


def _claims_of_entries(other: Loaded) -> Iterator[Claim]:
    """Yield what the entries of a later segment without a footer say of what came before it.

    When its own first entry is bad, it says nothing: that is found when it is read itself.
    """
    with mapped(other.path) as view:
        entries = later_entries(view, other.header, SEGMENT_HEADER_BYTES)
        first_at, first = next(entries, (0, None))
        if first is None or first_at != SEGMENT_HEADER_BYTES:
            return
        yield Claim(first.durable_sequence, f"{other.path.name} says it was synced")
        for at, entry in entries:
            before = min(entry.durable_sequence, first.sequence - 1)
            yield Claim(before, f"{other.path.name}, position {at}, says it was synced")


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
