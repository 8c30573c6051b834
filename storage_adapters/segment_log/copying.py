"""Copying of partitions to new settled segments, shared by settling, merging and compaction.

Everything here runs in the settler's thread, on footers and descriptors that the loop holds for
it. Every batch's CRC is compared on the way. A damaged batch makes the change fail; when it was
read ``DAMAGE_TRIES`` times it is copied as it is: readers see the same error as before, and the
log does not grow because of it.
"""

import heapq
import struct
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

from crc32c import crc32c

from gateway.errors import StorageUnavailable
from gateway.model import ATTRIBUTES_AT, CRC_AT, Buffer
from gateway.storage import Drops, Keep
from storage_adapters.formats.footer import LOW_32, ROW_STRIDE, Footer, Part, span_of
from storage_adapters.formats.manifest import SHARED
from storage_adapters.formats.row_search import find_offset, sizes_of
from storage_adapters.segment_log.reading import Pick, pick, read_picks
from storage_adapters.segment_log.segments import Segment
from storage_adapters.segment_log.settled_output import Output, OutputBatch

PIECE_BYTES: Final = 262_144
DAMAGE_TRIES: Final = 4  # of a change: the damage may be a passing read error of the disk
DELETED: Final = 1 << 62  # a floor above every offset

_CRC: Final = struct.Struct(">I")
_BASE_OFFSET: Final = struct.Struct(">q")
_FRONT: Final = struct.Struct(">qi")  # base offset and length


class DamagedBatch(StorageUnavailable):
    """A stored batch differs from the one that was appended."""

    def __init__(self, segment: Segment, text: str) -> None:
        super().__init__(f"{segment.path}: {text}")
        self.segment = segment


class Source(NamedTuple):
    """A segment to copy from, held open. Partitions in ``dead`` are left out."""

    segment: Segment
    fd: int
    footer: Footer
    dead: frozenset[int]

    @property
    def is_settled(self) -> bool:
        """Whether it is a settled segment, whose parts cover offsets without batches, too."""
        return self.segment.record is not None


class Piece(NamedTuple):
    """Rows [first, last) of one partition to be copied from one source."""

    source: Source
    part: Part
    first: int
    last: int
    start: int
    end: int


class Rewrite(NamedTuple):
    """Rewriting of one partition's batches within [``from_offset``, ``upto_offset``)."""

    from_offset: int
    upto_offset: int
    keep: Keep
    drops: Drops | None = None

    def concerns(self, base_offset: int, span: int) -> bool:
        """Return whether a batch lies within; ``span`` as in a row."""
        end = base_offset + (span & LOW_32)
        return self.from_offset <= base_offset and end <= self.upto_offset


def by_partition(
    sources: Sequence[Source], floors: Mapping[int, int], only: int | None = None
) -> Iterator[tuple[int, list[Piece]]]:
    """Yield partitions, lowest id first, with their live rows, lowest offset first.

    ``floors``: log start offsets of partitions that have lost data. ``only``: one partition alone.
    """
    streams = [_parts(index, source, only) for index, source in enumerate(sources)]
    for partition_id, found in groupby(heapq.merge(*streams), key=itemgetter(0)):
        floor = floors.get(partition_id, 0)
        pieces = [_piece(sources[index], part, floor) for _, index, part in found]
        alive = [piece for piece in pieces if piece is not None]
        if alive:
            alive.sort(key=lambda piece: piece.start)
            yield partition_id, alive


def _parts(index: int, source: Source, only: int | None) -> Iterator[tuple[int, int, Part]]:
    if only is not None:
        part = source.footer.find(only)
        if part is not None and only not in source.dead:
            yield only, index, part
        return
    for part in source.footer:
        if part.partition_id not in source.dead:
            yield part.partition_id, index, part


def _piece(source: Source, part: Part, floor: int) -> Piece | None:
    if part.end <= floor or not (part.row_count or source.is_settled):
        return None
    last = part.first_row + part.row_count
    first = find_offset(source.footer.rows, part.first_row, last, floor)
    start = part.start if source.is_settled else part.first_offset
    if first > part.first_row:  # Offsets below the log start are not covered any more.
        start = floor
        if first < last:  # The first batch may begin before the floor, or behind a hole.
            start = min(floor, source.footer.rows[first * ROW_STRIDE])
    return Piece(source, part, first, last, start, part.end)


def copy_unshared(
    sources: Sequence[Source],
    floors: Mapping[int, int],
    output: Output,
    sharing: Container[int] = (),
) -> None:
    """Copy the live batches of ``sources``, partition by partition, without those ``sharing``."""
    for partition_id, pieces in by_partition(sources, floors):
        if partition_id in sharing:
            continue
        size_bytes = sum(map(_size_bytes, pieces))
        is_own = size_bytes >= output.spec.own_bytes
        owner = partition_id if is_own else SHARED
        for run in runs_of(pieces):
            copy_pieces(partition_id, run, output, owner)
            owner = partition_id  # A file covers one range of offsets of a partition.


def copy_rewritten(
    partition_id: int,
    sources: Sequence[Source],
    floors: Mapping[int, int],
    rewrite: Rewrite,
    output: Output,
) -> None:
    """Copy one partition; ``keep`` replaces the batches that the rewrite concerns."""
    for _, pieces in by_partition(sources, floors, partition_id):
        for run in runs_of(pieces):
            copy_pieces(partition_id, run, output, partition_id, rewrite)


