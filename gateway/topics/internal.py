"""Topics of internal streams: a partition for each shard."""

from collections.abc import Mapping

from gateway.errors import TopicExists
from gateway.model import TopicName
from gateway.topics.manager import Topic, TopicManager


async def internal_topic(
    topics: TopicManager, name: TopicName, shard_count: int, configs: Mapping[str, str]
) -> Topic:
    """Return the topic of an internal stream, with a partition for each shard at least.

    It may have more: partitions stay when a data directory gets fewer shards.
    """
    topic = topics.find(name)
    if topic is None:
        try:
            return await topics.create(
                name, partitions=shard_count, configs=configs, internal=True
            )
        except TopicExists:  # another node was faster
            topic = topics.get(name)
    if len(topic.partition_ids) < shard_count:
        topic = await topics.add_partitions(name, shard_count, internal=True)
    return topic
