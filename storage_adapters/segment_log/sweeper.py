"""Removal of data: truncations, deletions, and removal of obsolete segments.

A segment's file is removed when no partition needs it, even if older segments remain. What it
alone records (bounds of partitions without newer data, deletions that older segments do not
record) is written to the active segment first, and is durable before the file is removed. The
remaining segments are the settler's, which works in the same task, so that each sees the other's
results.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from gateway.errors import StorageUnavailable, as_value
from gateway.storage import OnDone
from storage_adapters.background_tasks import stop_task
from storage_adapters.formats.bodies import (
    Introduction,
    encode_bounds,
    encode_deletion,
    encode_introduction,
)
from storage_adapters.formats.entry import KIND_BOUNDS, KIND_DELETE
from storage_adapters.formats.footer import Footer, Part
from storage_adapters.segment_log.appender import Appender, UnlistedPartition
from storage_adapters.segment_log.catalog import Catalog
from storage_adapters.segment_log.files import Files
from storage_adapters.segment_log.idle import IdleCloser
from storage_adapters.segment_log.metrics import SegmentLogMetrics
from storage_adapters.segment_log.segment_files import SegmentMaker
from storage_adapters.segment_log.segments import Segment
from storage_adapters.segment_log.settler import Settler

PARTS_PER_TICK: Final = 500


class Sweeper:
    """Background removal of segments, a bounded number of partitions per tick."""

    def __init__(  # noqa: PLR0913  # What a removal touches.
        self,
        *,
        catalog: Catalog,
        appender: Appender,
        maker: SegmentMaker,
        files: Files,
        executor: ThreadPoolExecutor,
        metrics: SegmentLogMetrics,
        on_error: Callable[[BaseException], None],
        settler: Settler,
        idle: IdleCloser,
    ) -> None:
        self._settler = settler
        self._idle = idle
        self._catalog = catalog
        self._appender = appender
        self._maker = maker
        self._files = files
        self._executor = executor
        self._metrics = metrics
        self._on_error = on_error
        self._wake = asyncio.Event()
        self._wake.set()  # The last stop may have been between a truncation and its removal.
        self._task = asyncio.get_running_loop().create_task(self._run())

    # Entries of the log.

    def truncate_before(self, partition_id: int, offset: int, on_done: OnDone) -> None:
        """See ``StorageAdapter.truncate_before``."""
        state = self._catalog.state(partition_id)
        start = min(offset, state.end)
        if state.is_deleted or start <= state.start:
            self._appender.append((), on_done, reserved=True)
            return
        unlisted = self._appender.unlisted((partition_id,))
        body = encode_bounds([(partition_id, start, state.end)])
        self._appender.append_internal(KIND_BOUNDS, body, unlisted, on_done)
        state.start = start
        assert state.part is not None
        state.part.start = start
        self._settler.touch(partition_id)
        self._wake.set()

    def delete(self, partition_ids: Sequence[int], on_done: OnDone) -> None:
        """See ``StorageAdapter.delete``."""
        body = encode_deletion(partition_ids)
        self._appender.append_internal(KIND_DELETE, body, [], on_done)
        for partition_id in partition_ids:
            self._note_deleted(partition_id)
            self._settler.touch(partition_id)
        self._wake.set()

    def _note_deleted(self, partition_id: int) -> None:
        state = self._catalog.state(partition_id)
        state.is_deleted = True
        self._appender.adopt(state, None).is_deleted = True
        self._catalog.forget(partition_id)

    # Removals.

    def wake(self) -> None:
        """Look for segments to remove, also after one was closed."""
        self._wake.set()

    async def stop(self) -> None:
        """End the background work; the rest is done after the next start."""
        self._idle.stop()
        await self._settler.stop()
        await stop_task(self._task)

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._idle.look()
            for segment in self._catalog.closed_segments():
                # On errors the file stays: without space for the records that must be kept, or
                # after a fault, nothing is removed. The next truncation tries again.
                with suppress(StorageUnavailable):
                    if await self._is_passed(segment):
                        await self._carry_forward(segment)
                        await self._remove(segment)
            await self._settler.run_due()

    async def _is_passed(self, segment: Segment) -> bool:
        """Return whether no partition needs the segment; continue at the last blocker."""
        if segment.blocker is not None and not self._has_passed(*segment.blocker):
            return False
        footer = self._catalog.footers.get(segment)
        while segment.swept < len(footer):
            part = footer.part(segment.swept)
            if part.row_count and not self._has_passed(part.partition_id, part.end):
                segment.blocker = (part.partition_id, part.end)
                return False
            segment.swept += 1
            if segment.swept % PARTS_PER_TICK == 0:
                await asyncio.sleep(0)
        return True

    def _has_passed(self, partition_id: int, end: int) -> bool:
        state = self._catalog.state(partition_id)
        return state.start >= end or state.is_deleted

    async def _carry_forward(self, segment: Segment) -> None:
        footer = self._catalog.footers.get(segment)
        for first in range(0, len(footer), PARTS_PER_TICK):
            last = min(first + PARTS_PER_TICK, len(footer))
            parts = [footer.part(index) for index in range(first, last)]
            parts = [part for part in parts if self._knows_best(segment, part)]
            deleted = [part.partition_id for part in parts if part.is_deleted]
            deleted = [i for i in deleted if self._is_in_older(segment, i)]
            if deleted:
                await self._append_deletion(deleted)
            kept = [part for part in parts if not part.is_deleted]
            if kept:
                await self._append_bounds(footer, kept)
            await asyncio.sleep(0)

    def _knows_best(self, segment: Segment, part: Part) -> bool:
        """Return whether no newer segment mentions the partition."""
        footers = self._catalog.footers
        for other in reversed(self._catalog.segments.values()):
            if other is segment:
                return True
            if footers.lookup(other, part.partition_id) is not None:
                return False
        return False

    def _is_in_older(self, segment: Segment, partition_id: int) -> bool:
        if self._catalog.settled.mentions(self._catalog.footers, partition_id):
            return True
        for other in self._catalog.closed_segments():
            if other is segment:
                return False
            if self._catalog.footers.lookup(other, partition_id) is not None:
                return True
        return False

    async def _append_bounds(self, footer: Footer, parts: list[Part]) -> None:
        rows, unlisted = [], []
        for part in parts:
            state = self._catalog.state(part.partition_id)
            known = footer.introduction(part)
            if known is None or state.is_deleted:  # It may have been deleted just now.
                continue
            introduction = encode_introduction(
                Introduction(known.identity, state.start, state.end)
            )
            unlisted.append(UnlistedPartition(state, known.identity, introduction))
            rows.append((part.partition_id, state.start, state.end))
        if not rows:
            return
        done = _Done()
        self._appender.append_internal(KIND_BOUNDS, encode_bounds(rows), unlisted, done.set)
        await done.wait()

    async def _append_deletion(self, partition_ids: list[int]) -> None:
        done = _Done()
        body = encode_deletion(partition_ids)
        self._appender.append_internal(KIND_DELETE, body, [], done.set)
        for partition_id in partition_ids:
            self._note_deleted(partition_id)
        await done.wait()

    async def _remove(self, segment: Segment) -> None:
        self._catalog.remove(segment)
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._executor, self._files.unlink, segment.path)
        except OSError as error:
            self._on_error(as_value(error))
            return
        self._metrics.segments_removed += 1
        self._maker.retry_soon()


class _Done:
    """Awaitable ``on_done`` callback."""

    def __init__(self) -> None:
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def set(self, error: StorageUnavailable | None) -> None:
        """Set the storage's result."""
        if self._future.done():
            return
        if error is None:
            self._future.set_result(None)
        else:
            self._future.set_exception(error)

    async def wait(self) -> None:
        """Wait until the append is done. Errors: ``StorageUnavailable``."""
        await self._future
