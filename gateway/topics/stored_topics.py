"""Stored topics: reload of those that other nodes have changed, end of deleted ones."""

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

import structlog

from gateway.errors import Overloaded, StorageUnavailable
from gateway.metadata.change_model import parts_of
from gateway.metadata.store import MetadataStore, TopicRow
from gateway.model import TopicName
from gateway.topics.index import Topic

_log = structlog.get_logger()


class ShownTopics(Protocol):
    """Manager of topics, as this uses it."""

    def find(self, name: TopicName) -> Topic | None:
        """Return the topic of that name."""
        ...

    def by_uuid(self, uuid: UUID) -> Topic | None:
        """Return the topic of that uuid."""
        ...

    def everything(self) -> Sequence[Topic]:
        """Return all topics."""
        ...

    def adopt(self, row: TopicRow) -> None:
        """Show a topic as it is stored."""
        ...

    def remove(self, topic: Topic) -> None:
        """Remove a topic that is not stored."""
        ...


async def reload_topics(
    topics: ShownTopics, metadata: MetadataStore, keys: frozenset[str] | None
) -> None:
    """Make topics equal to their stored rows; see ``gateway.metadata.feed.Reload``.

    A stored topic takes the place of a transient one of its name.
    """
    uuids = None if keys is None else {UUID(parts_of(key)[0]) for key in keys}
    rows = {row.uuid: row for row in await metadata.topics(uuids)}
    if uuids is None:
        known = topics.everything()
    else:
        known = [topic for uuid in uuids if (topic := topics.by_uuid(uuid)) is not None]
    for topic in known:
        if topic.uuid not in rows and not topic.is_transient:
            topics.remove(topic)
    for row in rows.values():
        if not row.ranges:  # it was stored between two statements, and comes once more
            continue
        namesake = topics.find(row.name)
        if namesake is not None and namesake.uuid != row.uuid:
            _log.warning(
                "another node has made a topic of this name", topic=row.name.name[:255]
            )
            topics.remove(namesake)
        topics.adopt(row)


async def forget_deleted(metadata: MetadataStore, uuid: UUID) -> None:
    """Forget a deleted topic, after the storage has logged the deletion of its partitions."""
    try:
        await metadata.forget_deleted(uuid)
    except (StorageUnavailable, Overloaded) as error:
        # At the next start it is deleted from the storage once more, which does nothing.
        _log.warning("deleted topic not forgotten", topic=str(uuid), error=str(error))
