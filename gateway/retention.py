"""Retention: what is older, or more, than a topic allows goes, partition by partition.

Batches go from the front only, whole, and never above the high watermark. What a partition
keeps is decided by ``first_to_keep``, a pure function; ``Retention`` finds the facts, a bounded
number of partitions at a time, and tells the broker. Internal topics keep themselves small.
"""

import asyncio
from typing import Final

import structlog

from gateway.broker import Broker
from gateway.clock import Clock
from gateway.config import RetentionConfig
from gateway.errors import GatewayError, StorageUnavailable
from gateway.topic_configs import TopicSettings
from gateway.topic_index import Topic
from gateway.topics import TopicManager

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
    """Return the offset before which everything goes, or None when nothing does.

    ``first_young_offset`` is the base offset of the first batch that is not too old, None when
    all are; ``first_within_size`` the lowest from which no more follows than may. Unlimited is
    0.
    """
    young = high_watermark if first_young_offset is None else first_young_offset
    offset = min(max(young, first_within_size), high_watermark)
    return offset if offset > log_start_offset else None


class Retention:
    """Goes through all partitions once per interval. Loop only."""

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
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, with the first pass one interval from now."""
        assert self._task is None
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """End, also in the middle of a pass."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def run_once(self) -> None:
        """Go through all partitions once. ``StorageUnavailable`` ends the pass."""
        for topic in self._topics.everything():
            settings = topic.settings
            if topic.is_internal or not settings.deletes or not _is_limited(settings):
                continue
            for number in range(len(topic.partition_ids)):
                if self._topics.by_uuid(topic.uuid) is not topic:
                    break  # deleted while others had their turn
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
        first_young_offset = await self._first_young_offset(topic.settings, partition_id)
        wanted = first_to_keep(
            log_start_offset=bounds.start,
            high_watermark=bounds.end,
            first_young_offset=first_young_offset,
            first_within_size=self._first_within_size(topic.settings, partition_id),
        )
        # Most partitions have nothing to lose; the broker need not make up its state of them.
        if wanted is not None:
            await self._room.acquire()
            self._truncate(topic, number, wanted)

    def _truncate(self, topic: Topic, number: int, wanted: int) -> None:
        """Tell the broker; ``self._room`` has been taken and is given back when it is done."""
        try:
            if self._topics.by_uuid(topic.uuid) is not topic:
                self._room.release()  # deleted while we waited
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
        oldest_unix_ms = self._clock.unix_ms() - settings.retention_ms
        return await self._storage.base_offset_for_time(partition_id, oldest_unix_ms)

    def _first_within_size(self, settings: TopicSettings, partition_id: int) -> int:
        if settings.retention_bytes < 0:
            return 0
        return self._storage.offset_for_size(partition_id, settings.retention_bytes)

    def _on_truncated(self, error: StorageUnavailable | None) -> None:
        self._room.release()
        if error is not None:
            _log.warning("retention could not truncate", error=str(error))


def _is_limited(settings: TopicSettings) -> bool:
    return settings.retention_ms >= 0 or settings.retention_bytes >= 0
