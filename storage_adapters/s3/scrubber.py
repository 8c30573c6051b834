"""Scrub of the bucket: reads live objects, a few a day, and compares the CRC of every batch.

A step is one GET of a piece of an object (``GET_BYTES_MAX``), past all caches. The objects come in
order of their numbers, from a random one on after a start, so that a node that is started often
gets to all of them, too. What is damaged is read a second time, counted and logged, and stays as it
is: clients get the bytes, or an error, as before.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, NamedTuple

import structlog

from gateway.errors import GatewayError, StorageUnavailable
from gateway.metrics import Metrics
from gateway.model import Buffer, PartitionIdentity
from storage_adapters.background_tasks import stop_task
from storage_adapters.formats.footer import HIGH_SHIFT, LOW_32, ROW_STRIDE, Rows
from storage_adapters.s3.bucket import Bucket, ObjectMissing
from storage_adapters.s3.config import S3Config
from storage_adapters.s3.reading import fault_of
from storage_adapters.s3.rows import RowsGone
from storage_adapters.s3.state import Catalog, StoredObject, object_key

GET_BYTES_MAX: Final = 8 << 20  # of several batches; one that is larger is read alone
FAILURES_MAX: Final = 3  # of one piece, one after the other; then the next object is read
DAMAGES_MAX: Final = 10_000  # that are told apart, so that each is counted once
_DAY_S: Final = 86_400.0

_log = structlog.get_logger()


class ScrubbedBatch(NamedTuple):
    """A batch of an object, by its row."""

    position: int
    size: int
    leader_epoch: int
    base_offset: int


class Scrubber:
    """Scrubber. Loop only; reads and compares in threads.

    ``rows_of`` returns an object's rows without keeping them in a cache. ``identify`` says what a
    partition is.
    """

    def __init__(
        self,
        config: S3Config,
        catalog: Catalog,
        bucket: Bucket,
        *,
        rows_of: Callable[[int], Awaitable[Rows]],
        identify: Callable[[int], PartitionIdentity],
    ) -> None:
        self._config = config
        self._catalog = catalog
        self._bucket = bucket
        self._rows_of = rows_of
        self._identify = identify
        self._number = -1  # of the object that is read
        self._pieces: deque[list[ScrubbedBatch]] = deque()
        self._failures = 0
        self._known: set[tuple[int, int]] = set()
        self._task: asyncio.Task[None] | None = None
        self.gets = 0
        self.checked_bytes = 0
        self.passes = 0
        self.damaged = 0

    def register(self, metrics: Metrics) -> None:
        """Register its counts."""
        metrics.counter_fn(
            "headgate_s3_scrub_gets_total",
            "GETs of the scrub (storage.scrub_gets_per_day).",
            lambda: self.gets,
        )
        metrics.counter_fn(
            "headgate_s3_scrubbed_bytes_total",
            "Bytes of batches in the bucket whose CRC the scrub has compared.",
            lambda: self.checked_bytes,
        )
        metrics.counter_fn(
            "headgate_s3_scrub_passes_total",
            "Passes of the scrub over all objects.",
            lambda: self.passes,
        )
        metrics.counter_fn(
            "headgate_s3_scrub_damaged_batches_total",
            "Batches in the bucket that the scrub has found damaged.",
            lambda: self.damaged,
        )

    def start(self) -> None:
        """Begin to work in the background, unless ``scrub_gets_per_day`` is 0."""
        if self._config.scrub_gets_per_day:
            self._number = secrets.randbelow(max(self._catalog.objects, default=0) + 1) - 1
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop."""
        await stop_task(self._task)

    async def _run(self) -> None:
        pause_s = _DAY_S / self._config.scrub_gets_per_day
        while True:
            await asyncio.sleep(pause_s)
            try:
                await self.step()
            except StorageUnavailable as error:
                self._note_failure(error)
            except Exception as error:  # noqa: BLE001 - ours; the next object may be read
                _log.error("a scrub failed", error=repr(error), exc_info=error)
                self._pieces.clear()

    async def step(self) -> None:
        """Read and compare one piece. Errors: ``StorageUnavailable``; then it is read again."""
        if not self._pieces:
            await self._next_object()
        stored = self._catalog.objects.get(self._number)
        if not self._pieces or stored is None:  # nothing is there, or a merge has replaced it
            self._pieces.clear()
            return
        piece = self._pieces[0]
        try:
            faults = await self._read(stored, piece) and await self._read(stored, piece)
        except ObjectMissing:
            self._pieces.clear()
            return
        self._failures = 0
        self._pieces.popleft()
        self.checked_bytes += sum(batch.size for batch in piece)
        for batch, text in faults:
            self._note(stored, batch, text)

    def _note_failure(self, error: StorageUnavailable) -> None:
        """Read the piece again at the next step, or, where that fails too, the next object."""
        self._failures += 1
        _log.warning("a piece of the bucket cannot be read by the scrub", error=str(error))
        if self._failures >= FAILURES_MAX:
            self._failures = 0
            self._pieces.clear()

    async def _next_object(self) -> None:
        numbers = self._catalog.objects
        following = [number for number in numbers if number > self._number]
        if not following and numbers:
            self.passes += 1
            following = list(numbers)
        if following:
            self._number = min(following)
            with suppress(RowsGone):
                rows = await self._rows_of(self._number)
                self._pieces = deque(await asyncio.to_thread(pieces_of, rows))

    async def _read(
        self, stored: StoredObject, piece: list[ScrubbedBatch]
    ) -> list[tuple[ScrubbedBatch, str]]:
        """Return what is damaged of a piece."""
        start, end = piece[0].position, piece[-1].position + piece[-1].size
        key = object_key(self._config.prefix, stored.number, stored.epoch)
        self.gets += 1

        def read() -> list[tuple[ScrubbedBatch, str]]:
            return _damaged(self._bucket.get(key, start, end), piece)

        return await asyncio.to_thread(read)

    def _note(self, stored: StoredObject, batch: ScrubbedBatch, text: str) -> None:
        place = stored.number, batch.position
        if place in self._known:
            return
        if len(self._known) < DAMAGES_MAX:
            self._known.add(place)
        self.damaged += 1
        _log.error(
            "a batch in the bucket is damaged",
            key=object_key(self._config.prefix, stored.number, stored.epoch),
            position=batch.position,
            offset=batch.base_offset,
            partitions=self._names(stored, batch.base_offset),
            error=text,
            advice="bring back an earlier version of the object, or a copy, and start again",
        )

    def _names(self, stored: StoredObject, offset: int) -> list[str]:
        """Return the partitions of an object that have an offset in it."""
        names = []
        for partition_id in sorted(stored.partition_ids):
            state = self._catalog.partitions.get(partition_id)
            extents = [] if state is None else state.extents
            if any(e.number == stored.number and e.first <= offset < e.end for e in extents):
                with suppress(GatewayError):
                    identity = self._identify(partition_id)
                    names.append(f"{identity.topic.name}-{identity.number}")
        return names


