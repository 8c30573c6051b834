"""Topics in memory beside the durable ones: their storage, and its bounds.

`storage.class=memory` keeps a topic in memory. A partition of it is bounded by the topic's
``memory.bytes.max``, all of them by `[memory] bytes_max`; see ``gateway.split_storage``.
"""

from pathlib import Path
from typing import Any

from gateway.broker import Broker
from gateway.clock import Clock
from gateway.config.settings import BrokerConfig, MemoryConfig
from gateway.monitoring.topic_traffic import TopicTraffic
from gateway.placement import Placement
from gateway.registry import storage_class
from gateway.shard_moves import follow_owners
from gateway.split_storage import SplitStorage
from gateway.storage import StorageAdapter, StorageHost
from gateway.topics.declared import delete_leftovers, delete_partitions
from gateway.topics.manager import Topic, TopicManager
from gateway.upkeep.memory_trim import MemoryTrim


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


def start_broker(  # noqa: PLR0917 - the parts of the kernel before it
    storage: StorageAdapter,
    topics: TopicManager,
    placement: Placement,
    clock: Clock,
    config: BrokerConfig,
    traffic: TopicTraffic | None = None,
) -> Broker:
    """Return the broker, which follows owners and deleted topics, and trims topics in memory."""
    broker = Broker(storage, placement, clock, config, traffic)
    follow_owners(broker, topics)
    delete_leftovers(topics, broker)
    topics.on_deleted.append(lambda topic: delete_partitions(topics, broker, topic))
    if isinstance(storage, SplitStorage):
        broker.memory.check_room = storage.check_memory
        storage.on_grown = MemoryTrim(broker, topics).trim_soon
    return broker
