"""Groups of appends on their way to the disk, and the one thread that waits for it.

What is enqueued within a tick of the loop forms a group. ``group``: the thread writes and syncs
it, then the next one, which has grown meanwhile, is handed over; so one sync serves all who
wait. ``never`` and ``interval``: the loop itself writes (a page-cache write costs less than
waking a thread), but for large groups. The thread knows descriptors only; everything else
happens here, on the loop's thread.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from time import perf_counter
from typing import Final

from gateway.errors import StorageUnavailable
from gateway.model import Octets
from gateway.storage import OnDone
from storage_adapters.segment_log.config import SegmentLogConfig
from storage_adapters.segment_log.files import Files, write_all
from storage_adapters.segment_log.index import LivePart
from storage_adapters.segment_log.metrics import SegmentLogMetrics
from storage_adapters.segment_log.segments import Handles, Segment

LOOP_WRITE_BYTES_MAX: Final = 262_144

Row = tuple[LivePart, int, int, int, int]  # part, base offset, timestamp, place, span


class Chunk:
    """Octets that go to one segment, one after the other from ``position`` on."""

    __slots__ = ("buffers", "position", "segment")

    def __init__(self, segment: Segment, position: int) -> None:
        self.segment = segment
        self.position = position
        self.buffers: list[Octets] = []


class Group:
    """Appends that are written, synced, published and answered together."""

    __slots__ = ("callbacks", "chunks", "next_sequence", "rows", "size_bytes", "sync_ms")

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.rows: list[Row] = []
        self.callbacks: list[OnDone] = []
        self.size_bytes = 0
        self.next_sequence = 0
        self.sync_ms: list[float] = []


Job = tuple[Group, list[int], bool]  # what to write, descriptors to write and sync, whether to


def _is_ready(segment: Segment) -> bool:
    if segment.ready is None:
        return True
    return segment.ready.done() and segment.ready.exception() is None


class Writer:
    """The open group, the one in flight, and the thread.

    ``written_sequence`` and ``durable_sequence`` are the highest written and synced.
    ``on_group`` runs after a group was published; ``on_fault`` once, at the first error of the
    disk.
    """

    def __init__(  # noqa: PLR0913  # What a thread between a loop and a disk has to know.
        self,
        *,
        files: Files,
        config: SegmentLogConfig,
        handles: Handles,
        metrics: SegmentLogMetrics,
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
        self._in_flight: Group | None = None
        self._scheduled = False
        self._is_syncing = False
        self._unsynced: dict[Segment, None] = {}
        self._progress = asyncio.Event()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._timer: asyncio.TimerHandle | None = None
        self._thread = threading.Thread(target=self._run, name="headgate-wal", daemon=True)
        self._thread.start()
        if config.flush == "interval":
            self._timer = self._loop.call_later(self._interval_s, self._sync_interval)

    def schedule(self) -> None:
        """Write the open group when this tick of the loop ends, or the group in flight does."""
        if not self._scheduled and self._in_flight is None:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        group = self.open_group
        if self._in_flight is not None or self.fault is not None or not group.callbacks:
            return
        self.open_group = Group()
        if self._syncs_groups or not self._fits_loop(group):
            self._in_flight = group
            self._hand_over(group, sync=self._syncs_groups)
            return
        try:
            for chunk in group.chunks:
                write_all(self._files, chunk.segment.fd, chunk.buffers, chunk.position)
        except OSError as error:
            self._in_flight = group
            self.fail(error)
            return
        self._finish(group)

    def _fits_loop(self, group: Group) -> bool:
        return group.size_bytes <= LOOP_WRITE_BYTES_MAX and all(
            _is_ready(chunk.segment) for chunk in group.chunks
        )

    def _hand_over(self, group: Group, *, sync: bool) -> None:
        fds = [self._handles.acquire(chunk.segment) for chunk in group.chunks]
        self._jobs.put((group, fds, sync))

    # The thread.

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            error: BaseException | None = None
            try:
                self._write_job(*job)
            except BaseException as caught:  # noqa: BLE001  # Every error stops the node.
                error = caught
            try:
                self._loop.call_soon_threadsafe(self._on_job_done, job[0], error)
            except RuntimeError:  # The loop was closed without the log: nobody is left to tell.
                return

    def _write_job(self, group: Group, fds: list[int], sync: bool) -> None:  # noqa: FBT001
        synced = -1
        for chunk, fd in zip(group.chunks, fds, strict=True):
            if chunk.segment.ready is not None:
                chunk.segment.ready.result()
            if sync and synced not in {-1, fd}:
                self._sync(group, synced)  # A segment is whole before the next one begins.
            write_all(self._files, fd, chunk.buffers, chunk.position)
            synced = fd
        if sync and synced != -1:
            self._sync(group, synced)

    def _sync(self, group: Group, fd: int) -> None:
        started = perf_counter()
        self._files.sync(fd)
        group.sync_ms.append((perf_counter() - started) * 1_000)

    # Back on the loop.

    def _on_job_done(self, group: Group, error: BaseException | None) -> None:
        for chunk in group.chunks:
            self._handles.release(chunk.segment)
            if error is None:
                chunk.segment.ready = None
        if error is not None:
            self.fail(error)
            return
        for sync_ms in group.sync_ms:
            self._metrics.syncs += 1
            self._metrics.sync_ms.add(sync_ms)
        if group.sync_ms:
            self.durable_sequence = max(self.durable_sequence, group.next_sequence - 1)
        if not group.callbacks:
            self._is_syncing = False
            self._progress.set()
            return
        self._in_flight = None
        if self._syncs_groups and self.open_group.callbacks:
            self._flush()  # First of all: the disk must not wait for our callbacks.
        self._finish(group)

    def _finish(self, group: Group) -> None:
        """Publish a written group to readers, then answer who waits."""
        for part, base_offset, timestamp_unix_ms, place, span in group.rows:
            part.add(base_offset, timestamp_unix_ms, place, span)
        if group.next_sequence:
            self.written_sequence = group.next_sequence - 1
        self.queued_bytes -= group.size_bytes
        metrics = self._metrics
        metrics.groups += 1
        metrics.groups_bytes.add(group.size_bytes)
        metrics.written_bytes += group.size_bytes
        if not self._syncs_groups:
            for chunk in group.chunks:
                self._unsynced[chunk.segment] = None
        self._on_group()
        self._tell(iter(group.callbacks), None)
        self._go_on()

    def _tell(self, callbacks: Iterator[OnDone], error: StorageUnavailable | None) -> None:
        try:
            for on_done in callbacks:
                on_done(error)
        except BaseException:
            # One callback's bug must not leave the others without an answer.
            self._loop.call_soon(self._tell, callbacks, error)
            raise

    def _go_on(self) -> None:
        self._progress.set()
        if self._in_flight is None and self.open_group.callbacks:
            self.schedule()

    # Syncs that nobody waits for.

    def _sync_interval(self) -> None:
        self._timer = self._loop.call_later(self._interval_s, self._sync_interval)
        if self._unsynced and not self._is_syncing and self.fault is None:
            self._sync_written()

    def _sync_written(self) -> None:
        """Hand over a group without octets that syncs what was written since the last sync."""
        self._is_syncing = True
        group = Group()
        group.chunks = [Chunk(segment, 0) for segment in self._unsynced]
        group.next_sequence = self.written_sequence + 1
        self._unsynced.clear()
        self._hand_over(group, sync=True)

    def note_closed(self, segment: Segment) -> None:
        """A closed segment was synced by who wrote its footer."""
        self._unsynced.pop(segment, None)
        self.durable_sequence = max(self.durable_sequence, segment.next_sequence - 1)

    # The end.

    def fail(self, error: BaseException) -> None:
        """Stop for good: nothing that waits is acknowledged, nothing more is taken."""
        if self.fault is not None:
            return
        self.fault = StorageUnavailable(f"the log cannot be written: {error}")
        self.fault.__cause__ = error
        self._on_fault(error)
        waiting = [] if self._in_flight is None else self._in_flight.callbacks
        waiting = [*waiting, *self.open_group.callbacks]
        self.open_group = Group()
        self._in_flight = None
        self.queued_bytes = 0
        self._progress.set()
        self._tell(iter(waiting), self.fault)

    async def drain(self) -> None:
        """Return when all that was enqueued is written, and synced where the policy says so."""
        while self.fault is None and (self._in_flight is not None or self.open_group.callbacks):
            self._progress.clear()
            await self._progress.wait()

    async def sync(self) -> None:
        """Return when all that is written is synced, whatever the policy."""
        while self.fault is None and (self._is_syncing or self._unsynced):
            if not self._is_syncing:
                self._sync_written()
            self._progress.clear()
            await self._progress.wait()

    async def stop(self) -> None:
        """End the thread. Nothing may be enqueued any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._jobs.put(None)
        await self._loop.run_in_executor(None, self._thread.join)
