"""Check of one partition's batches in a file by their headers: offsets, times, producers.

The 61 bytes of all batch headers are checked at once, as columns; no record is decoded.

A hole differs from a loss: a batch from which compaction or a delay removed records keeps its
offsets (``lastOffsetDelta``) and has fewer records, so offsets missing within a batch are a hole.
Whole batches disappear only by compaction, and only from files that are rewritten; so a gap between
two batches is a hole where the file may have holes, and a loss everywhere else, as is a gap between
two files.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from gateway.model import CONTROL_MASK, HEADER_BYTES, LENGTH_OVERHEAD_BYTES, MAGIC
from pipeline.audit import findings as kinds
from pipeline.audit.producers import ProducerSpan, producer_spans

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

HEADER: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
FINDINGS_MAX: Final = 1_000  # of one kind in one file; one more counts the rest


class Raw(NamedTuple):
    """A finding without its partition."""

    kind: str
    first_offset: int
    last_offset: int
    total: int
    example: str


class Walk(NamedTuple):
    """Result for a partition's offsets [``first``, ``end``) in one file.

    ``hole_count`` counts the gaps that are excused, ``hole_offsets`` the offsets without a
    record, within batches too.
    """

    first: int
    end: int
    batch_count: int
    record_count: int
    size_bytes: int
    hole_count: int
    hole_offsets: int
    findings: list[Raw]
    producers: list[ProducerSpan]


class _HeaderColumns(NamedTuple):
    """Batches in stored order. ``last`` is clipped to the file's extent."""

    header: npt.NDArray[np.void]
    base: Ints
    last: Ints
    size: Ints
    is_sound: Flags


def walk(
    batches: Iterable[tuple[int, memoryview]], first: int, end: int, *, may_have_holes: bool
) -> Walk:
    """Check the batches (base offset, bytes) of an extent, in stored order."""
    columns = _columns(batches, end)
    header, base, last = columns.header, columns.base, columns.last
    sound = columns.is_sound
    gaps, overlaps = _gaps_and_overlaps(base, last, first, end)
    hole_starts = gaps[:, 0] if may_have_holes else gaps[:0, 0]
    is_data = sound & (header["attributes"] & CONTROL_MASK == 0)
    # The end marker of a transaction has its producer's id, and no sequence.
    spans, wrong = producer_spans(
        header["producer_id"][is_data].astype(np.int64),
        header["producer_epoch"][is_data].astype(np.int64),
        header["base_sequence"][is_data].astype(np.int64),
        header["last_offset_delta"][is_data].astype(np.int64) + 1,
        base[is_data],
        np.searchsorted(hole_starts, base[is_data]),
    )
    counts = np.where(sound, header["record_count"], 0).astype(np.int64)
    thinned = np.where(sound, last - base + 1 - counts, 0)
    holes = int(thinned.sum()) + (_width(gaps) if may_have_holes else 0)
    findings = [
        *_damaged(columns),
        *([] if may_have_holes else _ranges(kinds.MISSING, gaps, "no batch has them")),
        *_ranges(kinds.DUPLICATE, overlaps, "two batches have them"),
        *_disorder(base),
        *(Raw(*one) for one in wrong),
        *_backwards(header["max_timestamp"][sound].astype(np.int64), base[sound]),
    ]
    if holes:
        findings.append(Raw(kinds.HOLES, first, end - 1, holes, "taken out later"))
    return Walk(
        first,
        end,
        len(base),
        int(counts[is_data].sum()),
        int(columns.size.sum()),
        len(hole_starts),
        holes,
        findings,
        spans,
    )


def _columns(batches: Iterable[tuple[int, memoryview]], end: int) -> _HeaderColumns:
    bases: list[int] = []
    sizes: list[int] = []
    fronts: list[bytes] = []
    for base_offset, data in batches:
        bases.append(base_offset)
        sizes.append(len(data))
        fronts.append(bytes(data[:HEADER_BYTES]).ljust(HEADER_BYTES, b"\0"))
    header = np.frombuffer(b"".join(fronts), HEADER)
    base, size = np.array(bases, np.int64), np.array(sizes, np.int64)
    delta = header["last_offset_delta"].astype(np.int64)
    count = header["record_count"].astype(np.int64)
    is_sound = (
        (header["magic"] == MAGIC)
        & (header["length"].astype(np.int64) + LENGTH_OVERHEAD_BYTES == size)
        & (delta >= 0)
        & (count >= 0)
        & (count <= delta + 1)
    )
    # A batch with a false header is taken to have the offsets up to the next batch.
    following = np.append(base[1:], end)
    last = np.where(is_sound, base + delta, np.maximum(following - 1, base))
    return _HeaderColumns(header, base, last, size, is_sound)


def _gaps_and_overlaps(base: Ints, last: Ints, first: int, end: int) -> tuple[Ints, Ints]:
    """Return the ranges [from, to) that are missing, and those that are duplicated."""
    order = np.argsort(base, kind="stable")
    starts = np.append(base[order], end)
    reached = np.maximum.accumulate(np.append(first - 1, last[order])) + 1
    is_gap = starts > reached
    gaps = np.stack([reached[is_gap], starts[is_gap]], axis=1)
    ends = np.minimum(np.append(last[order] + 1, end), reached)
    # The last one is the file's end, not a batch; retention removed all before ``first``.
    froms = np.maximum(starts[:-1], first)
    is_twice = ends[:-1] > froms
    overlaps = np.stack([froms[is_twice], ends[:-1][is_twice]], axis=1)
    return gaps, overlaps


def _width(ranges: Ints) -> int:
    return int((ranges[:, 1] - ranges[:, 0]).sum())


def _ranges(kind: str, ranges: Ints, example: str) -> Iterator[Raw]:
    for start, end in ranges[:FINDINGS_MAX].tolist():
        yield Raw(kind, start, end - 1, end - start, example)
    rest = ranges[FINDINGS_MAX:]
    if len(rest):
        text = f"{len(rest)} more ranges, of which this is the whole"
        yield Raw(kind, int(rest[0, 0]), int(rest[-1, 1]) - 1, _width(rest), text)


def _damaged(columns: _HeaderColumns) -> Iterator[Raw]:
    for index in np.flatnonzero(~columns.is_sound)[:FINDINGS_MAX].tolist():
        one = columns.header[index]
        text = (
            f"magic {one['magic']}, length {one['length']} in {columns.size[index]} bytes, "
            f"{one['record_count']} records in {one['last_offset_delta'] + 1} offsets"
        )
        base, last = int(columns.base[index]), int(columns.last[index])
        yield Raw(kinds.DAMAGED, base, last, 1, text)


def _disorder(base: Ints) -> Iterator[Raw]:
    for index in np.flatnonzero(base[1:] < base[:-1])[:FINDINGS_MAX].tolist():
        offset, before = int(base[index + 1]), int(base[index])
        yield Raw(kinds.DISORDER, offset, offset, 1, f"it lies behind base offset {before}")


def _backwards(timestamps: Ints, base: Ints) -> Iterator[Raw]:
    highest = np.maximum.accumulate(timestamps)
    # Batches without records have no time (-1).
    at = np.flatnonzero((timestamps[1:] < highest[:-1]) & (timestamps[1:] >= 0)) + 1
    if len(at):
        late_ms = int((highest[at - 1] - timestamps[at]).max())
        text = f"by {late_ms:,} ms at most"
        yield Raw(kinds.TIME_BACKWARDS, int(base[at[0]]), int(base[at[-1]]), len(at), text)


assert HEADER.itemsize == HEADER_BYTES
