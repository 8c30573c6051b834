"""Delayed deletion of unneeded objects.

A crash at any step is safe, because the index never refers to an object that is not in the bucket:

- a number that was reserved and not used, or used and never committed, is dead in the index before
  its key is deleted; a late PUT of it can then not be committed;
- a dead object's row is removed after its key: after a crash in between the key is deleted once
  more, which is no error;
- objects die in the transaction that adds their replacements, and their keys are deleted
  ``delete_after_ms`` later, when no lease from before their death is active;
- unneeded own objects are deleted after a note in the bucket repeats their records;
- bounds of a deleted partition are removed when no live object has held it for twice that time:
  by then the dead ones are deleted, too, and a recovered index cannot bring it back.

Keys of formerly live objects stay until all lower numbers that never were live are deleted: from
them a recovery recognizes objects that a replaced node put in vain (``recovery_plan``). Keys are
deleted from the lowest number up: of a round that was never committed the shared object, which has
the lowest one, is deleted before the objects that were put with it. Without these a recovery would
take it for what stands for its inputs.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

import structlog

from gateway.clock import Clock
from gateway.errors import StorageUnavailable
from gateway.metrics import Metrics
from storage_adapters.background_tasks import stop_task
from storage_adapters.s3.bucket import Bucket
from storage_adapters.s3.committer import Committer
from storage_adapters.s3.config import S3Config
from storage_adapters.s3.merging import Merger
from storage_adapters.s3.state import Catalog, object_key

DEAD_MAX: Final = 100_000  # deleted in one sweep; more wait for the next
KEYS_PER_CALL: Final = 1_000
PAUSE_MS_MAX: Final = 600_000  # between sweeps that fail one after the other
PENDING_MS_MIN: Final = 60_000  # protects a number whose reservation has not been answered yet
FORGET_MS_MIN: Final = 3_600_000  # of a deleted partition's bounds

_log = structlog.get_logger()


class Sweeper:
    """Sweeper. Loop only. ``deleted_objects``: total since the start."""

    def __init__(
        self,
        config: S3Config,
        catalog: Catalog,
        clock: Clock,
        *,
        bucket: Bucket,
        committer: Committer,
        merger: Merger,
    ) -> None:
        self._config = config
        self._catalog = catalog
        self._bucket = bucket
        self._committer = committer
        self._merger = merger
        self._clock = clock
        self._unneeded_since_ms: dict[int, int] = {}
        self._task: asyncio.Task[None] | None = None
        self.deleted_objects = 0
        self.failures = 0

    def register(self, metrics: Metrics) -> None:
        """Register the counts of deletions."""
        metrics.counter_fn(
            "headgate_s3_deleted_objects_total",
            "Objects that were deleted from the bucket.",
            lambda: self.deleted_objects,
        )
        metrics.counter_fn(
            "headgate_s3_sweep_failures_total",
            "Sweeps that ended early, bucket or database being away, or by a mistake of ours.",
            lambda: self.failures,
        )

    def start(self) -> None:
        """Begin to work in the background."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop the work under way; the next start continues it."""
        await stop_task(self._task)

    async def _run(self) -> None:
        interval_ms = self._config.sweep_interval_ms
        pause_ms = interval_ms
        while True:
            await asyncio.sleep(pause_ms / 1_000)
            is_done = await self.run_due()
            growing_ms = min(2 * pause_ms, max(PAUSE_MS_MAX, interval_ms))
            pause_ms = interval_ms if is_done else growing_ms

    async def run_due(self) -> bool:
        """Do all due work. Failures are counted, and due again at the next sweep."""
        try:
            await self._sweep_pending()
            await self._merger.tidy()
            await self._delete_dead()
            await self._forget_bounds()
        except StorageUnavailable as error:
            self.failures += 1
            _log.warning("a sweep ended early", error=str(error))
        except Exception as error:  # noqa: BLE001 - ours; without sweeps the bucket only grows
            self.failures += 1
            _log.error("a sweep failed", error=repr(error), exc_info=error)
        else:
            return True
        return False

    async def _sweep_pending(self) -> None:
        age_ms = max(self._config.delete_after_ms, PENDING_MS_MIN)
        before_unix_ms = self._clock.unix_ms() - age_ms
        epoch, keep = self._committer.epoch, self._committer.numbers_kept
        await self._committer.run(
            lambda index: index.sweep_pending(epoch, before_unix_ms=before_unix_ms, keep=keep)
        )

    async def _delete_dead(self) -> None:
        before_unix_ms = self._clock.unix_ms() - self._config.delete_after_ms
        dead = await self._committer.run(
            lambda index: index.dead(before_unix_ms=before_unix_ms, limit=DEAD_MAX)
        )
        for at in range(0, len(dead), KEYS_PER_CALL):
            keys = {
                object_key(self._config.prefix, number, epoch): number
                for number, epoch in dead[at : at + KEYS_PER_CALL]
            }
            left = frozenset(await asyncio.to_thread(self._bucket.delete, list(keys)))
            gone = [number for key, number in keys.items() if key not in left]
            await self._forget(gone)
            if left:
                raise StorageUnavailable(f"{len(left)} objects could not be deleted")

    async def _forget(self, numbers: list[int]) -> None:
        await self._committer.run(lambda index: index.forget(numbers))
        self.deleted_objects += len(numbers)

    async def _forget_bounds(self) -> None:
        now_ms = self._clock.monotonic_ms()
        unneeded = await asyncio.to_thread(_unneeded, self._catalog)
        self._unneeded_since_ms = {
            partition_id: self._unneeded_since_ms.get(partition_id, now_ms)
            for partition_id in unneeded
        }
        due_ms = now_ms - max(2 * self._config.delete_after_ms, FORGET_MS_MIN)
        due = [i for i, since_ms in self._unneeded_since_ms.items() if since_ms <= due_ms]
        if due:
            await self._committer.run(lambda index: index.forget_bounds(due))
            for partition_id in due:
                self._catalog.partitions.pop(partition_id, None)


def _unneeded(catalog: Catalog) -> Iterable[int]:
    """Return the deleted partitions without extents in live objects. In a thread."""
    deleted = {
        state.partition_id for state in list(catalog.partitions.values()) if state.is_deleted
    }
    for stored in list(catalog.objects.values()) if deleted else ():
        deleted -= stored.partition_ids
    return deleted
