"""Holds of archives: retention waits for the group in a topic's ``archive.hold``.

What that group has not committed stays, as with any holder (``holders``). The group may
be anyone's: a Kafka consumer that copies the topic, or ``headgate pipeline archive --hold``,
which commits for a table. A partition in which it has committed nothing is held from its start,
and so is one whose positions are removed, or have expired.

Loop only.
"""

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from gateway.broker import Broker
from gateway.groups.cursors import CursorManager, Move
from gateway.groups.model import GroupName
from gateway.retention_holds import HolderKind
from gateway.topics.manager import Topic, TopicManager


class ArchiveHolds:
    """Keeps the holds of these groups at their committed offsets."""

    def __init__(self, broker: Broker, topics: TopicManager, cursors: CursorManager) -> None:
        self._storage = broker.storage
        self._holders = broker.holders
        self._topics = topics
        self._cursors = cursors
        self._groups: dict[UUID, GroupName] = {}
        """By topic, who holds it."""
        self._topic_counts: Counter[GroupName] = Counter()

    def start(self) -> None:
        """Restore the holds, before retention and compaction start.

        The cursors are loaded.
        """
        for topic in self._topics.everything():
            self._on_changed(topic)
        self._topics.on_changed.append(self._on_changed)
        self._topics.on_deleted.append(self._on_deleted)

    def _on_changed(self, topic: Topic) -> None:
        """Update the holds of a new or changed topic."""
        wanted = _group_of(topic)
        present = self._groups.get(topic.uuid)
        if present is not None and present != wanted:
            self._forget(topic, present)
        if wanted is None:
            return
        if present != wanted:
            self._groups[topic.uuid] = wanted
            self._topic_counts[wanted] += 1
            self._cursors.watchers[wanted] = self._on_moved
        for number in range(len(topic.partition_ids)):
            cursor = self._cursors.fetch(wanted, topic.uuid, number)
            self._hold(topic, wanted, number, None if cursor is None else cursor.offset)

    def _on_deleted(self, topic: Topic) -> None:
        group = self._groups.get(topic.uuid)
        if group is not None:
            self._forget(topic, group)

    def _on_moved(self, group: GroupName, moves: Sequence[Move]) -> None:
        """Move a hold after a durable commit; commits in topics without a hold are ignored."""
        for uuid, number, offset in moves:
            topic = self._topics.by_uuid(uuid)
            if topic is not None and self._groups.get(uuid) == group:
                self._hold(topic, group, number, offset)

    def _hold(self, topic: Topic, group: GroupName, number: int, offset: int | None) -> None:
        """Hold a partition at ``offset``; None: at the start of its log."""
        if number >= len(topic.partition_ids):
            return  # Whoever commits for a partition that is not there holds nothing.
        partition_id = topic.partition_ids[number]
        if offset is None:
            offset = self._storage.bounds(partition_id).start
        self._holders.hold(partition_id, _name(group), HolderKind.ARCHIVE, offset)

    def _forget(self, topic: Topic, group: GroupName) -> None:
        del self._groups[topic.uuid]
        for partition_id in topic.partition_ids:
            self._holders.release(partition_id, _name(group))
        self._topic_counts[group] -= 1
        if not self._topic_counts[group]:
            del self._topic_counts[group], self._cursors.watchers[group]


def _group_of(topic: Topic) -> GroupName | None:
    """Return the archive group of a topic; internal topics have none."""
    name = topic.settings.archive_hold
    return GroupName(topic.name.namespace, name) if name and not topic.is_internal else None


def _name(group: GroupName) -> str:
    return f"archive:{group.name}"
