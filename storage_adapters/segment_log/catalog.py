"""Catalog of partitions and segments, with the extents of each partition.

Nothing is known of a partition until it is asked for, so that 100,000 idle ones cost nothing:
the newest segment that mentions it has its bounds, and the list of segments that hold batches
of it (its extents) is found at its first read from a closed segment, and forgotten again at a
bound.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from uuid import UUID

from gateway.errors import StorageUnavailable
from storage_adapters.formats.footer import Part, Rows
from storage_adapters.formats.manifest import Manifest
from storage_adapters.segment_log.config import SegmentLogConfig
from storage_adapters.segment_log.index import LivePart
from storage_adapters.segment_log.segments import Footers, Handles, Segment
from storage_adapters.segment_log.settled_set import SettledSet


class Extent(NamedTuple):
    """A partition's batches in one closed or settled segment."""

    segment: Segment
    part: Part


class Window(NamedTuple):
    """Positions [start, end) of a settled segment that were fetched for a reader.

    Earlier pages, from ``first`` on, were dropped from the page cache.
    """

    segment: Segment
    first: int
    start: int
    end: int


class PartitionState:
    """State of one partition. ``end`` includes enqueued batches; ``start`` moves at once.

    ``part`` is its place in the index of ``segment``, which is the active one as soon as the
    partition was introduced there. ``extents`` are known up to segment number ``extents_upto``,
    as of the settled segments ``extents_settled``. ``window`` is the page cache's.
    """

    __slots__ = (
        "end",
        "extents",
        "extents_settled",
        "extents_upto",
        "is_deleted",
        "part",
        "partition_id",
        "segment",
        "start",
        "window",
    )

    def __init__(self, partition_id: int, known: Part | None) -> None:
        self.partition_id = partition_id
        self.start = 0 if known is None else known.start
        self.end = 0 if known is None else known.end
        self.is_deleted = known is not None and known.is_deleted
        self.segment: Segment | None = None
        self.part: LivePart | None = None
        self.extents: list[Extent] | None = None
        self.extents_settled: SettledSet | None = None
        self.extents_upto = -1
        self.window: Window | None = None


