"""Which partitions and segments there are, and where in them a partition's batches lie.

Nothing is known of a partition until it is asked for, so that 100,000 idle ones cost nothing:
the newest segment that mentions it says its bounds, and the list of segments that hold batches
of it (its extents) is found at its first read from a closed segment, and forgotten again at a
bound.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from gateway.errors import StorageUnavailable
from storage_adapters.formats.footer import Part, Rows
from storage_adapters.segment_log.config import SegmentLogConfig
from storage_adapters.segment_log.index import LivePart
from storage_adapters.segment_log.segments import Footers, Handles, Segment


class Extent(NamedTuple):
    """A partition's batches in one closed segment."""

    segment: Segment
    part: Part


class PartitionState:
    """What is known of one partition. ``end`` counts what is enqueued, ``start`` is at once.

    ``part`` is its place in the index of ``segment``, which is the active one as soon as the
    partition was introduced there. ``extents`` are known up to segment number ``extents_upto``.
    """

    __slots__ = (
        "end",
        "extents",
        "extents_upto",
        "is_deleted",
        "part",
        "partition_id",
        "segment",
        "start",
    )

    def __init__(self, partition_id: int, known: Part | None) -> None:
        self.partition_id = partition_id
        self.start = 0 if known is None else known.start
        self.end = 0 if known is None else known.end
        self.is_deleted = known is not None and known.is_deleted
        self.segment: Segment | None = None
        self.part: LivePart | None = None
        self.extents: list[Extent] | None = None
        self.extents_upto = -1


class Catalog:
    """Segments in order, and the states of the partitions that were asked for."""

    def __init__(self, config: SegmentLogConfig) -> None:
        self.handles = Handles(config.open_files_max)
        self.footers = Footers(self.handles, config.footers_max)
        self.segments: dict[int, Segment] = {}  # by number, lowest first
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
        """The oldest live segment has its footer now."""
        self._closed.append(segment.number)

    def remove(self, segment: Segment) -> None:
        """Forget a segment whose file is removed."""
        del self.segments[segment.number]
        self._closed.remove(segment.number)
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
        """Return what the newest segment that mentions a partition says of it."""
        for segment in reversed(self.segments.values()):
            found = self.footers.lookup(segment, partition_id)
            if found is not None:
                return found[0]
        return None

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
        if extents is None:
            extents = state.extents = []
            state.extents_upto = -1
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
                self._check_no_gap(
                    state, extents[-1].part.end if extents else state.start, part
                )
                extents.append(Extent(segment, part))
        state.extents_upto = self._closed[-1]

    def _check_no_gap(self, state: PartitionState, expected: int, part: Part) -> None:
        if part.first_offset > max(expected, state.start):
            raise StorageUnavailable(
                f"partition {state.partition_id}: offsets {expected} to "
                f"{part.first_offset - 1} are in no segment; was a file removed?"
            )

    def places(
        self, state: PartitionState, offset: int
    ) -> Iterator[tuple[Segment, Part, Rows]]:
        """Yield where the partition's batches from ``offset`` on are, lowest offset first."""
        if state.is_deleted:
            return
        live = self._live_places(state)
        if not live or offset < live[0][1].first_offset:
            for segment, part in self.extents(state):
                if part.end > offset:
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
        """Drop what is kept in memory of a deleted partition, but that it is deleted."""
        self._with_extents.pop(partition_id, None)
        self.states[partition_id].extents = None

    def close(self) -> None:
        """Let go of all files."""
        self.footers.close()
        self.handles.close()
