"""Topics in memory beside the durable ones: their storage, and its bounds.

`storage.class=memory` keeps a topic in memory. A partition of it is bounded by the topic's
``memory.bytes.max``, all of them by `[memory] bytes_max`; see ``gateway.split_storage``.
"""

import asyncio
from pathlib import Path
from typing import Any

import structlog

from gateway.broker import Broker
from gateway.clock import Clock
from gateway.config.settings import BrokerConfig, MemoryConfig
from gateway.errors import GatewayError, StorageUnavailable
from gateway.partition import Partition
from gateway.placement import Placement
from gateway.registry import storage_class
from gateway.shard_moves import follow_owners
from gateway.split_storage import SplitStorage
from gateway.storage import StorageAdapter, StorageHost
from gateway.topics.declared import delete_leftovers, delete_partitions
from gateway.topics.manager import Topic, TopicManager

_log = structlog.get_logger()


async def open_memory(
    durable: StorageAdapter,
    host: StorageHost,
    topics: TopicManager,
    clock: Clock,
    config: MemoryConfig,
) -> SplitStorage:
    """Return an open storage with memory beside it; topics in memory are kept there."""
    memory_class: Any = storage_class("memory")
    options = memory_class.Config(bytes_max=config.bytes_max, reserve_bytes=0)
    memory = memory_class(options, data_dir=Path(), clock=clock)
    await memory.open(host)
    storage = SplitStorage(durable, memory)

    def keep(topic: Topic) -> None:
        if topic.settings.in_memory:
            storage.keep_in_memory(topic.partition_ids)

    for topic in topics.everything():
        keep(topic)
    topics.on_changed.insert(0, keep)
    return storage


def start_broker(
    storage: StorageAdapter,
    topics: TopicManager,
    placement: Placement,
    clock: Clock,
    config: BrokerConfig,
) -> Broker:
    """Return the broker, which follows owners and deleted topics, and trims topics in memory."""
    broker = Broker(storage, placement, clock, config)
    follow_owners(broker, topics)
    delete_leftovers(topics, broker)
    topics.on_deleted.append(lambda topic: delete_partitions(topics, broker, topic))
    if isinstance(storage, SplitStorage):
        storage.on_grown = MemoryTrim(broker, topics).trim_soon
    return broker


class MemoryTrim:
    """Removal of what is settled, or too much, in memory, while it is appended. Loop only.

    Retention looks at all topics now and then; memory cannot wait for it.
    """

    def __init__(self, broker: Broker, topics: TopicManager) -> None:
        self._broker = broker
        self._topics = topics
        self._loop = asyncio.get_running_loop()
        self._due: set[int] = set()
        broker.trim = self.trim

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

    def trim(self, partition: Partition) -> None:
        """Remove the messages that queues have settled, or the oldest beyond the bound."""
        settings = partition.topic.settings
        holders = self._broker.holders
        partition_id = partition.partition_id
        holders.renew(partition)
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
