"""Writes and syncs of small groups by io_uring, submitted by the loop without a thread.

A thread in between has to be woken, needs the interpreter's lock before it can begin, and again
when it is done; while the loop answers a hundred clients that takes as long as the disk does.
Jobs that do not suit the ring go to the thread, and so do all later ones until the thread is
idle: large groups, several segments, a segment that is still being made.
docs/adr/0013-syncs-by-io-uring.md has the measurements.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Final

from gateway.errors import as_value
from storage_adapters.segment_log.files import Files
from storage_adapters.segment_log.io_uring import IoUring, sync, write
from storage_adapters.segment_log.synced import MarkFile
from storage_adapters.segment_log.wal_thread import Done, Job, WalThread, reached
from storage_adapters.segment_log.zeros import ZerosAhead

RING_BYTES_MAX: Final = 262_144


class WalRing:
    """Executor of jobs in order, like ``WalThread``. Loop only; ``on_done`` is called there."""

    def __init__(
        self, ring: IoUring, files: Files, mark: MarkFile, on_done: Callable[[Done], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._ring = ring
        self._mark = mark
        self._on_done = on_done
        self._zeros = ZerosAhead()
        self._thread = WalThread(files, mark, self._zeros, self._tell_loop)
        self._threads_jobs = 0
        self._flying: list[Job] = []
        self._waiting: list[Job] = []
        self._written_bytes: list[int] = []  # of the chain's writes
        self._begun_s = 0.0
        self._error: BaseException | None = None
        self._loop.add_reader(ring.fd, self._take_results)

    def put(self, job: Job) -> None:
        """Queue a job."""
        if self._error is not None:
            self._refuse([job], self._error)
        elif self._threads_jobs:
            self._hand_over([job])
        elif self._flying:
            self._waiting.append(job)
        else:
            self._begin([job])

    def fail(self, error: BaseException) -> None:
        """Begin no more jobs: see ``WalThread``."""
        if self._error is None:
            self._error = error
            self._thread.fail(error)

    def stop(self) -> None:
        """Stop after the jobs under way; after a fault, wait for the submitted chain."""
        self._loop.remove_reader(self._ring.fd)
        self._ring.wait()
        self._take_results()
        self._ring.close()
        self._thread.stop()

    def join(self) -> None:
        """Wait for the thread's end."""
        self._thread.join()

    def _begin(self, jobs: list[Job]) -> None:
        try:
            is_begun = _suits(jobs) and self._submit(jobs)
        except BaseException as error:  # noqa: BLE001  # Every error stops the node.
            self.fail(as_value(error))
            self._refuse(jobs, as_value(error))
            return
        if not is_begun:
            self._hand_over(jobs)

    def _refuse(self, jobs: list[Job], error: BaseException) -> None:
        """Report refused jobs, in a later tick than the ``put`` that queued them."""
        self._loop.call_soon(self._on_done, Done(jobs, [], error))

    def _submit(self, jobs: list[Job]) -> bool:
        fd = jobs[0].fds[0]
        first = jobs[0].group.chunks[0]
        buffers = [part for job in jobs for chunk in job.group.chunks for part in chunk.buffers]
        data = bytearray().join(buffers)
        writes = [write(fd, data, first.position)]
        chain = [sync(fd)]
        if self._mark.is_open:
            chain.append(write(self._mark.fd, bytearray(self._mark.data(reached(jobs))), 0))
        zeros = self._zeros.behind(first.segment, first.position, len(data))
        if zeros:
            writes.append(write(fd, zeros, first.position + len(data)))
        self._written_bytes = [step.size_bytes for step in writes]
        self._begun_s = perf_counter()
        if not self._ring.begin(writes + chain):
            self._zeros.forget()
            return False
        self._flying = jobs
        return True

    def _take_results(self) -> None:
        results = self._ring.results()
        if results is None or not self._flying:
            return
        jobs, self._flying = self._flying, []
        writes = len(self._written_bytes)
        if self._error is None and results[:writes] != self._written_bytes:
            # Nothing was synced, either: the thread writes all of it, or reports the error.
            self._zeros.forget()
            self._hand_over(jobs + self._take_waiting())
            return
        if results[writes] < 0:
            self.fail(OSError(-results[writes], os.strerror(-results[writes])))
        if self._error is not None:
            self._on_done(Done(jobs + self._take_waiting(), [], self._error))
            return
        took_s = perf_counter() - self._begun_s
        if any(result < 0 for result in results[writes + 1 :]):
            self._mark.close()
        if self._waiting:
            self._begin(self._take_waiting())
        self._on_done(Done(jobs, [took_s], None))

    def _take_waiting(self) -> list[Job]:
        waiting, self._waiting = self._waiting, []
        return waiting

    # Work of the thread.

    def _hand_over(self, jobs: Sequence[Job]) -> None:
        self._threads_jobs += len(jobs)
        for job in jobs:
            self._thread.put(job)

    def _tell_loop(self, done: Done) -> None:
        """Pass finished jobs to the loop. In the thread."""
        self._loop.call_soon_threadsafe(self._on_thread_done, done)

    def _on_thread_done(self, done: Done) -> None:
        self._threads_jobs -= len(done.jobs)
        if done.error is not None:
            self.fail(done.error)
        self._on_done(done)


def _suits(jobs: Sequence[Job]) -> bool:
    """Return whether jobs are one write of moderate size into a ready segment, and a sync."""
    sizes_bytes = [job.group.size_bytes for job in jobs]
    if not all(sizes_bytes) or sum(sizes_bytes) > RING_BYTES_MAX:
        return False
    segments = {chunk.segment for job in jobs for chunk in job.group.chunks}
    return len(segments) == 1 and segments.pop().is_ready and all(job.sync for job in jobs)


def new_ring() -> IoUring | None:
    """Return a ring, or None where the system's version, rules or processor do not allow one."""
    try:
        return IoUring()
    except OSError:
        return None
