"""A change of the settled segments: write new files, replace the manifest, remove the old files.

A crash before the manifest is renamed leaves unused new files, one after it unused old
files; the next start removes either.
"""

import asyncio
import errno
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple, TypeVar

from gateway.errors import as_value
from storage_adapters.formats.manifest import FileRecord, Manifest
from storage_adapters.segment_log.catalog import Catalog
from storage_adapters.segment_log.copying import Source
from storage_adapters.segment_log.failpoints import hit
from storage_adapters.segment_log.files import Files
from storage_adapters.segment_log.metrics import SegmentLogMetrics
from storage_adapters.segment_log.segments import Segment
from storage_adapters.segment_log.settled_files import (
    NotCommitted,
    commit_manifest,
    prepare_folder,
)
from storage_adapters.segment_log.settled_output import Output, OutputSpec
from storage_adapters.segment_log.settled_set import SettledSet, record_of
from storage_adapters.segment_log.writer import Writer

_Result = TypeVar("_Result")

# Errors of a full disk: the change is abandoned, and tried again later.
NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Change(NamedTuple):
    """Description of a change.

    ``inputs`` are read; ``goes`` are not used afterwards, log segments among them; ``dead``:
    partitions that are not used any more in a settled segment, by its number. ``make`` writes the
    new files in the thread and may return a new directory. ``barrier``: the log must be durable up
    to this sequence before the change takes effect, since the plan relies on it.
    """

    inputs: Sequence[Segment]
    goes: Sequence[Segment]
    dead: Mapping[int, frozenset[int]]
    make: Callable[[list[Source], Output], Segment | None]
    barrier: int


class Changer:
    """Executor of changes, one at a time."""

    def __init__(  # The parts that a change touches.
        self,
        *,
        catalog: Catalog,
        writer: Writer,
        files: Files,
        data_dir: Path,
        metrics: SegmentLogMetrics,
        on_freed: Callable[[], None],
    ) -> None:
        self._catalog = catalog
        self._writer = writer
        self._files = files
        self._data_dir = data_dir
        self._metrics = metrics
        self._on_freed = on_freed
        self._executor = ThreadPoolExecutor(1, "headgate-settle")

    async def run(self, change: Change, spec: OutputSpec) -> list[Segment]:
        """Execute a change; return the new segments, which are in use now.

        Errors: ``NotCommitted`` and those of ``change.make``, when nothing has changed;
        ``StorageUnavailable`` after a fault.
        """
        settled = self._catalog.settled
        output = Output(spec, settled.manifest.next_number)
        may_count = False
        try:
            directory = await self._make(change, output)
            await self._writer.reach(change.barrier)
            manifest, segments = _next_state(settled, change, output, directory)
            may_count = True
            await self._in_thread(
                lambda: commit_manifest(self._files, self._data_dir, manifest)
            )
        except NotCommitted:
            await self._discard(output)
            raise
        except BaseException as error:
            if not may_count:
                await self._discard(output)
            elif isinstance(error, OSError):
                self._writer.fail(
                    as_value(error)
                )  # It is unknown which manifest is on the disk.
            raise
        self._switch(change, manifest, segments)
        await self._in_thread(lambda: self._unlink(change.goes))
        self._metrics.settled_damaged += output.damaged_count
        self._on_freed()
        return output.made

    async def _make(self, change: Change, output: Output) -> Segment | None:
        catalog = self._catalog
        held: list[Segment] = []
        try:
            sources = []
            for segment in change.inputs:
                fd = catalog.handles.acquire(segment)
                held.append(segment)
                dead = frozenset() if segment.record is None else segment.record.dead
                sources.append(Source(segment, fd, catalog.footers.get(segment), dead))
            started = perf_counter()
            directory = await self._in_thread(lambda: self._write(change, sources, output))
            self._metrics.settled_ms += (perf_counter() - started) * 1_000
            self._metrics.settled_bytes += sum(segment.disk_bytes for segment in output.made)
            return directory
        finally:
            for segment in held:
                catalog.handles.release(segment)

    def _write(self, change: Change, sources: list[Source], output: Output) -> Segment | None:
        spec = output.spec
        prepare_folder(self._files, self._data_dir, Manifest(spec.data_uuid))
        directory = change.make(sources, output)
        output.finish()
        return directory

    def _switch(self, change: Change, manifest: Manifest, segments: Sequence[Segment]) -> None:
        for segment, record in zip(segments, manifest.files, strict=True):
            segment.record = record
        self._catalog.switch(SettledSet(manifest, segments), change.goes)
        hit("settle.switched")

    def _unlink(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            self._files.unlink(segment.path)
            hit("settle.unlinked")
        hit("settle.done")

    async def _discard(self, output: Output) -> None:
        with suppress(OSError):  # A file that stays is unused; the next start removes it.
            await self._in_thread(output.discard)

    async def _in_thread(self, work: Callable[[], _Result]) -> _Result:
        """Run ``work`` in the thread. A cancelled caller waits: the thread uses what it holds."""
        doing = asyncio.get_running_loop().run_in_executor(self._executor, work)
        try:
            return await asyncio.shield(doing)
        except asyncio.CancelledError:
            await asyncio.wait([doing])
            if not doing.cancelled():
                doing.exception()
            raise

    def stop(self) -> None:
        """End the thread. Blocks; no change may be under way."""
        self._executor.shutdown(wait=True)


def _next_state(
    settled: SettledSet, change: Change, output: Output, directory: Segment | None
) -> tuple[Manifest, list[Segment]]:
    """Return the next manifest and its segments in the same order, which is that of age."""
    old = settled.manifest
    gone = {segment.number for segment in change.goes if segment.record is not None}
    made = [*output.made, *([] if directory is None else [directory])]
    segments: list[Segment] = []
    records: list[FileRecord] = []

    def add(new: Sequence[Segment]) -> None:
        for segment in new:
            segments.append(segment)
            record = record_of(segment)
            dead = record.dead | change.dead.get(segment.number, frozenset())
            records.append(record._replace(dead=dead))

    for segment in settled.segments.values():
        if segment.number not in gone:
            add([segment])
        elif made and segment.number != old.directory:
            add(made)  # In the place of the first removed one.
            made = []
    add(made)
    manifest = old._replace(
        data_uuid=output.spec.data_uuid,
        generation=old.generation + 1,
        directory=old.directory if directory is None else directory.number,
        next_number=output.next_number,
        files=tuple(records),
    )
    wal = [segment for segment in change.goes if segment.record is None]
    if not wal:
        return manifest, segments
    last = wal[-1]
    return manifest._replace(
        next_sequence=last.next_sequence,
        wal_upto=last.number,
        incarnation=max(old.incarnation, last.header.incarnation),
    ), segments


def is_no_space(error: BaseException) -> bool:
    """Return whether a change failed for lack of space only."""
    if isinstance(error, NotCommitted):
        error = error.__cause__ or error
    return isinstance(error, OSError) and error.errno in NO_SPACE
