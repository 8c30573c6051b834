"""Copying of partitions that share batches: each batch is stored once in a settled segment.

Partitions that share batches with others are copied in chunks, in the order of the log: a file
has the batches of a chunk once, and rows of all partitions that refer to them. Positions of a
partition's rows grow with its offsets, as in a log segment. In the settler's thread.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from storage_adapters.formats.footer import HIGH_SHIFT, LOW_32, NO_TIMESTAMP, ROW_STRIDE, Rows
from storage_adapters.formats.row_search import find_position
from storage_adapters.segment_log.copying import (
    PIECE_BYTES,
    Piece,
    Source,
    by_partition,
    copy_pieces,
    copy_unshared,
    known_introduction,
    read_intact,
    runs_of,
)
from storage_adapters.segment_log.reading import Pick
from storage_adapters.segment_log.settled_output import Output, OutputFile, timestamp_of

CHUNK_ROWS: Final = 250_000
"""Rows of a chunk: some 35 MB of memory while it is copied."""
BUCKET_SHIFT: Final = 16
"""A log segment is cut between two chunks at a multiple of 64 KiB."""
_SLOT_SHIFT: Final = 5  # less than the smallest batch: no two batches begin in one slot
_END: Final = 1 << 32


class Sharing(NamedTuple):
    """Partitions that share batches, and the number of their rows by source and bucket."""

    partition_ids: frozenset[int]
    row_counts: list["array[int]"]


class Slice(NamedTuple):
    """Batches of a source within positions [start, end)."""

    source: Source
    start: int
    end: int


class _Placed(NamedTuple):
    """Position of a batch in the new file."""

    position: int
    timestamp_unix_ms: int


def copy_all(sources: Sequence[Source], floors: Mapping[int, int], output: Output) -> None:
    """Copy the live batches of ``sources``."""
    sharing = find_sharing(sources)
    if sharing is None:
        copy_unshared(sources, floors, output)
        return
    copy_unshared(sources, floors, output, sharing.partition_ids)
    copy_sharing(sources, floors, sharing, output)


def find_sharing(sources: Sequence[Source]) -> Sharing | None:
    """Return what is shared by partitions of the sources; None for nothing, the common case."""
    partition_ids: set[int] = set()
    for source in sources:
        if source.footer.trailer.repeated_bytes:
            partition_ids |= _sharing_in(source)
    if not partition_ids:
        return None
    return Sharing(
        frozenset(partition_ids), [_row_counts(source, partition_ids) for source in sources]
    )


def _places(source: Source) -> Iterator[tuple[int, Rows]]:
    """Yield each live partition with the places of its rows."""
    for part in source.footer:
        if part.row_count and part.partition_id not in source.dead:
            first, end = part.first_row, part.first_row + part.row_count
            rows = array("q", source.footer.rows[first * ROW_STRIDE : end * ROW_STRIDE])
            yield part.partition_id, rows[2::ROW_STRIDE]


def _sharing_in(source: Source) -> set[int]:
    """Return the partitions of which a batch has a row of another partition, too."""
    seen = bytearray((source.footer.trailer.entries_end >> _SLOT_SHIFT) + 1)
    repeated: set[int] = set()
    for _, places in _places(source):
        for place in places:
            position = place & LOW_32
            if seen[position >> _SLOT_SHIFT]:
                repeated.add(position)
            else:
                seen[position >> _SLOT_SHIFT] = 1
    return {
        partition_id
        for partition_id, places in _places(source)
        if any((place & LOW_32) in repeated for place in places)
    }


def _row_counts(source: Source, partition_ids: set[int]) -> "array[int]":
    counts = array("q", bytes(8 * ((source.footer.trailer.entries_end >> BUCKET_SHIFT) + 1)))
    for partition_id, places in _places(source):
        if partition_id in partition_ids:
            for place in places:
                counts[(place & LOW_32) >> BUCKET_SHIFT] += 1
    return counts


def chunks_of(
    sources: Sequence[Source], sharing: Sharing, bytes_max: int
) -> Iterator[list[Slice]]:
    """Yield chunks: parts of the sources, in order, of about ``CHUNK_ROWS`` rows.

    A settled segment is not cut, since its positions follow the log only within a partition.
    """
    chunk: list[Slice] = []
    rows = size_bytes = 0
    for source, counts in zip(sources, sharing.row_counts, strict=True):
        for start, end, count in _cuts(source, counts):
            bytes_count = min(end, source.footer.trailer.entries_end) - start
            if chunk and (rows + count > CHUNK_ROWS or size_bytes + bytes_count > bytes_max):
                yield chunk
                chunk, rows, size_bytes = [], 0, 0
            if chunk and chunk[-1].source is source:
                chunk[-1] = chunk[-1]._replace(end=end)
            else:
                chunk.append(Slice(source, start, end))
            rows += count
            size_bytes += bytes_count
    if chunk:
        yield chunk


def _cuts(source: Source, counts: "array[int]") -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, number of rows) of the slices that a source may be cut into."""
    if source.is_settled:
        yield 0, _END, sum(counts)
        return
    bounds = [*range(0, len(counts) << BUCKET_SHIFT, 1 << BUCKET_SHIFT), _END]
    for (start, end), count in zip(pairwise(bounds), counts, strict=True):
        yield start, end, count


