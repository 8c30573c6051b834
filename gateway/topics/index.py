"""Topics in memory, by name, uuid or partition id. Loop only."""

from bisect import bisect_right
from typing import Any
from uuid import UUID

from gateway.errors import TopicNotFound
from gateway.metadata.store import PartitionRange
from gateway.model import PartitionIdentity, TopicName
from gateway.monitoring.topic_traffic import UNCOUNTED, Traffic
from gateway.topics.configs import TopicSettings


class Topic:
    """Topic, changed in place by the ``TopicManager``; deleted ones are not found.

    ``partition_ids`` and ``partitions`` have one item per partition, by number; ``partitions``
    is the broker's, which fills it when a partition is first used, and sets ``traffic`` then.
    ``configs`` are the overrides. ``is_transient``: it has no row in the metadata store, and ends
    with the process.
    """

    __slots__ = (
        "configs",
        "created_unix_ms",
        "is_internal",
        "is_transient",
        "name",
        "partition_ids",
        "partitions",
        "settings",
        "traffic",
        "uuid",
    )

    def __init__(  # noqa: PLR0913 - by keyword
        self,
        uuid: UUID,
        name: TopicName,
        *,
        configs: dict[str, str],
        settings: TopicSettings,
        is_internal: bool,
        created_unix_ms: int,
        is_transient: bool = False,
    ) -> None:
        self.uuid = uuid
        self.name = name
        self.configs = configs
        self.settings = settings
        self.is_internal = is_internal
        self.is_transient = is_transient
        self.created_unix_ms = created_unix_ms
        self.partition_ids: list[int] = []
        self.partitions: list[Any] = []
        self.traffic: Traffic = UNCOUNTED

    def __repr__(self) -> str:
        """Return the name and the number of partitions, for logs."""
        return f"Topic({self.name.namespace}/{self.name.name}, {len(self.partition_ids)})"

    def extend(self, added: PartitionRange) -> None:
        """Append partitions after the existing ones."""
        assert added.first_number == len(self.partition_ids)
        first = added.first_partition_id
        self.partition_ids.extend(range(first, first + added.length))
        self.partitions.extend([None] * added.length)


class TopicIndex:
    """All topics, and the identities of their and of recently deleted partitions."""

    def __init__(self) -> None:
        self._by_name: dict[TopicName, Topic] = {}
        self._by_uuid: dict[UUID, Topic] = {}
        self._by_folded: dict[TopicName, TopicName] = {}
        self._sorted: dict[str, list[Topic]] = {}
        # Two parallel lists, sorted by first partition id: an item per range, not per
        # partition.
        self._firsts: list[int] = []
        self._ranges: list[tuple[PartitionRange, UUID, TopicName]] = []
        self._removed: dict[UUID, list[PartitionRange]] = {}
        self._transient: set[UUID] = set()  # of the removed topics, those not stored
        self.partition_count = 0
        self.internal_partition_count = 0

    def find(self, name: TopicName) -> Topic | None:
        """Return the topic of that name."""
        return self._by_name.get(name)

    def by_uuid(self, uuid: UUID) -> Topic | None:
        """Return the topic of that uuid."""
        return self._by_uuid.get(uuid)

    def sorted(self, namespace: str) -> list[Topic]:
        """Return a namespace's topics sorted by name. The list must not be changed."""
        if namespace not in self._sorted:
            self._sorted[namespace] = sorted(
                (topic for name, topic in self._by_name.items() if name.namespace == namespace),
                key=lambda topic: topic.name.name,
            )
        return self._sorted[namespace]

    def everything(self) -> list[Topic]:
        """Return all topics of all namespaces, in no order."""
        return list(self._by_name.values())

    def colliding(self, name: TopicName) -> TopicName | None:
        """Return a topic that Kafka's metrics could not tell apart (``.`` is ``_``)."""
        other = self._by_folded.get(_fold(name))
        return None if other == name else other

    def identify(self, partition_id: int) -> PartitionIdentity:
        """Return the identity of a partition id. Errors: ``TopicNotFound``."""
        at = bisect_right(self._firsts, partition_id) - 1
        if at >= 0:
            part, uuid, name = self._ranges[at]
            index = partition_id - part.first_partition_id
            if index < part.length:
                return PartitionIdentity(partition_id, uuid, name, part.first_number + index)
        msg = f"partition id {partition_id} is not known"
        raise TopicNotFound(msg)

    def removed_ids(self) -> dict[UUID, list[int]]:
        """Return the partition ids of removed topics that are still known, by topic uuid."""
        return {
            uuid: [
                partition_id
                for part in ranges
                for partition_id in range(
                    part.first_partition_id, part.first_partition_id + part.length
                )
            ]
            for uuid, ranges in self._removed.items()
        }

    def add(self, topic: Topic) -> None:
        """Add a topic without partitions."""
        self._by_name[topic.name] = topic
        self._by_uuid[topic.uuid] = topic
        if "." in topic.name.name or "_" in topic.name.name:
            self._by_folded[_fold(topic.name)] = topic.name
        self._sorted.pop(topic.name.namespace, None)

    def add_partitions(self, topic: Topic, added: PartitionRange) -> None:
        """Add partitions to a topic."""
        topic.extend(added)
        self.partition_count += added.length
        if topic.is_internal:
            self.internal_partition_count += added.length
        self._insert(added, topic.uuid, topic.name)

    def add_removed(self, gone: PartitionRange, uuid: UUID, name: TopicName) -> None:
        """Add the partition identities of a deleted topic."""
        self._insert(gone, uuid, name)
        self._removed.setdefault(uuid, []).append(gone)

    def remove(self, topic: Topic) -> None:
        """Remove a topic; its partition identities stay until ``forget``."""
        del self._by_name[topic.name]
        del self._by_uuid[topic.uuid]
        if self._by_folded.get(_fold(topic.name)) == topic.name:
            del self._by_folded[_fold(topic.name)]
        self.partition_count -= len(topic.partition_ids)
        if topic.is_internal:
            self.internal_partition_count -= len(topic.partition_ids)
        self._sorted.pop(topic.name.namespace, None)
        self._removed[topic.uuid] = self._ranges_of(topic)
        if topic.is_transient:
            self._transient.add(topic.uuid)

    def forget(self, uuid: UUID) -> bool:
        """Drop the identities of a removed topic's partitions; say whether it was stored."""
        for gone in self._removed.pop(uuid, ()):
            at = bisect_right(self._firsts, gone.first_partition_id) - 1
            del self._firsts[at]
            del self._ranges[at]
        is_transient = uuid in self._transient
        self._transient.discard(uuid)
        return not is_transient

    def _insert(self, added: PartitionRange, uuid: UUID, name: TopicName) -> None:
        at = bisect_right(self._firsts, added.first_partition_id)
        self._firsts.insert(at, added.first_partition_id)
        self._ranges.insert(at, (added, uuid, name))

    def _ranges_of(self, topic: Topic) -> list[PartitionRange]:
        ranges: list[PartitionRange] = []
        number = 0
        while number < len(topic.partition_ids):
            at = bisect_right(self._firsts, topic.partition_ids[number]) - 1
            ranges.append(self._ranges[at][0])
            number += ranges[-1].length
        return ranges


def _fold(name: TopicName) -> TopicName:
    return TopicName(name.namespace, name.name.replace(".", "_"))
