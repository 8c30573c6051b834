"""Obsolete settled segments, tracked change by change."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from storage_adapters.formats.footer import Part
from storage_adapters.segment_log.catalog import Catalog
from storage_adapters.segment_log.segments import Segment
from storage_adapters.segment_log.settled_set import record_of

PARTS_PER_TICK: Final = 500


class ObsoleteFiles:
    """Counts of dead bytes per shared segment: those of partitions that need it no more.

    Loop only.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._touched: set[int] = set()
        self._dead: dict[int, set[int]] = {}  # partitions, by number of a shared segment
        self._dead_bytes: dict[int, int] = {}

    def touch(self, partition_id: int) -> None:
        """Note that the partition's log start has moved, or that it was deleted."""
        self._touched.add(partition_id)

    async def load(self) -> None:
        """Examine all partitions of all segments, once after a start."""
        for segment in tuple(self._catalog.settled.segments.values()):
            footer = self._catalog.footers.get(segment)
            for index in range(len(footer)):
                part = footer.part(index)
                if self._is_dead(part) or part.partition_id in record_of(segment).dead:
                    self._touched.add(part.partition_id)
                if index % PARTS_PER_TICK == 0:
                    await asyncio.sleep(0)

    def note(self, gone: Sequence[Segment], dead: Mapping[int, Collection[int]]) -> None:
        """Note segments that are gone, and partitions that are dead in others."""
        for segment in gone:
            if segment.record is not None:
                self._dead.pop(segment.number, None)
                self._dead_bytes.pop(segment.number, None)
        for partition_ids in dead.values():
            self._touched.update(partition_ids)

    async def find(self) -> tuple[list[Segment], list[Segment]]:
        """Return the segments that can be removed, and those that are more than half dead."""
        touched, self._touched = self._touched, set()
        passed: list[Segment] = []
        for index, partition_id in enumerate(touched):
            passed += self._passed_own(partition_id)
            for segment in self._catalog.settled.shared:
                self._count(segment, partition_id)
            if index % PARTS_PER_TICK == 0:
                await asyncio.sleep(0)
        half_dead = []
        for segment in self._catalog.settled.shared:
            dead_bytes = self._dead_bytes.get(segment.number, 0)
            if dead_bytes * 2 > _rows_bytes(segment) or self._is_all_dead(segment):
                half_dead.append(segment)
        return passed, half_dead

    def _passed_own(self, partition_id: int) -> list[Segment]:
        found = []
        for segment in self._catalog.settled.owned(partition_id):
            part = self._catalog.footers.get(segment).find(partition_id)
            if part is None or self._is_dead(part):
                found.append(segment)
        return found

    def _count(self, segment: Segment, partition_id: int) -> None:
        known = self._dead.setdefault(segment.number, set())
        if partition_id in known:
            return
        part = self._catalog.footers.get(segment).find(partition_id)
        if part is None:
            return
        if partition_id in record_of(segment).dead or self._is_dead(part):
            known.add(partition_id)
            dead_bytes = self._dead_bytes.get(segment.number, 0)
            self._dead_bytes[segment.number] = dead_bytes + part.size_bytes

    def _is_all_dead(self, segment: Segment) -> bool:
        return len(self._dead.get(segment.number, ())) == record_of(segment).partition_count

    def _is_dead(self, part: Part) -> bool:
        start, is_deleted = self._catalog.peek(part.partition_id)
        return is_deleted or start >= part.end


def _rows_bytes(segment: Segment) -> int:
    """Return the bytes of the batches in all rows, as dead bytes are counted.

    A batch that several partitions share goes when none of them is left; each copy until then
    has half of the rows at most.
    """
    assert segment.trailer is not None
    return segment.entries_end + segment.trailer.repeated_bytes