def copy_sharing(
    sources: Sequence[Source], floors: Mapping[int, int], sharing: Sharing, output: Output
) -> None:
    """Copy the partitions that share batches, each batch once for a chunk."""
    bytes_max = output.spec.settled_bytes_max
    for chunk in chunks_of(sources, sharing, bytes_max):
        wanted = list(_pieces_of(chunk, floors, sharing))
        if wanted:
            _copy_chunk(chunk, wanted, output)


def _pieces_of(
    chunk: Sequence[Slice], floors: Mapping[int, int], sharing: Sharing
) -> Iterator[tuple[int, list[list[Piece]]]]:
    """Yield the partitions of a chunk with their pieces, in runs of consecutive offsets."""
    by_number = {one.source.segment: one for one in chunk}
    for partition_id, pieces in by_partition([one.source for one in chunk], floors):
        if partition_id not in sharing.partition_ids:
            continue
        cut = [_within(piece, by_number[piece.source.segment]) for piece in pieces]
        kept = [piece for piece in cut if piece is not None]
        if kept:
            yield partition_id, list(runs_of(kept))


def _within(piece: Piece, part: Slice) -> Piece | None:
    """Return the rows of a piece whose batches lie within a slice."""
    if part.start == 0 and part.end == _END:
        return piece
    rows = piece.source.footer.rows
    first = find_position(rows, piece.first, piece.last, part.start)
    last = find_position(rows, piece.first, piece.last, part.end)
    if first == last:
        return None
    return piece._replace(
        first=first,
        last=last,
        start=piece.start if first == piece.first else rows[first * ROW_STRIDE],
        end=piece.end if last == piece.last else rows[last * ROW_STRIDE],
    )


def _copy_chunk(
    chunk: Sequence[Slice], wanted: Sequence[tuple[int, list[list[Piece]]]], output: Output
) -> None:
    size_bytes = sum(min(one.end, one.source.segment.entries_end) - one.start for one in chunk)
    rows = sum(piece.last - piece.first for _, runs in wanted for run in runs for piece in run)
    target = output.shared_file(size_bytes, rows)
    placed: dict[object, dict[int, _Placed]] = {}
    for one in chunk:
        pieces = [
            (partition_id, piece)
            for partition_id, runs in wanted
            for piece in runs[0]
            if piece.source is one.source
        ]
        placed[one.source.segment] = _copy_batches(one.source, pieces, target, output)
    for partition_id, runs in wanted:
        _add_rows(partition_id, runs[0], placed, target)
    output.end_shared()
    for partition_id, runs in wanted:
        for run in runs[1:]:  # A file covers one range of offsets of a partition.
            copy_pieces(partition_id, run, output, partition_id)


def _copy_batches(
    source: Source,
    pieces: Sequence[tuple[int, Piece]],
    target: OutputFile,
    output: Output,
) -> dict[int, _Placed]:
    """Copy each batch of the pieces once, in order of position; return where they are."""
    rows = source.footer.rows
    found: dict[int, tuple[int, int]] = {}  # partition and row of a batch's first use
    for partition_id, piece in pieces:
        for row in range(piece.first, piece.last):
            found.setdefault(rows[row * ROW_STRIDE + 2] & LOW_32, (partition_id, row))
    placed: dict[int, _Placed] = {}
    group: list[tuple[Pick, int, int]] = []
    size_bytes = 0
    for position in sorted(found):
        partition_id, row = found[position]
        base_offset, highest, place, span = rows[row * ROW_STRIDE : (row + 1) * ROW_STRIDE]
        pick = Pick(position, place >> HIGH_SHIFT, base_offset, span)
        group.append((pick, partition_id, highest))
        size_bytes += pick.size_bytes
        if size_bytes >= PIECE_BYTES:
            _copy_group(source, group, target, placed)
            output.spec.pace.spend(size_bytes)
            group, size_bytes = [], 0
    if group:
        _copy_group(source, group, target, placed)
        output.spec.pace.spend(size_bytes)
    return placed


def _copy_group(
    source: Source,
    group: Sequence[tuple[Pick, int, int]],
    target: OutputFile,
    placed: dict[int, _Placed],
) -> None:
    batches = read_intact(source, group)
    position = target.write_batches([item.batch for item in batches])
    for item, (pick, _, _) in zip(batches, group, strict=True):
        target.damaged_count += item.is_damaged
        placed[pick.position] = _Placed(position, timestamp_of(item))
        position += pick.size_bytes


def _add_rows(
    partition_id: int,
    run: Sequence[Piece],
    placed: Mapping[object, Mapping[int, _Placed]],
    target: OutputFile,
) -> None:
    new = array("q")
    highest = NO_TIMESTAMP
    for piece in run:
        rows = piece.source.footer.rows
        places = placed[piece.source.segment]
        for at in range(piece.first * ROW_STRIDE, piece.last * ROW_STRIDE, ROW_STRIDE):
            base_offset, _, place, span = rows[at : at + ROW_STRIDE]
            found = places[place & LOW_32]
            highest = max(highest, found.timestamp_unix_ms)
            place = found.position + (place >> HIGH_SHIFT << HIGH_SHIFT)
            new.extend((base_offset, highest, place, span))
    bounds = run[0].start, run[-1].end
    target.add_part(partition_id, bounds, known_introduction(run), new)
