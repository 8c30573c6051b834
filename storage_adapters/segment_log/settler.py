"""Settling: closed log segments become settled segments, sorted by partition.

A round takes the oldest closed segments that no scan needs, copies the live batches of each
partition in one piece, and removes the log segments. Obsolete settled segments are removed;
shared ones are copied when more than half is dead; small ones are merged.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from gateway.clock import Clock
from storage_adapters.formats.footer import Footer
from storage_adapters.formats.manifest import SHARED
from storage_adapters.segment_log.catalog import Catalog
from storage_adapters.segment_log.config import SegmentLogConfig
from storage_adapters.segment_log.copying import (
    DELETED,
    DamagedBatch,
    Source,
    directory_rows,
)
from storage_adapters.segment_log.merging import owned_run, shared_run
from storage_adapters.segment_log.metrics import SegmentLogMetrics
from storage_adapters.segment_log.obsolete_files import ObsoleteFiles
from storage_adapters.segment_log.retries import Retries
from storage_adapters.segment_log.rewriting import Rewriter
from storage_adapters.segment_log.segments import Segment
from storage_adapters.segment_log.settled_change import Change, Changer
from storage_adapters.segment_log.settled_output import (
    Output,
    OutputSpec,
    Pace,
    Stopped,
)
from storage_adapters.segment_log.settled_set import record_of
from storage_adapters.segment_log.shared_batches import copy_all

PARTS_PER_TICK: Final = 500
REWRITES_PER_ROUND: Final = 8  # the share of a round that is rewritten at once


class Settler:
    """Planner of the next change. ``wake`` requests a call of ``run_due``."""

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
        self._passed = ObsoleteFiles(catalog)
        self._floor = 0  # no scan begins before this sequence
        self._oldest: Segment | None = None  # the first waiting log segment
        self._oldest_since_ms = 0
        self._timer: asyncio.TimerHandle | None = None
        self._to_merge: set[int] = set()
        self._merged_count = 0  # settled segments above which shared ones are merged
        self._retries = Retries(clock, metrics)
        self._is_loaded = False
        self.is_halted = False
        bytes_max = config.settle_round_bytes // REWRITES_PER_ROUND
        self.rewriter = Rewriter(catalog, self._lock, self._change, wake, bytes_max)

    @property
    def pace(self) -> Pace:
        """Rate limit of the copying."""
        return self._spec.pace

    # Notifications.

    def release_scans_before(self, sequence: int) -> None:
        """See ``StorageAdapter.release_scans_before``."""
        # The reason for it is on the disk before a change that relies on it takes effect.
        self._floor = max(self._floor, sequence)
        self._wake()

    def touch(self, partition_id: int) -> None:
        """Note that a partition has lost data: there may be files to remove."""
        self._passed.touch(partition_id)

    async def stop(self) -> None:
        """Stop the work under way and begin no more."""
        self.is_halted = True
        self.rewriter.is_halted = True
        self.pace.stop.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        async with self._lock:
            pass

    # Work.

    async def run_due(self) -> None:
        """Do all due work. Failures are counted and tried again later; the rest continues."""
        if self.is_halted:
            return
        with suppress(Stopped):
            async with self._lock:
                self._retries.begin()
                await self._run_due()
                wait_s = self._retries.next_s()
                if wait_s is not None:
                    self._call_again(wait_s)

    async def _run_due(self) -> None:
        if not self._is_loaded:
            self._is_loaded = True
            await self._passed.load()
            self._to_merge.update(self._catalog.settled.owners())
        await self._drop_passed()
        while not self.is_halted and await self._try("log segments", self._settle_due):
            await self._drop_passed()
        await self._merge_all()

    async def _try(self, work: str, do: Callable[[], Awaitable[bool]]) -> bool:
        """Run ``do``; False when it fails, or failed before and is not due again."""
        if not self._retries.may_try(work):
            return False
        try:
            done = await do()
        except Stopped:
            raise
        except Exception as error:  # A bug in one step must not end the rest either.
            if self.is_halted:
                raise Stopped from error
            if isinstance(error, DamagedBatch):
                error.segment.damage_seen += 1
            self._retries.note_failure(work, error)
            return False
        self._retries.note_success(work)
        return done

    def _due_segments(self) -> list[Segment]:
        """Return the log segments of the next round; none when it can wait."""
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
        """Schedule the next call in at most so many seconds."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if loop.time() < self._timer.when() <= loop.time() + delay_s:
                return
            self._timer.cancel()
        self._timer = loop.call_later(delay_s, self._wake)

    # Rounds.

    async def _settle_due(self) -> bool:
        """Do one round; False when none is due. Errors: those of a change, no space."""
        segments = self._due_segments()
        if not segments:
            return False
        free_bytes = self._spec.files.room_bytes(self._spec.data_dir)
        need_bytes = sum(segment.entries_end for segment in segments)
        if need_bytes + self._config.segment_bytes > free_bytes:
            segments = await self._fitting(segments, free_bytes)
        await self._settle(segments)
        return True

    async def _fitting(self, segments: Sequence[Segment], free_bytes: int) -> list[Segment]:
        """Return as many segments as the disk has room to copy, at least one.

        The log's next segment has its room too, if need be from the first one's. Errors:
        ``OSError``, without having written anything.
        """
        found: list[Segment] = []
        need_bytes = 0
        for segment in segments:
            footer = self._catalog.footers.get(segment)
            floors = await self._floors_of([footer])
            need_bytes += sum(
                part.size_bytes
                for part in footer
                if part.end > floors.get(part.partition_id, 0)
            )
            if footer.trailer.repeated_bytes:
                need_bytes = min(need_bytes, sum(one.entries_end for one in (*found, segment)))
            kept_back_bytes = self._config.segment_bytes if found else 0
            if need_bytes + kept_back_bytes > free_bytes:
                break
            found.append(segment)
        if not found:
            raise OSError(errno.ENOSPC, f"{need_bytes} bytes are needed to settle a segment")
        return found

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
        """Return the partitions whose deletion no remaining log segment records."""
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
        """Return the log start offset of each partition that has lost data."""
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
        dead: Mapping[int, frozenset[int]] | None = None,
    ) -> list[Segment]:
        spec = self._spec._replace(created_unix_ms=self._clock.unix_ms())
        change = Change(inputs, goes, dead or {}, make, self._last_sequence())
        made = await self._changer.run(change, spec)
        damage_seen = max([segment.damage_seen for segment in inputs], default=0)
        for segment in made:
            segment.damage_seen = damage_seen
        self._passed.note(goes, dead or {})
        self._to_merge.update(owner for s in made if (owner := record_of(s).owner) != SHARED)
        return made

    # Dead segments.

    async def _drop_passed(self) -> None:
        passed, half_dead = await self._passed.find()
        if passed:

            async def drop() -> bool:
                await self._change([], passed, lambda _sources, _output: None)
                return True

            if not await self._try("passed files", drop):
                for segment in passed:
                    self._passed.touch(record_of(segment).owner)
        for segment in half_dead:
            await self._try(f"file {segment.number}", partial(self._copy, [segment]))

    async def _copy(self, segments: Sequence[Segment]) -> bool:
        """Replace ``segments`` by new ones with their live batches.

        False when there are not fewer of them than before.
        """
        floors = await self._floors_of([self._catalog.footers.get(s) for s in segments])

        def make(sources: list[Source], output: Output) -> None:
            copy_all(sources, floors, output)

        return len(await self._change(segments, segments, make)) < len(segments)

    # Merging.

    async def _merge_all(self) -> None:
        left: set[int] = set()
        while self._to_merge and not self.is_halted:
            partition_id = self._to_merge.pop()
            run = owned_run(self._catalog, self._config, partition_id)
            if run and not await self._merge_owned(partition_id, run):
                left.add(partition_id)
            await asyncio.sleep(0)
        self._to_merge |= left
        while not self.is_halted and len(self._catalog.settled.segments) > self._merged_count:
            run = shared_run(self._catalog, self._config)
            if not run or not self._has_room_for(run):
                return
            if not await self._try("shared files", partial(self._merge_shared, run)):
                return

    async def _merge_owned(self, partition_id: int, run: Sequence[Segment]) -> bool:
        """Merge files of a partition, after which more can be worth merging; False: not now."""
        if not self._has_room_for(run):
            return False
        return await self._try(f"files of partition {partition_id}", partial(self._copy, run))

    def _has_room_for(self, run: Sequence[Segment]) -> bool:
        """Return whether copies of these files fit the disk, beside the log's next segment."""
        need_bytes = sum(segment.disk_bytes for segment in run) + self._config.segment_bytes
        return need_bytes <= self._spec.files.room_bytes(self._spec.data_dir)

    async def _merge_shared(self, run: Sequence[Segment]) -> bool:
        if not await self._copy(run):
            # Their partitions have segments of their own in between. Not again soon.
            self._merged_count = 2 * len(self._catalog.settled.segments)
        return True
