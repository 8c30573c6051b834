"""Writing of groups of appends, seen from the loop.

Appends enqueued within a tick of the loop form a group. ``group``: a ring or the thread (see
``wal_ring``) writes and syncs it. ``never`` and ``interval``: the loop itself writes (a page-cache
write costs less than waking a thread), except for large groups, and for groups that come while
the thread has one. Everything here is on the loop's thread: the index, the acknowledgements and
the durable sequence.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final

from gateway.errors import StorageUnavailable, as_value
from gateway.storage import OnDone
from storage_adapters.segment_log.config import SegmentLogConfig
from storage_adapters.segment_log.files import Files, write_all
from storage_adapters.segment_log.io_uring import IoUring
from storage_adapters.segment_log.metrics import SegmentLogMetrics
from storage_adapters.segment_log.segments import Handles, Segment
from storage_adapters.segment_log.synced import MarkFile
from storage_adapters.segment_log.wal_ring import WalRing
from storage_adapters.segment_log.wal_thread import Chunk, Done, Group, Job, WalThread
from storage_adapters.segment_log.zeros import ZerosAhead

LOOP_WRITE_BYTES_MAX: Final = 262_144


class Writer:
    """Writer of the open group and the groups under way.

    ``written_sequence`` and ``durable_sequence`` are the highest written and synced.
    ``on_group`` runs after a group was published; ``on_fault`` once, at the first error of the
    disk. ``ring``: None when it is unavailable or switched off.
    """

    def __init__(  # noqa: PLR0913  # What a thread between a loop and a disk has to know.
        self,
        *,
        files: Files,
        config: SegmentLogConfig,
        handles: Handles,
        metrics: SegmentLogMetrics,
        mark: MarkFile,
        ring: IoUring | None,
        durable_sequence: int,
        on_group: Callable[[], None],
        on_fault: Callable[[BaseException], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._files = files
        self._syncs_groups = config.flush == "group"
        self._interval_s = config.flush_interval_ms / 1_000
        self._handles = handles
        self._metrics = metrics
        self._on_group = on_group
        self._on_fault = on_fault
        self.written_sequence = self.durable_sequence = durable_sequence
        self.queued_bytes = 0
        self.open_group = Group()
        self.fault: StorageUnavailable | None = None
        self._handed: deque[Group] = deque()
        self._scheduled = False
        self._is_telling = False
        self._is_syncing = False
        self._unsynced: dict[Segment, None] = {}
        self._progress = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        metrics.has_ring = ring is not None
        self._hands: WalRing | WalThread
        if ring is None:
            self._hands = WalThread(files, mark, ZerosAhead(), self._tell_loop)
        else:
            self._hands = WalRing(ring, files, mark, self._on_done)
        if config.flush == "interval":
            self._timer = self._loop.call_later(self._interval_s, self._sync_interval)

    def schedule(self) -> None:
        """Schedule the write of the open group for the end of this tick of the loop.

        Or write now: the first append made while the last group's callbacks run has waited for that
        group, and running all callbacks may take as long as the disk takes for the next one.
        """
        if self._is_telling and self._syncs_groups and not self._handed:
            self._flush()
        elif not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        group = self.open_group
        if self.fault is not None or not group.callbacks:
            return
        self.open_group = Group()
        if self._syncs_groups or self._handed or not self._fits_loop(group):
            self._handed.append(group)
            self._hand_over(group, sync=self._syncs_groups)
            return
        try:
            for chunk in group.chunks:
                write_all(self._files, chunk.segment.fd, chunk.buffers, chunk.position)
        except OSError as error:
            self._handed.append(group)
            self.fail(as_value(error))
            return
        self._publish(group)
        self._progress.set()
        self._tell(iter(group.callbacks), None)

    def _fits_loop(self, group: Group) -> bool:
        return group.size_bytes <= LOOP_WRITE_BYTES_MAX and all(
            chunk.segment.is_ready for chunk in group.chunks
        )

    def _hand_over(self, group: Group, *, sync: bool) -> None:
        fds = [self._handles.acquire(chunk.segment) for chunk in group.chunks]
        self._hands.put(Job(group, fds, sync))

    def _tell_loop(self, done: Done) -> None:
        """Pass finished jobs to the loop. In the thread."""
        self._loop.call_soon_threadsafe(self._on_done, done)

    def _on_done(self, done: Done) -> None:
        for group, _, _ in done.jobs:
            for chunk in group.chunks:
                self._handles.release(chunk.segment)
                if done.error is None:
                    chunk.segment.ready = None
        if done.error is not None:
            self.fail(done.error)
        if self.fault is not None:
            return
        for sync_s in done.sync_s:
            self._metrics.syncs += 1
            self._metrics.sync_s.observe(sync_s)
        for group, _, sync in done.jobs:
            if sync:
                self.durable_sequence = max(self.durable_sequence, group.next_sequence - 1)
            if group.callbacks:
                handed = self._handed.popleft()
                assert handed is group, "groups are done in order"
                self._publish(handed)
            else:
                self._is_syncing = False
        self._progress.set()
        self._tell(chain.from_iterable([group.callbacks for group, _, _ in done.jobs]), None)

    def _publish(self, group: Group) -> None:
        """Publish a written group to readers, then run its callbacks."""
        for part, base_offset, timestamp_unix_ms, place, span in group.rows:
            part.add(base_offset, timestamp_unix_ms, place, span)
        if group.next_sequence:
            self.written_sequence = group.next_sequence - 1
        self.queued_bytes -= group.size_bytes
        metrics = self._metrics
        metrics.groups += 1
        metrics.groups_bytes.observe(group.size_bytes)
        metrics.written_bytes += group.size_bytes
        if not self._syncs_groups:
            for chunk in group.chunks:
                self._unsynced[chunk.segment] = None
        self._on_group()

    def _tell(self, callbacks: Iterator[OnDone], error: StorageUnavailable | None) -> None:
        self._is_telling = True
        try:
            for on_done in callbacks:
                on_done(error)
        except BaseException:
            # A bug in one callback must not leave the others without an answer.
            self._loop.call_soon(self._tell, callbacks, error)
            raise
        finally:
            self._is_telling = False

    # Syncs without waiting callers.

    def _sync_interval(self) -> None:
        self._timer = self._loop.call_later(self._interval_s, self._sync_interval)
        if self._unsynced and not self._is_syncing and self.fault is None:
            self._sync_written()

    def _sync_written(self) -> None:
        """Queue a group without data that syncs what was written since the last sync."""
        self._is_syncing = True
        group = Group()
        group.chunks = [Chunk(segment, 0) for segment in self._unsynced]
        group.next_sequence = self.written_sequence + 1
        self._unsynced.clear()
        self._hand_over(group, sync=True)

    def note_closed(self, segment: Segment) -> None:
        """Note that a closed segment was synced when its footer was written."""
        self._unsynced.pop(segment, None)
        self.durable_sequence = max(self.durable_sequence, segment.next_sequence - 1)
        self._progress.set()

    # Stopping.

    def fail(self, error: BaseException) -> None:
        """Stop for good: waiting appends fail, and no more are accepted.

        They are answered in the next tick of the loop, since an append may call this, and no
        callback runs within an append.
        """
        if self.fault is not None:
            return
        self.fault = StorageUnavailable(f"the log cannot be written: {error}")
        self.fault.__cause__ = error
        self._hands.fail(error)
        self._on_fault(error)
        groups = [*self._handed, self.open_group]
        waiting = [on_done for group in groups for on_done in group.callbacks]
        self.open_group = Group()
        self._handed.clear()
        self.queued_bytes = 0
        self._progress.set()
        self._loop.call_soon(self._tell, iter(waiting), self.fault)

    async def drain(self) -> None:
        """Wait until all enqueued appends are written, and synced where the policy requires it."""
        while self.fault is None and (self._handed or self.open_group.callbacks):
            self._progress.clear()
            await self._progress.wait()

    async def sync(self) -> None:
        """Sync all that is written, whatever the policy."""
        while self.fault is None and (self._is_syncing or self._unsynced):
            if not self._is_syncing:
                self._sync_written()
            self._progress.clear()
            await self._progress.wait()

    async def reach(self, sequence: int) -> None:
        """Wait until all up to ``sequence`` is synced, whatever the policy.

        Errors: ``StorageUnavailable`` after a fault.
        """
        while self.fault is None and self.durable_sequence < sequence:
            if self._unsynced and not self._is_syncing:
                self._sync_written()
            self._progress.clear()
            await self._progress.wait()
        if self.fault is not None:
            raise self.fault

    async def stop(self) -> None:
        """End the thread. No more appends may be enqueued."""
        if self._timer is not None:
            self._timer.cancel()
        self._hands.stop()
        await self._loop.run_in_executor(None, self._hands.join)
