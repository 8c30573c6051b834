"""Whole appends of a live segment: one being written, or left by a node that died.

Its durable part is known only after reading all of it and of later segments, since an entry states
what was synced before it. So the entries are kept, and indexed afterwards.
"""

from pathlib import Path
from typing import NamedTuple

from storage_adapters.formats.damage import Damaged
from storage_adapters.formats.entry import KIND_CLOSE, EntryHeader
from storage_adapters.formats.segment import SEGMENT_HEADER_BYTES, SegmentHeader
from storage_adapters.segment_log.index import LiveIndex, LivePart
from storage_adapters.segment_log.loading import mapped
from storage_adapters.segment_log.scanning import apply_entry, valid_entry

Append = list[tuple[int, EntryHeader]]  # its entries with their positions


class LiveSegment(NamedTuple):
    """Whole appends in order. ``durable_sequence``: the highest synced one in any entry."""

    data: memoryview
    appends: list[Append]
    durable_sequence: int

    def parts(self, *, upto_sequence: int | None) -> list[LivePart]:
        """Return the partitions' parts from the appends that end at or before a sequence."""
        index = LiveIndex()
        try:
            for append in self.appends:
                if upto_sequence is not None and append[-1][1].sequence > upto_sequence:
                    break
                for at, entry in append:
                    apply_entry(index, self.data, at, entry)
        except Damaged:  # a contradictory entry ends the segment, as at a start
            pass
        return list(index.parts.values())


def read_live(path: Path, header: SegmentHeader) -> LiveSegment:
    """Return the appends before the first invalid entry."""
    appends: list[Append] = []
    staged: Append = []
    at, expected, durable = SEGMENT_HEADER_BYTES, None, 0
    with mapped(path) as data:
        while True:
            try:
                entry = valid_entry(data, at, header, expected)
            except Damaged:
                return LiveSegment(data, appends, durable)
            staged.append((at, entry))
            at += entry.size_bytes
            expected = entry.sequence + 1
            if entry.is_last:
                durable = max(durable, _said_durable(entry))
                appends.append(staged)
                staged = []


def _said_durable(entry: EntryHeader) -> int:
    if entry.kind == KIND_CLOSE:
        return max(entry.durable_sequence, entry.sequence - 1)  # all before it is synced
    return entry.durable_sequence
