"""Thread that writes and syncs, and the groups that it is given.

The thread knows descriptors only. All groups queued by the time it is free become one write and
one sync, so that the disk never waits for the loop, and one sync serves all waiting appends.
"""

import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Final, NamedTuple

from gateway.errors import as_value
from gateway.model import Buffer
from gateway.storage import OnDone
from storage_adapters.segment_log.files import Files, write_all
from storage_adapters.segment_log.index import LivePart
from storage_adapters.segment_log.segments import Segment
from storage_adapters.segment_log.synced import MarkFile
from storage_adapters.segment_log.zeros import ZerosAhead

SYNC_BYTES_MAX: Final = 16_777_216
_NOTHING: Final = -1

Row = tuple[LivePart, int, int, int, int]  # part, base offset, timestamp, place, span


class Chunk:
    """Buffers to be written to one segment, in order from ``position`` on."""

    __slots__ = ("buffers", "position", "segment")

    def __init__(self, segment: Segment, position: int) -> None:
        self.segment = segment
        self.position = position
        self.buffers: list[Buffer] = []


class Group:
    """Appends of one tick of the loop, which are written, synced, published and answered together.

    Without callbacks it has no data either, and only syncs its segments.
    """

    __slots__ = ("callbacks", "chunks", "next_sequence", "rows", "size_bytes")

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.rows: list[Row] = []
        self.callbacks: list[OnDone] = []
        self.size_bytes = 0
        self.next_sequence = 0


class Job(NamedTuple):
    """A group, the descriptors of its chunks, and whether it is to be synced."""

    group: Group
    fds: list[int]
    sync: bool


class Done(NamedTuple):
    """Result of some jobs. ``sync_s``: the duration of each sync."""

    jobs: list[Job]
    sync_s: list[float]
    error: BaseException | None


def reached(jobs: Sequence[Job]) -> int:
    """Return the highest sequence that the syncs of jobs reach, -1 for none."""
    return max([job.group.next_sequence - 1 for job in jobs if job.sync], default=_NOTHING)


class WalThread:
    """Executor of jobs in order. ``tell`` is called in the thread, with the results.

    After an error no job is done any more: a system reports lost writes once, and a later sync
    can succeed in spite of them. ``zeros`` is used while there are jobs.
    """

    def __init__(
        self, files: Files, mark: MarkFile, zeros: ZerosAhead, tell: Callable[[Done], None]
    ) -> None:
        self._files = files
        self._mark = mark
        self._zeros = zeros
        self._tell = tell
        self._error: BaseException | None = None
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="headgate-wal", daemon=True)
        self._thread.start()

    def put(self, job: Job) -> None:
        """Queue a job."""
        self._jobs.put(job)

    def fail(self, error: BaseException) -> None:
        """Stop working: jobs are answered with ``error``, or with the first error."""
        self._error = self._error or error

    def stop(self) -> None:
        """End the thread after the queued jobs."""
        self._jobs.put(None)

    def join(self) -> None:
        """Wait for the end of the thread."""
        self._thread.join()

    def _run(self) -> None:
        goes_on = True
        while goes_on:
            jobs, goes_on = self._take()
            work = _Work(self._files, self._zeros)
            if self._error is None:
                self._do(work, jobs)
            try:
                self._tell(Done(jobs, work.sync_s, self._error))
            except (
                RuntimeError
            ):  # The loop was closed before the log: there is nothing to notify.
                return

    def _do(self, work: "_Work", jobs: Sequence[Job]) -> None:
        try:
            work.do(jobs)
            self._mark.note(reached(jobs))
        except BaseException as error:  # noqa: BLE001  # Every error stops the node.
            self.fail(as_value(error))

    def _take(self) -> tuple[list[Job], bool]:
        """Wait for a job; return all queued jobs, and False when the thread is to end."""
        jobs: list[Job] = []
        size_bytes = 0
        job = self._jobs.get()
        while job is not None:
            jobs.append(job)
            size_bytes += job.group.size_bytes
            if size_bytes >= SYNC_BYTES_MAX:
                return jobs, True
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return jobs, True
        return jobs, False


class _Work:
    """Work on some jobs: adjacent data in one write; a segment is synced before the next."""

    def __init__(self, files: Files, zeros: ZerosAhead) -> None:
        self._files = files
        self._zeros = zeros
        self.sync_s: list[float] = []
        self._segment: Segment | None = None
        self._fd = _NOTHING
        self._position = 0
        self._buffers: list[Buffer] = []
        self._unsynced = False

    def do(self, jobs: Sequence[Job]) -> None:
        """Do the jobs, including their syncs."""
        for group, fds, sync in jobs:
            for chunk, fd in zip(group.chunks, fds, strict=True):
                if chunk.segment.ready is not None:
                    chunk.segment.ready.result()
                if fd != self._fd:
                    self._flush()
                    self._fd, self._segment = fd, chunk.segment
                if not self._buffers:
                    self._position = chunk.position
                self._buffers += chunk.buffers
                self._unsynced = self._unsynced or sync
        self._flush()

    def _flush(self) -> None:
        if self._buffers:
            if self._unsynced:
                self._add_zeros()
            write_all(self._files, self._fd, self._buffers, self._position)
            self._buffers = []
        if self._unsynced:
            started = perf_counter()
            self._files.sync(self._fd)
            self.sync_s.append(perf_counter() - started)
            self._unsynced = False

    def _add_zeros(self) -> None:
        assert self._segment is not None
        size_bytes = sum(map(len, self._buffers))
        zeros = self._zeros.behind(self._segment, self._position, size_bytes)
        if zeros:
            self._buffers.append(zeros)
