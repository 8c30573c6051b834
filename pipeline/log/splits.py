"""Splits, the input of one Spark task each: planned by the driver, pickled to workers."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from gateway.errors import OffsetOutOfRange
from pipeline.log.options import EARLIEST, LATEST, Options
from pipeline.log.views import Extent, PartitionView

OPEN_BYTES: Final = 1024 * 1024
"""Bytes that opening a file or object counts as, so that many small ones share a task."""

Positions = dict[str, int]  # "topic/number" -> offset: the content of a stream's checkpoint


class Piece(NamedTuple):
    """Some offsets of a partition in one file, with the topic's names for its rows.

    ``follows``: another piece has the offsets before it, and reports a batch that both have.
    """

    topic: str
    number: int
    extent: Extent
    follows: bool = False


class Split(NamedTuple):
    """Pieces of ``splitBytes`` together, if there are enough; pieces of one file are adjacent.

    ``lease``: protects their objects from deletion; empty without one.
    """

    pieces: list[Piece]
    lease: str = ""


def place_of(view: PartitionView) -> str:
    """Return a partition's name in a checkpoint."""
    return f"{view.identity.topic.name}/{view.identity.number}"


def wanted(views: Mapping[int, PartitionView], options: Options) -> dict[str, PartitionView]:
    """Return the requested partitions by name. Error: ``OffsetOutOfRange``.

    A named topic that is missing is an error: a typing error must not look like success.
    """
    found = {
        place_of(view): view
        for view in sorted(views.values(), key=lambda view: view.identity[2:])
        if options.wants(view.identity.topic.namespace, view.identity.topic.name)
    }
    there = {view.identity.topic.name for view in found.values()}
    missing = sorted((options.topics or frozenset()) - there)
    if missing:
        raise OffsetOutOfRange(f"no such topic in {options.described}: {', '.join(missing)}")
    return found


def starting_positions(found: Mapping[str, PartitionView], options: Options) -> Positions:
    """Return the starting positions. Error: ``OffsetOutOfRange`` (see ``failOnDataLoss``)."""
    return {
        place: _position(view, options.starting, options, default=view.start)
        for place, view in found.items()
    }


def ending_positions(found: Mapping[str, PartitionView], options: Options) -> Positions:
    """Return the ending positions. Error: ``OffsetOutOfRange``."""
    return {
        place: _position(view, options.ending, options, default=view.end)
        for place, view in found.items()
    }


def _position(view: PartitionView, asked: object, options: Options, *, default: int) -> int:
    if asked == EARLIEST:
        return view.start
    if asked == LATEST:
        return view.end
    assert isinstance(asked, Mapping)
    offset = asked.get(view.identity.topic.name, {}).get(str(view.identity.number), default)
    return checked(view, int(offset), fails_on_loss=options.fails_on_loss)


def checked(view: PartitionView, offset: int, *, fails_on_loss: bool) -> int:
    """Return an existing offset, or the nearest one if loss is accepted.

    Error: ``OffsetOutOfRange``.
    """
    if view.start <= offset <= view.end:
        return offset
    if fails_on_loss:
        raise OffsetOutOfRange(
            f"{place_of(view)}: offset {offset} is not in {view.start}..{view.end}: records were "
            "removed by retention, or the topic was made anew. Set failOnDataLoss=false to go on "
            "with what is there"
        )
    return min(max(offset, view.start), view.end)


def plan(
    found: Mapping[str, PartitionView],
    start: Positions,
    end: Positions,
    options: Options,
) -> list[Split]:
    """Return splits for the offsets [``start``, ``end``)."""
    by_path: dict[str, list[Piece]] = {}
    for place, view in found.items():
        first, last = start[place], end[place]
        for extent in view.extents:
            if 0 <= options.start_unix_ms > extent.max_timestamp_unix_ms:
                continue
            cut = _cut(extent, first, last)
            if cut is not None:
                name, number = view.identity.topic.name, view.identity.number
                by_path.setdefault(extent.path, []).append(Piece(name, number, cut))
    return list(_bundled(by_path.values(), options.split_bytes))


def _cut(extent: Extent, first: int, last: int) -> Extent | None:
    first, last = max(first, extent.first), min(last, extent.end)
    if first >= last:
        return None
    # Sizes are estimates, for bundling: records of a partition are assumed to be similar.
    share = (last - first) / (extent.end - extent.first)
    return extent._replace(first=first, end=last, size_bytes=int(extent.size_bytes * share))


def _bundled(files: Iterable[list[Piece]], bytes_max: int) -> Iterator[Split]:
    """Cut large pieces and combine small ones."""
    bundle: list[Piece] = []
    size_bytes = 0
    for pieces in files:
        size_bytes += OPEN_BYTES
        for piece in pieces:
            for part in _parts(piece, bytes_max):
                if bundle and size_bytes + part.extent.size_bytes > bytes_max:
                    yield Split(bundle)
                    bundle, size_bytes = [], OPEN_BYTES
                bundle.append(part)
                size_bytes += part.extent.size_bytes
    if bundle:
        yield Split(bundle)


def _parts(piece: Piece, bytes_max: int) -> Iterable[Piece]:
    extent = piece.extent
    count = min(-(-extent.size_bytes // bytes_max) or 1, extent.end - extent.first)
    span = -(-(extent.end - extent.first) // count)
    for first in range(extent.first, extent.end, span):
        last = min(first + span, extent.end)
        part = extent._replace(first=first, end=last, size_bytes=extent.size_bytes // count)
        yield piece._replace(extent=part, follows=first > extent.first)
