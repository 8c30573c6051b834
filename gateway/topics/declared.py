"""Topics at a start: makes those of the config, finishes deletions cut short by a crash."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol
from uuid import UUID

import structlog

from gateway.config.base import InvalidSettings
from gateway.config.settings import TopicConfig
from gateway.errors import GatewayError, StorageUnavailable, TopicExists
from gateway.model import DEFAULT_NAMESPACE, TopicName
from gateway.storage import OnDone
from gateway.topics.manager import Topic, TopicManager

_log = structlog.get_logger()


class TopicDeleter(Protocol):
    """Port to the broker, which deletes batches. Error of both: ``StorageUnavailable``."""

    def delete_topic(self, topic: Topic, on_done: OnDone) -> None:
        """Delete a topic that has gone from the metadata."""
        ...

    def delete(self, partition_ids: Sequence[int], on_done: OnDone) -> None:
        """Delete from the storage what was left of a topic that is gone."""
        ...


async def make_topics(topics: TopicManager, wanted: tuple[TopicConfig, ...]) -> None:
    """Create the missing topics of the config. Errors: ``InvalidSettings``."""
    for topic in wanted:
        name = TopicName(DEFAULT_NAMESPACE, topic.name)
        if topics.find(name) is not None:
            continue
        try:
            await topics.create(name, partitions=topic.partitions, configs=topic.configs)
        except TopicExists:
            continue
        except GatewayError as error:
            msg = f"topics.{topic.name}: {error}"
            raise InvalidSettings(msg) from error


def delete_partitions(topics: TopicManager, broker: TopicDeleter, topic: Topic) -> None:
    """Delete a topic that was removed from the metadata from the storage."""

    def on_done(error: StorageUnavailable | None) -> None:
        if error is None:
            topics.forget(topic.uuid)

    try:
        broker.delete_topic(topic, on_done)
    except StorageUnavailable as error:  # the next start does it: see delete_leftovers
        _log.warning(
            "topic not deleted from the storage", topic=topic.name.name, error=str(error)
        )


def forget_partitions(
    forgetters: Iterable[Callable[[Iterable[int]], None]], topic: Topic
) -> None:
    """Call ``forget`` of all parts that keep state by partition."""
    for forget in forgetters:
        forget(topic.partition_ids)


def delete_leftovers(topics: TopicManager, broker: TopicDeleter) -> None:
    """Complete topic deletions that a crash interrupted."""

    def on_done(uuid: UUID, error: StorageUnavailable | None) -> None:
        if error is None:
            topics.forget(uuid)

    for uuid, partition_ids in topics.pending_deletes().items():
        broker.delete(partition_ids, partial(on_done, uuid))
