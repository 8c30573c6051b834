"""Log starts and deletions of partitions: effective at once, stored by the next commit."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Final

import structlog

from gateway.errors import StorageUnavailable, as_value
from gateway.storage import OnDone
from storage_adapters.formats.damage import Damaged, TooNew
from storage_adapters.s3.change import BoundsRow, Change
from storage_adapters.s3.committer import Committer
from storage_adapters.s3.queries import rows_below
from storage_adapters.s3.reading import PLANS_MAX
from storage_adapters.s3.rows import RowsCache
from storage_adapters.s3.state import Catalog, Extent, PartitionState

TOLD_MAX: Final = 256  # further partitions in a footer: some ms of the loop

_log = structlog.get_logger()


class UnwrittenStarts:
    """Partitions whose log start or deletion may not be in any footer of the bucket yet.

    The index has it, but after a loss of the index only the footers remain (``recovery``). So a
    node begins with all partitions that have a log start or a deletion: the node before it may have
    ended in between.
    """

    def __init__(self, catalog: Catalog) -> None:
        states = catalog.partitions.values()
        self._ids = {one.partition_id for one in states if one.start or one.is_deleted}

    def add(self, partition_id: int) -> None:
        """Add partitions with a new log start or deletion."""
        self._ids.add(partition_id)

    def take(self) -> set[int]:
        """Return those for the next footer, ``TOLD_MAX`` at most."""
        taken = set(islice(self._ids, TOLD_MAX))
        self._ids -= taken
        return taken

    @contextmanager
    def taken(self) -> Iterator[set[int]]:
        """Take some; they are put back when the body of the ``with`` statement fails."""
        taken = self.take()
        try:
            yield taken
        except BaseException:
            self._ids |= taken
            raise


class LogStarts:
    """Pending log starts and deletions, which share a transaction. ``untold``: for footers."""

    def __init__(self, catalog: Catalog, rows: RowsCache, committer: Committer) -> None:
        self._catalog = catalog
        self._rows = rows
        self._committer = committer
        self._waiting: dict[int, list[OnDone]] = {}
        self._task: asyncio.Task[None] | None = None
        self.untold = UnwrittenStarts(catalog)

    def truncate_before(self, partition_id: int, offset: int, on_done: OnDone) -> None:
        """See ``StorageAdapter``."""
        state = self._catalog.partition(partition_id)
        start = min(offset, state.end)
        if not state.is_deleted and start > state.start:
            state.start = start
            passed = state.find(start)
            if passed:  # ``below_bytes`` is about the first extent: another one from now on
                state.extents, state.below_bytes = state.extents[passed:], 0
            self.untold.add(partition_id)
        self._note(partition_id, on_done)

    def delete(self, partition_ids: Sequence[int], on_done: OnDone) -> None:
        """See ``StorageAdapter``."""
        for partition_id in partition_ids:
            state = self._catalog.partition(partition_id)
            state.is_deleted = True
            state.extents = []
            state.below_bytes = 0
            self.untold.add(partition_id)
            self._waiting.setdefault(partition_id, [])
        self._note(partition_ids[-1] if partition_ids else -1, on_done)

    async def drain(self) -> None:
        """Wait until all are stored."""
        if self._task is not None:
            await self._task

    def _note(self, partition_id: int, on_done: OnDone) -> None:
        self._waiting.setdefault(partition_id, []).append(on_done)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._keep_all())

    async def _keep_all(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, {}
            error: StorageUnavailable | None = None
            try:
                await self._keep([one for one in waiting if one >= 0])
            except StorageUnavailable as unavailable:
                error = as_value(unavailable)
            except Exception as mistake:  # noqa: BLE001 - ours; nobody may wait for ever
                error = StorageUnavailable(f"{type(mistake).__name__}: {mistake}")
                _log.error("log starts are not kept", error=str(error))
            for callbacks in waiting.values():
                for on_done in callbacks:
                    asyncio.get_running_loop().call_soon(on_done, error)
        self._task = None

    async def _keep(self, partition_ids: Sequence[int]) -> None:
        states = [self._catalog.partition(partition_id) for partition_id in partition_ids]
        rows = [await self._row(state) for state in states]
        await self._committer.commit(Change(bounds=tuple(rows)))

    async def _row(self, state: PartitionState) -> BoundsRow:
        """Drop the extents below the start; return the row to store."""
        for _ in range(PLANS_MAX):  # the first extent can be merged while its rows are read
            start, extent = state.start, _first(state)
            below_bytes = 0
            if extent is not None and extent.first < start:
                below_bytes = await self._below(extent, start)
            if state.is_deleted:
                break
            if (start, extent) == (state.start, _first(state)):
                state.extents = state.extents[state.find(start) :]
                state.below_bytes = below_bytes
                break
        return BoundsRow(state.partition_id, state.start, state.below_bytes, state.is_deleted)

    async def _below(self, extent: Extent, start: int) -> int:
        """Return the bytes of an extent below ``start``; 0 when its rows cannot be read.

        The partition then counts as larger than it is, by less than an object. That is better than
        a log start that does not move.
        """
        try:
            rows = await self._rows.get(extent.number)
        except (StorageUnavailable, Damaged, TooNew) as error:
            _log.warning("no rows", object=extent.number, error=str(error))
            return 0
        return rows_below(rows, extent, start)


def _first(state: PartitionState) -> Extent | None:
    """Return the extent that holds the log start, None when all extents lie below it."""
    at = state.find(state.start)
    return state.extents[at] if at < len(state.extents) else None
