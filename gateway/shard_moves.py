"""Following of owners: live partitions stop, or get a new epoch, when their shard moves."""

from collections.abc import Collection

from gateway.broker import Broker
from gateway.topics.manager import TopicManager


def follow_owners(broker: Broker, topics: TopicManager) -> None:
    """Keep the live partitions of all topics true to the broker's placement."""

    def follow(shards: Collection[int]) -> None:
        moved = frozenset(shards)
        for topic in topics.everything():
            for partition in tuple(topic.partitions):
                if partition is not None and partition.shard in moved:
                    broker.follow_owner(partition)
        for partition in broker.loaded_partitions():
            if partition.shard in moved:
                broker.follow_owner(partition)

    broker.placement.on_change.append(follow)
