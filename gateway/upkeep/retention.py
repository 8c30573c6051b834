"""Retention: deletes records beyond a topic's time or size limit, by partition.

Batches go from the front only, whole, never above the high watermark and never beyond what a
holder still needs (``holders``). What a partition keeps is decided by the pure function
``first_to_keep``; ``Retention`` finds the facts, a bounded number of partitions at a time, and
tells the broker. With ``cleanup.policy=queue``, what all queue groups have settled goes too, a
while after it was settled. Internal topics keep themselves small.
"""

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple

import structlog

from gateway.broker import Broker
from gateway.clock import Clock
from gateway.config.settings import RetentionConfig
from gateway.errors import GatewayError, StorageUnavailable
from gateway.topics.configs import TopicSettings
from gateway.topics.index import Topic
from gateway.topics.manager import TopicManager

PARTITIONS_PER_TICK: Final = 64  # looked at before others have their turn on the loop
TRUNCATIONS_MAX: Final = 64  # on their way to the storage at once

_log = structlog.get_logger()


def first_to_keep(
    *,
    log_start_offset: int,
    high_watermark: int,
    first_young_offset: int | None,
    first_within_size: int,
) -> int | None:
    """Return the offset before which records are deleted, or None.

    ``first_young_offset`` is the base offset of the first batch that is not too old, None when
    all are; ``first_within_size`` the lowest from which no more follows than may. Unlimited is
    0.
    """
    young = high_watermark if first_young_offset is None else first_young_offset
    offset = min(max(young, first_within_size), high_watermark)
    return offset if offset > log_start_offset else None


class _Settled(NamedTuple):
    """Offset below which all queue groups had settled at a time."""

    offset: int
    since_ms: int


class Retention:
    """Periodic retention of all partitions. Loop only."""

    def __init__(
        self,
        topics: TopicManager,
        broker: Broker,
        clock: Clock,
        config: RetentionConfig,
    ) -> None:
        self.passes = 0
        self.truncations = 0
        self._topics = topics
        self._broker = broker
        self._storage = broker.storage
        self._clock = clock
        self._interval_ms = config.interval_ms
        self._room = asyncio.Semaphore(TRUNCATIONS_MAX)
        self._looked_at = 0
        self._settled: dict[int, _Settled] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start, with the first pass after one interval."""
        assert self._task is None
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Stop, also in the middle of a pass."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def forget(self, partition_ids: Iterable[int]) -> None:
        """Forget deleted partitions."""
        for partition_id in partition_ids:
            self._settled.pop(partition_id, None)

    async def run_once(self) -> None:
        """Run one pass over all partitions. ``StorageUnavailable`` ends the pass."""
        for topic in self._topics.everything():
            settings = topic.settings
            if topic.is_internal or not (_is_limited(settings) or settings.is_queue):
                continue
            for number in range(len(topic.partition_ids)):
                if self._topics.by_uuid(topic.uuid) is not topic:
                    break  # deleted while others had their turn
                if self._broker.owns(topic, number):
                    await self._look_at(topic, number)
        self.passes += 1

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            try:
                await self.run_once()
            except GatewayError as error:
                _log.warning("retention pass ended early", error=str(error))

    async def _look_at(self, topic: Topic, number: int) -> None:
        self._looked_at += 1
        if self._looked_at % PARTITIONS_PER_TICK == 0:
            await asyncio.sleep(0)
        partition_id = topic.partition_ids[number]
        bounds = self._storage.bounds(partition_id)
        if bounds.start == bounds.end:
            return
        wanted = self._settled_to_remove(topic.settings, partition_id)
        if _is_limited(topic.settings):
            limit = first_to_keep(
                log_start_offset=bounds.start,
                high_watermark=bounds.end,
                first_young_offset=await self._first_young_offset(topic.settings, partition_id),
                first_within_size=self._first_within_size(topic.settings, partition_id),
            )
            wanted = max(wanted or 0, limit or 0) or None
        wanted = self._broker.holders.limit(partition_id, wanted)
        # Most partitions have nothing to lose; the broker need not make up its state of them.
        if wanted is not None and wanted > bounds.start:
            await self._room.acquire()
            self._truncate(topic, number, wanted)

    def _truncate(self, topic: Topic, number: int, wanted: int) -> None:
        """Truncate a partition; ``self._room`` was taken and is given back afterwards."""
        try:
            is_there = self._topics.by_uuid(topic.uuid) is topic
            if not is_there or not self._broker.owns(topic, number):
                self._room.release()  # deleted, or moved, while we waited
                return
            partition = self._broker.partition(topic, number)
            offset = min(wanted, partition.high_watermark)
            self._broker.truncate_before(partition, offset, self._on_truncated)
        except GatewayError:
            self._room.release()
            raise
        self.truncations += 1

    async def _first_young_offset(
        self, settings: TopicSettings, partition_id: int
    ) -> int | None:
        if settings.retention_ms < 0:
            return 0
        oldest_unix_ms = self._clock.wall_unix_ms() - settings.retention_ms
        return await self._storage.base_offset_for_time(partition_id, oldest_unix_ms)

    def _first_within_size(self, settings: TopicSettings, partition_id: int) -> int:
        if settings.retention_bytes < 0:
            return 0
        return self._storage.offset_for_size(partition_id, settings.retention_bytes)

    def _settled_to_remove(self, settings: TopicSettings, partition_id: int) -> int | None:
        """Return the offset below which a queue's messages were settled long enough ago.

        One position per partition is remembered, so that what is settled stays for
        ``queue.keep.ms`` and less than twice as long, plus an interval; a restart begins anew.
        """
        offset = self._broker.holders.settled(partition_id) if settings.is_queue else None
        if offset is None:
            self._settled.pop(partition_id, None)
            return None
        now_ms = self._clock.monotonic_ms()
        settled = self._settled.setdefault(partition_id, _Settled(offset, now_ms))
        if now_ms - settled.since_ms < settings.queue_keep_ms:
            return None
        self._settled[partition_id] = _Settled(offset, now_ms)
        return settled.offset if settings.queue_keep_ms else offset

    def _on_truncated(self, error: StorageUnavailable | None) -> None:
        self._room.release()
        if error is not None:
            _log.warning("retention could not truncate", error=str(error))


def _is_limited(settings: TopicSettings) -> bool:
    return settings.deletes and (settings.retention_ms >= 0 or settings.retention_bytes >= 0)
