"""Live state of the partitions that a node serves, made when it is first asked for."""

from collections.abc import Collection

from gateway.errors import NotLeader, TopicNotFound
from gateway.monitoring.topic_traffic import UNCOUNTED, TopicTraffic
from gateway.partition import Partition, not_leader
from gateway.placement import Placement, owner_id_of, shard_of
from gateway.shard_lifecycle import ShardLifecycle
from gateway.storage import StorageAdapter
from gateway.topics.manager import Topic


class LivePartitions:
    """Finds partitions; those of a shard that is loading are apart until it is open. Loop only."""

    def __init__(
        self,
        storage: StorageAdapter,
        placement: Placement,
        shards: ShardLifecycle,
        traffic: TopicTraffic,
    ) -> None:
        self._storage = storage
        self._placement = placement
        self._shards = shards
        self._traffic = traffic
        self._loaded: dict[int, Partition] = {}  # by id, of shards that are loading
        shards.on_open.append(self._serve_loaded)

    def find(self, topic: Topic, number: int) -> Partition:
        """Return a partition's live state.

        Errors: ``TopicNotFound`` for an unknown number, ``NotLeader`` for another node's.
        """
        if not 0 <= number < len(topic.partitions):
            raise TopicNotFound(f"topic {topic.name.name!r} has no partition {number}")
        partition: Partition | None = topic.partitions[number]
        return partition or self._materialise(topic, number)

    def _materialise(self, topic: Topic, number: int) -> Partition:
        placement = self._placement
        shard = shard_of(topic, number, placement)
        if shard in self._shards.loading and not topic.is_internal:
            msg = f"partition {number} of {topic.name.name} is being loaded"
            raise NotLeader(msg, owner_id=placement.node_id, epoch=placement.epoch(shard))
        partition = topic.partitions[number] = self._new_partition(topic, number, shard)
        return partition

    def _new_partition(self, topic: Topic, number: int, shard: int) -> Partition:
        placement = self._placement
        if not placement.owns(shard):
            owner_id = owner_id_of(shard, placement)
            raise not_leader(topic, number, owner_id, placement.epoch(shard))
        if topic.traffic is UNCOUNTED and not topic.is_internal:
            topic.traffic = self._traffic.of(topic.name)
        return Partition(
            topic,
            number,
            self._storage.bounds(topic.partition_ids[number]),
            leader_epoch=placement.epoch(shard),
            shard=shard,
        )

    def loaded(self, topic: Topic, number: int) -> Partition:
        """Return a partition, also of a shard that is loading: for state that is loaded with it.

        Errors: as ``find``.
        """
        shard = shard_of(topic, number, self._placement)
        if shard not in self._shards.loading:
            return self.find(topic, number)
        partition = self._loaded.get(topic.partition_ids[number])
        if partition is None:
            partition = self._new_partition(topic, number, shard)
            self._loaded[partition.partition_id] = partition
        return partition

    def _serve_loaded(self, shards: Collection[int]) -> None:
        """Serve the partitions of shards whose state is open."""
        for partition in [one for one in self._loaded.values() if one.shard in shards]:
            del self._loaded[partition.partition_id]
            topic = partition.topic
            if not partition.is_gone and topic.partitions[partition.number] is None:
                topic.partitions[partition.number] = partition

    def all_loaded(self) -> list[Partition]:
        """Return the partitions of shards that are loading, for a change of owners."""
        return list(self._loaded.values())

    def owns(self, topic: Topic, number: int) -> bool:
        """Say whether this node serves a partition, for work on all that is its own."""
        placement = self._placement
        if placement.owns_all and not self._shards.loading:
            return True
        shard = shard_of(topic, number, placement)
        return placement.owns(shard) and shard not in self._shards.loading

    def leave(self, partition: Partition) -> None:
        """Stop serving a partition whose shard went to another node."""
        partition.is_gone = True
        if self._loaded.pop(partition.partition_id, None) is not partition:
            partition.topic.partitions[partition.number] = None
