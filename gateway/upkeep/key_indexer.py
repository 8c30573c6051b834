"""Building of key indexes for topics with ``key.index=true``, soon after settling."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import structlog

from gateway.metrics import Metrics
from gateway.model import Buffer
from gateway.records.keys import keys_of_batch
from gateway.storage import StorageAdapter
from gateway.topics.manager import TopicManager

INTERVAL_MS: Final = 10_000

_log = structlog.get_logger()


class KeyIndexes(Protocol):
    """Key indexes of a storage (its attribute ``key_indexes``), with totals."""

    built_count: int
    built_bytes: int
    undecodable_count: int

    @property
    def memory_bytes(self) -> int:
        """Memory of keys without an index on disk, in bytes."""
        ...

    async def index(
        self, wanted: frozenset[int], keys_of: Callable[[Buffer], Iterable[bytes]]
    ) -> int:
        """Build the missing indexes of partitions; return the number of new files."""
        ...


class KeyIndexer:
    """Periodic call of the storage; does nothing for one without key indexes."""

    def __init__(
        self, topics: TopicManager, storage: StorageAdapter, *, interval_ms: int = INTERVAL_MS
    ) -> None:
        self._topics = topics
        self._indexes: KeyIndexes | None = getattr(storage, "key_indexes", None)
        self._interval_ms = interval_ms
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start, with the first pass after one interval."""
        assert self._task is None
        if self._indexes is not None:
            self._task = asyncio.get_running_loop().create_task(self._run(self._indexes))

    def stop(self) -> None:
        """Stop, also in the middle of a pass."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def register_metrics(self, metrics: Metrics) -> None:
        """Register the storage's index metrics."""
        indexes = self._indexes
        if indexes is None:
            return
        metrics.counter_fn(
            "headgate_key_index_files", "Key index files made.", lambda: indexes.built_count
        )
        metrics.counter_fn(
            "headgate_key_index_bytes", "Bytes of them.", lambda: indexes.built_bytes
        )
        metrics.counter_fn(
            "headgate_key_index_undecodable_batches",
            "Batches listed under no key.",
            lambda: indexes.undecodable_count,
        )
        metrics.gauge(
            "headgate_key_index_memory_bytes",
            "Bytes of memory for keys of unsettled batches.",
            lambda: indexes.memory_bytes,
        )

    async def run_once(self, indexes: KeyIndexes) -> int:
        """Build missing indexes; return the number of new files. Errors: ``OSError``."""
        return await indexes.index(self._wanted(), keys_of_batch)

    def _wanted(self) -> frozenset[int]:
        return frozenset(
            partition_id
            for topic in self._topics.everything()
            if topic.settings.key_index
            for partition_id in topic.partition_ids
        )

    async def _run(self, indexes: KeyIndexes) -> None:
        while True:
            await asyncio.sleep(self._interval_ms / 1_000)
            try:
                await self.run_once(indexes)
            except OSError as error:
                _log.warning("key indexes could not be made", error=str(error))
