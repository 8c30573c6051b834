"""Removal of what is settled, or too much, in memory, while it is appended.

Retention looks at all topics now and then; memory cannot wait for it.
"""

import asyncio
from typing import Final

import structlog

from gateway.broker import Broker
from gateway.errors import GatewayError, StorageUnavailable
from gateway.partition import Partition
from gateway.topics.manager import TopicManager

FULL_QUARTERS: Final = 3  # of the bound; above it transient queues drop messages

_log = structlog.get_logger()


class MemoryTrim:
    """See the module. Loop only."""

    def __init__(self, broker: Broker, topics: TopicManager) -> None:
        self._broker = broker
        self._topics = topics
        self._loop = asyncio.get_running_loop()
        self._due: set[int] = set()
        broker.memory.trim = self.trim

    def trim_soon(self, partition_id: int) -> None:
        """Trim a partition when the append that made it grow has begun."""
        if not self._due:
            self._loop.call_soon(self._trim_due)
        self._due.add(partition_id)

    def _trim_due(self) -> None:
        due, self._due = self._due, set()
        for partition_id in due:
            try:
                identity = self._topics.identify(partition_id)
                topic = self._topics.by_uuid(identity.topic_uuid)
                if topic is not None:
                    self.trim(self._broker.partition(topic, identity.number))
            except GatewayError as error:  # deleted meanwhile, or another node's
                _log.debug("not trimmed", partition=partition_id, error=str(error))

    def _make_room(self, partition: Partition) -> None:
        """Let queues that are nearly full drop their oldest messages."""
        partition_id = partition.partition_id
        bytes_max = partition.topic.settings.hold_bytes_max * FULL_QUARTERS // 4
        storage = self._broker.storage
        if partition.topic.is_transient and storage.size_bytes(partition_id) > bytes_max:
            offset = storage.offset_for_size(partition_id, bytes_max)
            self._broker.memory.drop_oldest(partition, offset)

    def trim(self, partition: Partition) -> None:
        """Remove the messages that queues have settled, or the oldest beyond the bound."""
        settings = partition.topic.settings
        holders = self._broker.holders
        partition_id = partition.partition_id
        self._make_room(partition)
        holders.memory.renew_holds(partition)
        offset = 0
        if settings.is_queue and not settings.queue_keep_ms:
            offset = holders.settled(partition_id) or 0
        if settings.deletes and settings.retention_bytes >= 0:
            storage = self._broker.storage
            first = storage.offset_for_size(partition_id, settings.retention_bytes)
            offset = max(offset, first)
        wanted = holders.limit(partition_id, offset or None)
        if wanted is not None and wanted > partition.log_start_offset:
            end = partition.high_watermark
            self._broker.truncate_before(partition, min(wanted, end), _ignore)


def _ignore(_error: StorageUnavailable | None) -> None:
    """Ignore the result of a truncation: memory has no failures."""