def pieces_of(rows: Rows) -> list[list[ScrubbedBatch]]:
    """Return an object's batches in order of position, in pieces of at most ``GET_BYTES_MAX``.

    A batch of several partitions is there once; a larger batch is a piece of its own.
    """
    batches: dict[int, ScrubbedBatch] = {}
    for at in range(0, len(rows), ROW_STRIDE):
        place, span = rows[at + 2], rows[at + 3]
        position = place & LOW_32
        batches[position] = ScrubbedBatch(
            position, place >> HIGH_SHIFT, span >> HIGH_SHIFT, rows[at]
        )
    pieces: list[list[ScrubbedBatch]] = []
    for _, batch in sorted(batches.items()):
        end = batch.position + batch.size
        if pieces and end - pieces[-1][0].position <= GET_BYTES_MAX:
            pieces[-1].append(batch)
        else:
            pieces.append([batch])
    return pieces


def _damaged(data: Buffer, piece: list[ScrubbedBatch]) -> list[tuple[ScrubbedBatch, str]]:
    view, start = memoryview(data), piece[0].position
    found = []
    for batch in piece:
        at = batch.position - start
        fault = fault_of(view[at : at + batch.size], batch.size, batch.leader_epoch)
        if fault:
            found.append((batch, fault))
    return found