class Catalog:
    """Segments in order, and the states of the partitions that were asked for."""

    def __init__(self, config: SegmentLogConfig) -> None:
        self.handles = Handles(config.open_files_max)
        self.footers = Footers(self.handles, config.footers_max)
        self.segments: dict[int, Segment] = {}  # of the log, by number, lowest first
        self.settled = SettledSet(Manifest(UUID(int=0)), ())
        self.states: dict[int, PartitionState] = {}
        self._closed: list[int] = []  # numbers of segments with a footer, lowest first
        self._extents_max = config.extents_max
        self._with_extents: OrderedDict[int, PartitionState] = OrderedDict()

    def add(self, segment: Segment) -> None:
        """Add the newest segment."""
        self.segments[segment.number] = segment
        if segment.live is None:
            self._closed.append(segment.number)

    def note_closed(self, segment: Segment) -> None:
        """Note that the oldest live segment has its footer now."""
        self._closed.append(segment.number)

    def remove(self, segment: Segment) -> None:
        """Forget a segment whose file is removed."""
        del self.segments[segment.number]
        self._closed.remove(segment.number)
        self.footers.forget(segment)
        self.handles.forget(segment)

    def switch(self, settled: SettledSet, gone: Iterable[Segment]) -> None:
        """Use other settled segments from now on; those in ``gone`` are forgotten."""
        self.settled = settled
        for segment in gone:
            if segment.record is None:
                self.remove(segment)
            else:
                self.footers.forget(segment)
                self.handles.forget(segment)

    def live_segments(self) -> list[Segment]:
        """Return the segments without a footer, oldest first: the active one, rarely more."""
        live: list[Segment] = []
        for segment in reversed(self.segments.values()):
            if segment.live is None:
                break
            live.append(segment)
        live.reverse()
        return live

    def closed_segments(self) -> Iterator[Segment]:
        """Yield the segments that have a footer, oldest first."""
        return (self.segments[number] for number in tuple(self._closed))

    def newest(self, partition_id: int) -> Part | None:
        """Return the partition's row in the newest segment that mentions it."""
        for segment in reversed(self.segments.values()):
            found = self.footers.lookup(segment, partition_id)
            if found is not None:
                return found[0]
        directory = self.settled.directory
        return None if directory is None else self.footers.get(directory).find(partition_id)

    def peek(self, partition_id: int) -> tuple[int, bool]:
        """Return (log start offset, whether it is deleted) without keeping any state."""
        known = self.states.get(partition_id) or self.newest(partition_id)
        return (0, False) if known is None else (known.start, known.is_deleted)

    def state(self, partition_id: int) -> PartitionState:
        """Return the partition's state, found in the newest segment that mentions it."""
        state = self.states.get(partition_id)
        if state is None:
            state = PartitionState(partition_id, self.newest(partition_id))
            self.states[partition_id] = state
        return state

    def extents(self, state: PartitionState) -> list[Extent]:
        """Return the partition's extents in closed segments, lowest offset first.

        Errors: ``StorageUnavailable`` when offsets between two of them are nowhere, which means
        that a file was taken away.
        """
        extents = state.extents
        if extents is None or state.extents_settled is not self.settled:
            parts = self.settled.parts(self.footers, state.partition_id)
            extents = state.extents = [Extent(*pair) for pair in parts]
            state.extents_settled = self.settled
            state.extents_upto = -1
            self._check_settled(state, extents)
        while extents and extents[0].segment.is_gone:
            del extents[0]
        if self._closed and self._closed[-1] > state.extents_upto:
            self._extend(state, extents)
        self._with_extents[state.partition_id] = state
        self._with_extents.move_to_end(state.partition_id)
        if len(self._with_extents) > self._extents_max:
            _, forgotten = self._with_extents.popitem(last=False)
            forgotten.extents = None
        return extents

    def _extend(self, state: PartitionState, extents: list[Extent]) -> None:
        for number in self._closed[bisect_right(self._closed, state.extents_upto) :]:
            segment = self.segments[number]
            part = self.footers.get(segment).find(state.partition_id)
            if part is not None and part.row_count:
                expected = extents[-1].part.end if extents else state.start
                _check_no_gap(state, expected, part.first_offset)
                extents.append(Extent(segment, part))
        state.extents_upto = self._closed[-1]

    def _check_settled(self, state: PartitionState, extents: list[Extent]) -> None:
        expected = state.start
        for _, part in extents:
            _check_no_gap(state, expected, part.start)
            expected = part.end

    def places(
        self, state: PartitionState, offset: int
    ) -> Iterator[tuple[Segment, Part, Rows]]:
        """Yield the places of the partition's batches from ``offset`` on, lowest offset first."""
        if state.is_deleted:
            return
        live = self._live_places(state)
        if not live or offset < live[0][1].first_offset:
            for segment, part in self.extents(state):
                if part.end > offset and part.row_count:
                    yield segment, part, self.footers.get(segment).rows
        for place in live:
            if place[1].end > offset:
                yield place

    def _live_places(self, state: PartitionState) -> list[tuple[Segment, Part, Rows]]:
        places = []
        for segment in self.live_segments():
            assert segment.live is not None
            found = segment.live.lookup(state.partition_id)
            if found is not None and found[0].row_count:
                places.append((segment, *found))
        return places

    def forget(self, partition_id: int) -> None:
        """Drop the state of a deleted partition, except that it is deleted."""
        self._with_extents.pop(partition_id, None)
        self.states[partition_id].extents = None

    def close(self) -> None:
        """Close all files."""
        self.footers.close()
        self.handles.close()


def _check_no_gap(state: PartitionState, expected: int, first_offset: int) -> None:
    if first_offset > max(expected, state.start):
        raise StorageUnavailable(
            f"partition {state.partition_id}: offsets {expected} to {first_offset - 1} are in "
            "no segment; was a file removed?"
        )
