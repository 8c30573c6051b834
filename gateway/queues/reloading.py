"""Queues that other nodes have made, changed or deleted."""

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from gateway.metadata.change_model import parts_of
from gateway.metadata.store import MetadataStore
from gateway.queues.model import QueueRow
from gateway.queues.purge_offsets import parse_purged
from gateway.queues.queue import Queue
from gateway.topics.manager import Topic, TopicManager


class ShownQueues(Protocol):
    """Manager of queues, as this uses it."""

    def everything(self) -> Sequence[Queue]:
        """Return all queues."""
        ...

    def add(self, topic: Topic, row: QueueRow) -> Queue:
        """Show a queue that another node has stored."""
        ...

    def set_row(self, queue: Queue, row: QueueRow) -> None:
        """Show a queue's changed row."""
        ...

    def drop(self, queue: Queue) -> None:
        """Remove a queue that is not stored."""
        ...


async def reload_queues(
    queues: ShownQueues,
    topics: TopicManager,
    metadata: MetadataStore,
    keys: frozenset[str] | None,
) -> None:
    """Make queues equal to their stored rows; see ``gateway.metadata.feed.Reload``.

    A key names a topic with all its queues. Those of a topic that is not shown yet come with a
    later revision.
    """
    uuids = None if keys is None else {UUID(parts_of(key)[0]) for key in keys}
    rows = {(row.topic_uuid, row.group): row for row in await metadata.queues(uuids)}
    for queue in queues.everything():
        if queue.topic.is_transient or not (uuids is None or queue.topic.uuid in uuids):
            continue
        row = rows.pop((queue.topic.uuid, queue.group), None)
        if row is None:
            queues.drop(queue)
        elif row != queue.row:
            queues.set_row(queue, row)
            if queue.is_away:
                queue.purged_ends = parse_purged(row.attributes)
    for row in rows.values():
        topic = topics.by_uuid(row.topic_uuid)
        if topic is not None:
            queues.add(topic, row)