def _size_bytes(piece: Piece) -> int:
    if piece.last - piece.first == piece.part.row_count:
        return piece.part.size_bytes
    return sum(sizes_of(piece.source.footer.rows, piece.first, piece.last))


def runs_of(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Yield runs of pieces with consecutive offsets; offsets between runs are in other files."""
    run: list[Piece] = []
    for piece in pieces:
        if run and piece.start != run[-1].end:
            yield run
            run = []
        run.append(piece)
    yield run


def known_introduction(run: Sequence[Piece]) -> bytes | None:
    """Return the newest introduction of a run's partition, or None."""
    introductions = [p.source.footer.introduction_bytes(p.part) for p in reversed(run)]
    return next((found for found in introductions if found is not None), None)


def copy_pieces(
    partition_id: int,
    run: list[Piece],
    output: Output,
    owner: int,
    rewrite: Rewrite | None = None,
) -> None:
    """Copy consecutive pieces of one partition."""
    groups = _groups(partition_id, run, rewrite)
    if rewrite is not None:
        groups = _rewritten(groups, rewrite)
    bounds = (run[0].start, run[-1].end)
    introduction = known_introduction(run)
    output.write_part(partition_id, bounds, introduction, groups, owner=owner)


def _groups(
    partition_id: int, run: list[Piece], rewrite: Rewrite | None
) -> Iterator[list[OutputBatch]]:
    for piece in run:
        rows = piece.source.footer.rows
        for first, last in _wanted(piece, rewrite):
            row = first
            while row < last:
                picks, _ = pick(rows, row, last, DELETED, PIECE_BYTES, is_first=True)
                row += len(picks)
                yield _read(partition_id, piece, picks, row - len(picks))


def _wanted(piece: Piece, rewrite: Rewrite | None) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a piece's rows that must be read: all except those to be dropped."""
    first = piece.first
    if rewrite is not None and rewrite.drops is not None:
        rows = piece.source.footer.rows
        for row in range(piece.first, piece.last):
            base_offset, _, place, span = rows[row * ROW_STRIDE : (row + 1) * ROW_STRIDE]
            if rewrite.concerns(base_offset, span) and rewrite.drops(base_offset, place >> 32):
                if first < row:
                    yield first, row
                first = row + 1
    if first < piece.last:
        yield first, piece.last


def _read(partition_id: int, piece: Piece, picks: list[Pick], row: int) -> list[OutputBatch]:
    rows = piece.source.footer.rows
    highest = rows[row * ROW_STRIDE + 1 : (row + len(picks)) * ROW_STRIDE : ROW_STRIDE]
    wanted = [(chosen, partition_id, time) for chosen, time in zip(picks, highest, strict=True)]
    return read_intact(piece.source, wanted)


def read_intact(source: Source, wanted: Sequence[tuple[Pick, int, int]]) -> list[OutputBatch]:
    """Read batches, given with a partition and the highest timestamp in its row.

    Errors: ``DamagedBatch``, until the segment's damage is known well enough.
    """
    try:
        batches = read_picks(source.fd, [chosen for chosen, _, _ in wanted], 0)
    except StorageUnavailable as error:
        raise DamagedBatch(source.segment, str(error)) from error  # it is too short
    found = []
    for batch, (chosen, partition_id, highest) in zip(batches, wanted, strict=True):
        damaged_unix_ms = None
        if not is_intact(batch):
            _check_may_go_along(partition_id, source.segment, chosen)
            damaged_unix_ms = highest
        found.append(OutputBatch(batch, chosen.base_offset, chosen.span, damaged_unix_ms))
    return found


def _check_may_go_along(partition_id: int, segment: Segment, chosen: Pick) -> None:
    if segment.damage_seen < DAMAGE_TRIES:
        raise DamagedBatch(
            segment,
            f"the batch at position {chosen.position} (partition {partition_id}, offset "
            f"{chosen.base_offset}) is damaged",
        )


def is_intact(batch: Buffer) -> bool:
    """Return whether the batch's CRC matches."""
    return bool(crc32c(batch[ATTRIBUTES_AT:]) == _CRC.unpack_from(batch, CRC_AT)[0])


def _rewritten(
    groups: Iterator[list[OutputBatch]], rewrite: Rewrite
) -> Iterator[list[OutputBatch]]:
    for group in groups:
        kept = []
        for item in group:
            if item.is_damaged or not rewrite.concerns(item.base_offset, item.span):
                kept.append(item)
                continue
            batch = rewrite.keep(item.batch)
            if batch is item.batch:
                kept.append(item)
            elif batch is not None:
                kept.append(_placed(batch))
        if kept:
            yield kept


def _placed(batch: Buffer) -> OutputBatch:
    """Return a batch that ``keep`` made, for the offsets in its header."""
    if not is_intact(batch):
        raise StorageUnavailable("a batch that compaction made has a wrong CRC")
    (base_offset,) = _BASE_OFFSET.unpack_from(batch)
    return OutputBatch(batch, base_offset, span_of(batch))


def directory_rows(
    old: Source | None, sources: Sequence[Source]
) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield the rows of a new directory: each partition as the newest source has it.

    Deleted ones are left out: none of their settled batches is in use any more.
    """
    ordered = ([old] if old is not None else []) + list(sources)
    streams = [_parts(index, source, None) for index, source in enumerate(ordered)]
    for partition_id, found in groupby(heapq.merge(*streams), key=itemgetter(0)):
        *_, (_, index, part) = found
        introduction = ordered[index].footer.introduction_bytes(part)
        if not part.is_deleted and introduction is not None:
            yield partition_id, part.start, part.end, introduction
