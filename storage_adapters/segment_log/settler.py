"""What goes on behind a long life: closed log segments become settled ones, by partition.

A round takes the oldest closed segments, whose batches nobody will scan any more, copies what
is alive of each partition in one piece, and lets the log segments go. Settled segments that are
passed go; shared ones are copied when more than half is dead; small ones are merged.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import structlog

from gateway.clock import Clock
from gateway.errors import StorageUnavailable
from gateway.storage import Drops, Keep, Rewritten
from storage_adapters.formats.footer import Footer, Part
from storage_adapters.formats.manifest import SHARED
from storage_adapters.segment_log.catalog import Catalog
from storage_adapters.segment_log.config import SegmentLogConfig
from storage_adapters.segment_log.copying import (
    DELETED,
    Rewrite,
    Source,
    copy_all,
    copy_rewritten,
    directory_rows,
)
from storage_adapters.segment_log.merging import MergeLimits, run_to_merge
from storage_adapters.segment_log.metrics import SegmentLogMetrics
from storage_adapters.segment_log.passing import Passed
from storage_adapters.segment_log.segments import Segment
from storage_adapters.segment_log.settled_change import Change, Changer, is_no_space
from storage_adapters.segment_log.settled_files import NotCommitted
from storage_adapters.segment_log.settled_output import (
    ROWS_MAX,
    Output,
    OutputSpec,
    Pace,
    Stopped,
)
from storage_adapters.segment_log.settled_set import record_of

PARTS_PER_TICK: Final = 500
RETRY_S: Final = 5.0
SMALL_FILES_MAX: Final = 64  # of one partition each, before they are merged into a shared one
REWRITES_PER_ROUND: Final = 8  # what is rewritten at once, as a share of a round
SHARED_FILES_MIN: Final = 8  # alike in size, before they are merged

log = structlog.get_logger()


class Settler:
    """Decides what changes next. ``wake`` asks for ``run_due`` to be called."""

    def __init__(  # noqa: PLR0913  # What it decides by, and what it works with.
        self,
        *,
        config: SegmentLogConfig,
        catalog: Catalog,
        changer: Changer,
        clock: Clock,
        metrics: SegmentLogMetrics,
        spec: OutputSpec,
        last_sequence: Callable[[], int],
        wake: Callable[[], None],
    ) -> None:
        self._config = config
        self._catalog = catalog
        self._changer = changer
        self._clock = clock
        self._metrics = metrics
        self._spec = spec
        self._last_sequence = last_sequence
        self._wake = wake
        self._lock = asyncio.Lock()
        self._passed = Passed(catalog)
        self._floor = 0  # nobody scans from before this sequence
        self._oldest: Segment | None = None  # the first log segment that waits, and since when
        self._oldest_since_ms = 0
        self._timer: asyncio.TimerHandle | None = None
        self._to_merge: set[int] = set()
        self._merged_count = 0  # settled segments above which shared ones are merged
        self._is_loaded = False
        self.is_halted = False

    @property
    def pace(self) -> Pace:
        """What bounds the copying."""
        return self._spec.pace

    # What it is told.

    def release_scans_before(self, sequence: int) -> None:
        """See ``StorageAdapter.release_scans_before``."""
        # What makes it true is on the disk before a change counts that relies on it.
        self._floor = max(self._floor, sequence)
        self._wake()

    def touch(self, partition_id: int) -> None:
        """A partition has lost something: there may be files to remove."""
        self._passed.touch(partition_id)

    async def stop(self) -> None:
        """End what is under way; nothing begins any more."""
        self.is_halted = True
        self.pace.stop.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        async with self._lock:
            pass

    # What it does.

    async def run_due(self) -> None:
        """Do all that is due. What fails is tried again, or given up with a word."""
        if self.is_halted:
            return
        try:
            async with self._lock:
                await self._run_due()
        except Stopped:
            pass
        except (NotCommitted, OSError, StorageUnavailable) as error:
            if is_no_space(error):
                self._call_again(RETRY_S)
            elif not self.is_halted:
                self.is_halted = True
                log.exception("settling has stopped; the log grows")
        except Exception:  # A mistake of ours must not end the removal of segments too.
            self.is_halted = True
            log.exception("settling has stopped; the log grows")

    async def _run_due(self) -> None:
        if not self._is_loaded:
            self._is_loaded = True
            await self._passed.load()
            self._to_merge.update(self._catalog.settled.owners())
        await self._drop_passed()
        while not self.is_halted and (segments := self._due_segments()):
            await self._settle(segments)
            await self._drop_passed()
        await self._merge_all()

    def _due_segments(self) -> list[Segment]:
        """Return the log segments of the next round, none when it can wait."""
        config = self._config
        found: list[Segment] = []
        waiting_bytes = 0
        for segment in self._catalog.closed_segments():
            if segment.next_sequence > self._floor:
                break
            waiting_bytes += segment.entries_end
            if not found or waiting_bytes <= config.settle_round_bytes:
                found.append(segment)
        self.pace.factor = max(1.0, waiting_bytes / config.settle_round_bytes)
        if not found or waiting_bytes >= config.settle_after_bytes:
            return found
        now_ms = self._clock.monotonic_ms()
        if found[0] is not self._oldest:
            self._oldest, self._oldest_since_ms = found[0], now_ms
        waited_ms = now_ms - self._oldest_since_ms
        if waited_ms >= config.settle_after_ms:
            return found
        self._call_again((config.settle_after_ms - waited_ms) / 1_000)
        return []

    def _call_again(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._wake)

    # Rounds.

    async def _settle(self, segments: Sequence[Segment]) -> None:
        settled = self._catalog.settled
        footers = [self._catalog.footers.get(segment) for segment in segments]
        deleted = await self._deleted_in(footers)
        dead: dict[int, frozenset[int]] = {}
        goes: list[Segment] = list(segments)
        for partition_id in deleted:
            goes += settled.owned(partition_id)
        for shared in settled.shared:
            footer = self._catalog.footers.get(shared)
            found = frozenset(i for i in deleted if footer.find(i) is not None)
            if found:
                dead[shared.number] = found
        old = [] if settled.directory is None else [settled.directory]
        goes = old + goes

        def make(sources: list[Source], output: Output) -> Segment:
            count = len(old)
            copy_all(sources[count:], floors, output)
            rows = directory_rows(sources[0] if count else None, sources[count:])
            return output.write_directory(rows)

        floors = await self._floors_of(footers)
        await self._change([*old, *segments], goes, make, dead)
        self._metrics.settled_rounds += 1

    async def _deleted_in(self, footers: Sequence[Footer]) -> set[int]:
        """Return the partitions whose deletion no log segment will tell any more."""
        deleted = set()
        for footer in footers:
            for index in range(len(footer)):
                part = footer.part(index)
                if part.is_deleted:
                    deleted.add(part.partition_id)
                if index % PARTS_PER_TICK == 0:
                    await asyncio.sleep(0)
        return deleted

    async def _floors_of(self, footers: Iterable[Footer]) -> dict[int, int]:
        """Return the log start offset of each partition that has lost something."""
        floors: dict[int, int] = {}
        for footer in footers:
            for index in range(len(footer)):
                partition_id = footer.part(index).partition_id
                start, is_deleted = self._catalog.peek(partition_id)
                if is_deleted or start:
                    floors[partition_id] = DELETED if is_deleted else start
                if index % PARTS_PER_TICK == 0:
                    await asyncio.sleep(0)
        return floors

    async def _change(
        self,
        inputs: Sequence[Segment],
        goes: Sequence[Segment],
        make: Callable[[list[Source], Output], Segment | None],
        dead: dict[int, frozenset[int]] | None = None,
    ) -> list[Segment]:
        spec = self._spec._replace(created_unix_ms=self._clock.unix_ms())
        change = Change(inputs, goes, dead or {}, make, self._last_sequence())
        made = await self._changer.run(change, spec)
        self._passed.note(goes, dead or {})
        self._to_merge.update(owner for s in made if (owner := record_of(s).owner) != SHARED)
        return made

    # What is dead.

    async def _drop_passed(self) -> None:
        passed, half_dead = await self._passed.find()
        if passed:
            await self._change([], passed, lambda _sources, _output: None)
        for segment in half_dead:
            await self._copy([segment])

    async def _copy(self, segments: Sequence[Segment]) -> bool:
        """Put new segments in the place of ``segments``, with what is alive of them.

        False when there are not fewer of them than before.
        """
        floors = await self._floors_of([self._catalog.footers.get(s) for s in segments])

        def make(sources: list[Source], output: Output) -> None:
            copy_all(sources, floors, output)

        return len(await self._change(segments, segments, make)) < len(segments)

    # Merging.

    async def _merge_all(self) -> None:
        while self._to_merge and not self.is_halted:
            run = self._owned_run(self._to_merge.pop())
            if run:
                await self._copy(run)
            await asyncio.sleep(0)
        settled = self._catalog.settled
        while not self.is_halted and len(settled.segments) > self._merged_count:
            run = self._shared_run()
            if not run:
                return
            if not await self._copy(run):
                # Their partitions have segments of their own in between. Not again soon.
                self._merged_count = 2 * len(self._catalog.settled.segments)
            settled = self._catalog.settled

    @property
    def _limits(self) -> MergeLimits:
        return MergeLimits(self._config.settled_bytes_max, ROWS_MAX)

    def _owned_run(self, partition_id: int) -> list[Segment]:
        """Return neighbours of a partition's own segments that are worth merging."""
        catalog = self._catalog
        parts = catalog.settled.parts(catalog.footers, partition_id)
        segments = [segment for segment, _ in parts]
        sizes = [
            _size_of(segment)
            if record_of(segment).owner == partition_id
            else (self._limits.bytes_max + 1, 0)
            for segment in segments
        ]
        found = run_to_merge(sizes, self._limits)
        return [] if found is None else segments[found.start : found.stop]

    def _shared_run(self) -> list[Segment]:
        settled = self._catalog.settled
        shared = settled.shared
        found = run_to_merge(list(map(_size_of, shared)), self._limits, SHARED_FILES_MIN)
        if found is not None:
            return list(shared[found.start : found.stop])
        small = [
            segment
            for owner in settled.owners()
            for segment in settled.owned(owner)
            if segment.disk_bytes < self._config.settle_own_bytes // 2
        ]
        return small if len(small) >= SMALL_FILES_MAX else []

    # Compaction.

    def settled_offset(self, partition_id: int) -> int:
        """See ``StorageAdapter.settled_offset``."""
        catalog = self._catalog
        start, is_deleted = catalog.peek(partition_id)
        if is_deleted:
            return 0
        parts = catalog.settled.parts(catalog.footers, partition_id)
        return max([start, *(part.end for _, part in parts[-1:])])

    async def rewrite(
        self, partition_id: int, upto_offset: int, keep: Keep, drops: Drops | None
    ) -> Rewritten:
        """See ``StorageAdapter.rewrite``; other work has its turn between two files."""
        done = Rewritten(self._catalog.peek(partition_id)[0], 0, 0)
        while done.upto_offset < upto_offset:
            async with self._lock:
                if self.is_halted:
                    raise StorageUnavailable("settling has stopped")
                parts = self._parts_between(partition_id, done.upto_offset, upto_offset)
                if not parts:
                    break
                rewrite = Rewrite(done.upto_offset, upto_offset, keep, drops)
                try:
                    after_bytes = await self._rewrite(partition_id, parts, rewrite)
                except (NotCommitted, OSError, Stopped) as error:
                    raise StorageUnavailable(
                        f"rewritten up to {done.upto_offset}: {error}"
                    ) from error
            done = Rewritten(
                min(upto_offset, parts[-1][1].end),
                done.before_bytes + sum(part.size_bytes for _, part in parts),
                done.after_bytes + after_bytes,
            )
        self._wake()
        return done

    def _parts_between(
        self, partition_id: int, offset: int, upto_offset: int
    ) -> list[tuple[Segment, Part]]:
        """Return the next settled files to rewrite: one, or small neighbours together."""
        start, is_deleted = self._catalog.peek(partition_id)
        offset = max(offset, start)
        found: list[tuple[Segment, Part]] = []
        size_bytes = 0
        for segment, part in self._catalog.settled.parts(self._catalog.footers, partition_id):
            if part.end <= offset or part.start >= upto_offset or is_deleted:
                continue
            size_bytes += part.size_bytes
            if found and size_bytes > self._config.settle_round_bytes // REWRITES_PER_ROUND:
                break
            found.append((segment, part))
        return found

    async def _rewrite(
        self, partition_id: int, parts: Sequence[tuple[Segment, Part]], rewrite: Rewrite
    ) -> int:
        """Replace what some files have of a partition; return its octets in the new ones."""
        catalog = self._catalog
        start, _ = catalog.peek(partition_id)
        segments = [segment for segment, _ in parts]
        goes = [s for s in segments if record_of(s).owner != SHARED]
        lost = frozenset([partition_id])
        dead = {s.number: lost for s in segments if record_of(s).owner == SHARED}

        def make(sources: list[Source], output: Output) -> None:
            copy_rewritten(partition_id, sources, {partition_id: start}, rewrite, output)

        made = await self._change(segments, goes, make, dead)
        found = [catalog.footers.get(segment).find(partition_id) for segment in made]
        return sum(part.size_bytes for part in found if part is not None)


def _size_of(segment: Segment) -> tuple[int, int]:
    assert segment.trailer is not None
    return segment.disk_bytes, segment.trailer.row_count
