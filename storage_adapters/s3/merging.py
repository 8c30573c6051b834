"""Merging task: many small objects become few large ones, sorted by partition.

A round reads its inputs whole, builds new objects of them, puts these (own ones first, the shared
one last: when that is in the bucket, all are), and makes all of them live in one commit. A crash
before the commit leaves unreferenced objects, which the sweeper deletes; the inputs are live until
the commit, and stay in the bucket for a while after it for reads under way.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final
from uuid import UUID

import structlog

from gateway.clock import Clock
from gateway.errors import StorageUnavailable
from storage_adapters.background_tasks import stop_task
from storage_adapters.s3 import merge_plan as plan
from storage_adapters.s3.config import S3Config
from storage_adapters.s3.log_starts import UnwrittenStarts
from storage_adapters.s3.merge_pace import LOOKS_MAX, Pace, Stopped, all_of
from storage_adapters.s3.merge_round import PlannedObject, merge_objects, note_object
from storage_adapters.s3.merged_change import Changer, Replacement
from storage_adapters.s3.merged_object import (
    DamagedObject,
    MergedObject,
    Source,
    build_merged_object,
    ids_in_footers,
    open_source,
    told_parts,
)
from storage_adapters.s3.objects import ObjectHeader, Part
from storage_adapters.s3.state import KIND_LOG, Catalog, StoredObject, object_key

PAUSE_MS_MIN: Final = 500
PAUSE_MS_MAX: Final = 60_000
PARTITIONS_PER_TICK: Final = 500

_log = structlog.get_logger()


class Merger:
    """Merger. Loop only. ``introduce`` returns footer parts; ``untold``: see ``LogStarts``.

    Changes of merged objects (rounds, rewriting) hold ``lock``. ``is_uploading``, also called in
    threads, tells whether uploads of appends are so busy that merging is to wait.
    """

    def __init__(  # noqa: PLR0913  # What a round works with.
        self,
        config: S3Config,
        catalog: Catalog,
        changer: Changer,
        clock: Clock,
        *,
        data_uuid: UUID,
        introduce: Callable[[int], Part],
        untold: UnwrittenStarts,
        is_uploading: Callable[[], bool],
    ) -> None:
        self._config = config
        self._catalog = catalog
        self._changer = changer
        self._clock = clock
        self._data_uuid = data_uuid
        self.introduce = introduce
        self._untold = untold
        self._released = 0
        self._to_look: set[int] = set(catalog.partitions)
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._pause_ms = PAUSE_MS_MIN
        self._paused_until_ms = 0
        self._suspects: set[int] = set()
        self.damaged: set[int] = set()
        self.lock = asyncio.Lock()
        self.pace = Pace(is_uploading)
        self.is_halted = False
        self.rounds = 0
        self.merged_objects = 0
        self.merged_bytes = 0
        self.failures = 0

    @property
    def damaged_count(self) -> int:
        """Number of damaged objects, which are left as they are."""
        return len(self.damaged)

    # Notifications.

    def start(self) -> None:
        """Begin to work in the background."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        """Wake the task after a commit of objects."""
        self._wake.set()

    def release_scans_before(self, sequence: int) -> None:
        """See ``StorageAdapter``: objects with only lower sequences may be merged."""
        if sequence > self._released:
            self._released = sequence
            self._wake.set()

    def touch(self, partition_id: int) -> None:
        """Note that a partition has new own objects."""
        self._to_look.add(partition_id)
        self._wake.set()

    async def stop(self) -> None:
        """Stop the work under way and begin no more."""
        self.is_halted = True
        self.pace.stop.set()
        if self._timer is not None:
            self._timer.cancel()
        await stop_task(self._task)
        self._changer.stop()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.run_due()
            except Exception as error:  # noqa: BLE001  # Ours; what is merged would pile up.
                self._note_failure(error)

    # Work.

    async def run_due(self) -> None:
        """Do all due work. Failures are counted and tried again later."""
        while await self._try(self._merge_log):
            self._wake.clear()
        while await self._try(self._merge_shared):
            pass
        await self._merge_own_all()
        self._call_again()

    async def tidy(self) -> None:
        """Copy half-dead shared objects; record log starts, and remove dead own objects."""
        while await self._try(self._note):
            pass
        found = await self._changer.in_thread(plan.half_dead, self._catalog, self.damaged)
        for stored in found:
            await self._try(partial(self._copy, stored.number))

    async def _try(self, work: Callable[[], Awaitable[bool]]) -> bool:
        """Run ``work`` under the lock; False when it fails or must wait."""
        async with self.lock:
            if self.is_halted or self._clock.monotonic_ms() < self._paused_until_ms:
                return False
            try:
                done = await work()
            except DamagedObject as error:
                self.note_damage(error)
                return True
            except Stopped:
                return False
            except Exception as error:  # noqa: BLE001  # A mistake of ours must not end it either.
                self._note_failure(error)
                return False
            finally:
                self._changer.give_up()
        self._pause_ms = PAUSE_MS_MIN
        return done

    def _note_failure(self, error: Exception) -> None:
        self.failures += 1
        self._paused_until_ms = self._clock.monotonic_ms() + self._pause_ms
        if not self.is_halted:
            known = isinstance(error, StorageUnavailable)
            _log.warning(
                "no merge",
                error=str(error),
                again_ms=self._pause_ms,
                exc_info=None if known else error,
            )
            self._call_in(self._pause_ms)
        self._pause_ms = min(2 * self._pause_ms, PAUSE_MS_MAX)

    def note_damage(self, error: DamagedObject) -> None:
        """Exclude an object from merging once it was found damaged a second time."""
        if error.number not in self._suspects:
            self._suspects.add(error.number)  # a transfer may have damaged it: it is read again
            return
        self.damaged.add(error.number)
        stored = self._catalog.objects.get(error.number)
        if stored is not None:
            _log.error(
                "an object is damaged; it is left as it is",
                key=object_key(self._config.prefix, stored.number, stored.epoch),
                error=str(error),
                advice="bring back an earlier version of it, or a copy, and start again",
            )

    def _call_again(self) -> None:
        """Schedule a call for the time when a round is due by age."""
        age_ms = plan.next_age_ms(
            self._catalog.own_objects(),
            self._config,
            released=self._released,
            now_unix_ms=self._clock.unix_ms(),
        )
        if age_ms is not None:
            pause_ms = self._paused_until_ms - self._clock.monotonic_ms()
            self._call_in(max(age_ms, pause_ms, 10))

    def _call_in(self, delay_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(delay_ms / 1_000, self._wake.set)

    # Rounds.

    async def _merge_log(self) -> bool:
        """Do one round over log objects; False when none is due."""
        planned = partial(
            plan.log_round,
            self._catalog,
            self._config,
            released=self._released,
            now_unix_ms=self._clock.unix_ms(),
            skip=frozenset(self.damaged),
        )
        inputs = await self._changer.in_thread(planned)
        if not inputs:
            return False
        waiting = sum(o.kind == KIND_LOG for o in self._catalog.own_objects())
        self.pace.looks = LOOKS_MAX * len(inputs) // waiting
        await self._merge(inputs)
        return True

    async def _merge_shared(self) -> bool:
        inputs = plan.shared_round(self._catalog.own_objects(), self._config, skip=self.damaged)
        if inputs:
            await self._merge(inputs)
        return bool(inputs)

    async def _merge_own_all(self) -> None:
        for count in range(len(self._to_look)):
            if self.is_halted or not self._to_look:
                return
            partition_id = self._to_look.pop()
            while await self._try(partial(self._merge_own, partition_id)):
                pass
            if count % PARTITIONS_PER_TICK == 0:
                await asyncio.sleep(0)

    async def _merge_own(self, partition_id: int) -> bool:
        state = self._catalog.partitions.get(partition_id)
        if state is None:
            return False
        inputs = plan.own_round(self._catalog, state, self._config, skip=self.damaged)
        if inputs:
            sources = await self._read(inputs)
            runs = plan.part_runs(self._catalog, inputs)
            sequence = max(o.next_sequence for o in inputs)
            planned = [
                PlannedObject([run], {run.partition_id}, (sequence, sequence)) for run in runs
            ]
            made = await self._make_all(planned, sources)
            await self._replace(inputs, made)
        return bool(inputs)

    async def _copy(self, number: int) -> bool:
        """Replace a shared object by one with its live batches."""
        stored = self._catalog.objects.get(number)
        if stored is None:
            return False
        await self._merge([stored])
        return True

    async def _note(self) -> bool:
        """Put a note that records moved log starts and replaces dead own objects.

        It repeats the bounds that only the dead objects may have recorded.
        """
        dead = await self._changer.in_thread(plan.dead_own, self._catalog)
        with self._untold.taken() as untold:
            catalog = self._catalog
            note = note_object(catalog.own_objects(), dead, untold, log=catalog.log)
            if note is None:
                return False
            told = {
                partition_id: self.introduce(partition_id) for partition_id in note.told_ids
            }
            await self._replace(dead, [await self._make(note, {}, told)])
        return True

    async def _merge(self, inputs: Sequence[StoredObject]) -> None:
        """Merge log objects, or shared ones, into own objects and a shared one."""
        sources = await self._read(inputs)
        own_bytes_min = self._config.partition_object_bytes_min
        grouping = await self._changer.in_thread(
            plan.group_inputs, self._catalog, inputs, own_bytes_min
        )
        footer_ids = await self._changer.in_thread(ids_in_footers, list(sources.values()))
        *own, shared = merge_objects(grouping, inputs, footer_ids)
        # Its number is the oldest: of a round without a commit it is swept first (``sweeper``).
        place = await self.place()
        made = await self._make_all(own, sources)
        told = told_parts(self._catalog, shared.told_ids)
        made.append(await self._changer.in_thread(self._build, place, shared, sources, told))
        await self._replace(inputs, made)

    async def _replace(
        self, inputs: Sequence[StoredObject], made: Sequence[MergedObject]
    ) -> None:
        """Replace ``inputs`` by ``made``."""
        new = await self._changer.commit(Replacement(made, [o.number for o in inputs]))
        self.rounds += 1
        self.merged_objects += len(inputs)
        self.merged_bytes += sum([o.size_bytes for o in inputs])
        for stored in new:
            if not plan.is_shared(stored):
                self._to_look |= stored.partition_ids

    async def _read(self, inputs: Iterable[StoredObject]) -> dict[int, Source]:
        """Read the inputs whole. Errors: ``DamagedObject``, ``StorageUnavailable``."""
        found = await all_of(
            [self._changer.in_thread(self._read_one, stored) for stored in inputs]
        )
        return {source.number: source for source in found}

    def _read_one(self, stored: StoredObject) -> Source:
        return open_source(stored, self._changer.read_object(stored, self.pace))

    async def _make_all(
        self, planned: Iterable[PlannedObject], sources: dict[int, Source]
    ) -> list[MergedObject]:
        catalog = self._catalog
        return await all_of(
            [self._make(one, sources, told_parts(catalog, one.told_ids)) for one in planned]
        )

    async def _make(
        self, planned: PlannedObject, sources: dict[int, Source], told: dict[int, Part]
    ) -> MergedObject:
        place = await self.place()
        return await self._changer.in_thread(self._build, place, planned, sources, told)

    async def place(self) -> ObjectHeader:
        """Return the header fields of the next object. Errors: ``StorageUnavailable``."""
        number = await self._changer.take_number()
        return ObjectHeader(self._data_uuid, number, self._changer.epoch, self._clock.unix_ms())

    def _build(
        self,
        place: ObjectHeader,
        planned: PlannedObject,
        sources: dict[int, Source],
        told: dict[int, Part],
    ) -> MergedObject:
        """Build and put one object. In a thread."""
        made = build_merged_object(
            place, planned.runs, sources, told, sequences=planned.sequences, pace=self.pace
        )
        self.pace()
        return self._changer.put_object(made)
