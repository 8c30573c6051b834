"""Other nodes' logs of the same data: what they have committed, and their end.

A node knows its own log; of other logs the catalog has what the last refresh saw.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from gateway.clock import Clock
from storage_adapters.s3.change import ObjectPart
from storage_adapters.s3.index_tables import IndexChanges
from storage_adapters.s3.index_thread import IndexThread
from storage_adapters.s3.log_ends import DataPlace, end_logs
from storage_adapters.s3.state import Catalog, Extent, PartitionState, StoredObject

_NO_OBJECT: Final = StoredObject(-1, 0, 0, 0, 0, 0, "", 0, frozenset())


class OtherWriters:
    """Other nodes' logs. Loop only. ``forget`` drops an object from all caches."""

    def __init__(
        self,
        catalog: Catalog,
        look_ups: IndexThread,
        place: DataPlace,
        clock: Clock,
        forget: Callable[[int], None],
    ) -> None:
        self._catalog = catalog
        self._look_ups = look_ups
        self._place = place
        self._clock = clock
        self._forget = forget
        self._turn = asyncio.Lock()
        self._deaths: dict[int, int] = {}  # of objects that lost parts

    async def fence(self, node_id: int) -> None:
        """Fence a dead node and end its log, before another node has any of its partitions.

        What it has not committed never counts. Repeat it after ``StorageUnavailable``.
        """
        place, unix_ms = self._place, self._clock.unix_ms()
        await self._look_ups.run(
            lambda index: end_logs(
                place, index, unix_ms, when=lambda row: row.node_id == node_id
            )
        )

    async def refresh(self) -> None:
        """Bring the catalog up to the index. Errors: ``StorageUnavailable``.

        All that was committed when it was called is there when it returns: call it before the node
        takes a partition, whose end it then has.
        """
        async with self._turn:
            log = self._catalog.log
            known = {
                stored.number: self._deaths.get(stored.number, 0)
                for stored in self._catalog.objects.values()
                if stored.log != log
            }
            changes = await self._look_ups.run(lambda index: index.changes(log, known))
            apply_changes(self._catalog, changes)
            self._deaths = {n: at for n, at in {**known, **changes.deaths}.items() if at}
            for number in changes.gone:
                self._forget(number)


def apply_changes(catalog: Catalog, changes: IndexChanges) -> None:
    """Update a catalog in one step: a read sees the state before or after."""
    replaced = {stored.number for stored, _ in changes.objects}.union(changes.gone)
    new = _extents_of(parts for _, parts in changes.objects)
    touched = set(new)
    for number in replaced:
        touched |= catalog.objects.pop(number, _NO_OBJECT).partition_ids
    catalog.objects.update({stored.number: stored for stored, _ in changes.objects})
    for partition_id in touched:
        catalog.partition(partition_id).replace(replaced, new.get(partition_id, ()))
    for row in changes.bounds:
        state = catalog.partition(row.partition_id)
        if row.start >= state.start:
            state.start, state.below_bytes = row.start, row.below_bytes
        state.is_deleted |= row.is_deleted
        touched.add(row.partition_id)
    for partition_id in touched:
        _settle(catalog.partition(partition_id))


def _extents_of(parts: Iterable[list[ObjectPart]]) -> dict[int, list[Extent]]:
    found: dict[int, list[Extent]] = {}
    for some in parts:
        for partition_id, extent in some:
            found.setdefault(partition_id, []).append(extent)
    return found


def _settle(state: PartitionState) -> None:
    """Drop extents below the start. ``end`` may be further: own appends can be under way."""
    if state.is_deleted:
        state.extents = []
    else:
        state.extents = [extent for extent in state.extents if extent.end > state.start]
    first_bytes = state.extents[0].size_bytes if state.extents else 0
    state.below_bytes = min(state.below_bytes, first_bytes)
    state.end = max(state.end, state.start, state.committed_end)
