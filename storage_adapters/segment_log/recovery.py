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
from storage_adapters.formats.segment import SEGMENT_HEADER_BYTES, SegmentHeader
from storage_adapters.segment_log.files import Files
from storage_adapters.segment_log.loading import Loaded, load_segment, mapped
from storage_adapters.segment_log.scanning import Scan, later_entries, scan_segment
from storage_adapters.segment_log.segment_files import write_footer
from storage_adapters.segment_log.segments import Segment, list_segments


class Recovered(NamedTuple):
    """What is there after a start.

    ``segments`` are all closed. ``leftovers`` hold nothing and may be removed once the new
    segment is on the disk (they may be the last to know the incarnation). ``previous_number``:
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
    kept, next_sequence = repair.kept, _next_sequence(repair, headers)
    is_adjacent = bool(kept) and kept[-1].next_sequence == next_sequence
    return Recovered(
        kept,
        leftovers + [segment.path for segment in repair.empty],
        headers[0].data_uuid if headers else None,
        max([header.incarnation for header in headers], default=0),
        next_sequence,
        found[-1][0] + 1 if found else 1,
        kept[-1].number if is_adjacent else 0,
        repair.cut_bytes,
    )


def _next_sequence(repair: "_Repair", headers: Sequence[SegmentHeader]) -> int:
    """Return the sequence with which to go on: behind what is kept, without a gap.

    But where empty segments are all that is left of what came after it (the rest was removed,
    being passed), their headers know how far it went.
    """
    there = {header.number for header in headers}
    known = [segment.next_sequence for segment in repair.kept[-1:]]
    for segment in repair.empty:
        if not repair.kept or segment.header.previous not in there:
            known.append(segment.header.first_sequence)
    return max(known, default=1)


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
        """Read a segment without a footer; True when what follows it was cut off too."""
        expected = None
        if self.kept and self.kept[-1].number == segment.header.previous:
            expected = self.kept[-1].next_sequence
        followers = [other for other in later if other.header.previous == segment.number]
        with mapped(segment.path) as view:
            scan = scan_segment(view, segment.header, expected)
            claims = [*_claims_inside(view, loaded, scan), *_claims_of(loaded, later)]
            _check_claims(segment, scan, claims)
            if later and not followers and bytes(view[scan.damage_at :][:4]) == ENTRY_MAGIC:
                raise _corrupt(segment, scan, "what followed it was removed, so it was whole")
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
            self.empty.append(segment)
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
        why = (
            "the stop was clean" if entry.kind == KIND_CLOSE else "an entry says it was synced"
        )
        yield Claim(entry.durable_sequence, f"{why} (position {at})")


def _claims_of(loaded: Loaded, later: Sequence[Loaded]) -> Iterator[Claim]:
    """Yield what the segments that follow say was synced of this one.

    They speak of all that came before them, so what they say counts up to where the next one
    begins. When its first entry is bad, that is found when it is read itself.
    """
    chain = {loaded.header.number}
    end: int | None = None
    for other in later:
        if other.header.previous not in chain:
            continue
        chain.add(other.header.number)
        said = _testimony(loaded, other)
        if said is None:
            continue
        if end is None:
            if said.first_sequence is None:
                return
            end = said.first_sequence
        yield Claim(min(said.durable_sequence, end - 1), said.why)
        if said.is_enough:
            return


class _Testimony(NamedTuple):
    """What a later segment says: where it begins (None: damaged), what was synced before."""

    first_sequence: int | None
    durable_sequence: int
    why: str
    is_enough: bool


def _testimony(loaded: Loaded, other: Loaded) -> _Testimony | None:
    segment, name = other.segment, other.path.name
    assert segment is not None
    if other.header.incarnation > loaded.header.incarnation:
        first = other.header.first_sequence
        return _Testimony(first, first - 1, f"{name} was begun by a later start", True)
    if segment.trailer is not None:
        first = segment.trailer.first_sequence
        return _Testimony(first, first - 1, f"{name} was closed after it", True)
    with mapped(other.path) as view:
        entries = list(later_entries(view, other.header, SEGMENT_HEADER_BYTES))
    if not entries:
        return None
    first_at, first_entry = entries[0]
    known = first_entry.sequence if first_at == SEGMENT_HEADER_BYTES else None
    at, best = max(entries, key=lambda pair: pair[1].durable_sequence)
    why = f"{name}, position {at}, says it was synced"
    return _Testimony(known, best.durable_sequence, why, False)


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
