"""Queues declared in the config: a start makes the missing ones."""

from collections.abc import Iterator, Sequence

from gateway.config.base import InvalidSettings
from gateway.config.queues import DeclaredQueue
from gateway.errors import GatewayError
from gateway.model import DEFAULT_NAMESPACE, TopicName
from gateway.queues.create_queue import FIFO_SUFFIX, make_queue
from gateway.queues.manager import QueueManager
from gateway.queues.model import QueueSettings
from gateway.topics.manager import TopicManager


async def make_queues(
    queues: QueueManager, topics: TopicManager, wanted: Sequence[DeclaredQueue]
) -> None:
    """Create the missing queues of the config, with their topics and dead-letter topics.

    A queue that is there keeps the settings that it has been given. Errors:
    ``InvalidSettings``; ``StorageUnavailable`` and others that may be gone at the next start.
    """
    for declared in (*wanted, *_dead_letter_queues(wanted)):
        name = TopicName(DEFAULT_NAMESPACE, declared.name)
        if queues.find(name) is not None:
            continue
        values = declared.model_dump(exclude={"name", "partitions", "declared"})
        settings = QueueSettings.model_validate(values)
        try:
            await make_queue(queues, topics, name, settings, partitions=declared.partitions)
        except GatewayError as error:
            if error.retriable:
                raise
            raise InvalidSettings(f"queues.{declared.name}: {error}") from error


def _dead_letter_queues(wanted: Sequence[DeclaredQueue]) -> Iterator[DeclaredQueue]:
    """Yield a queue for every dead-letter topic that is not declared itself."""
    named = {queue.name for queue in wanted}
    for queue in wanted:
        if queue.dead_letter_topic and queue.dead_letter_topic not in named:
            named.add(queue.dead_letter_topic)
            is_fifo = queue.dead_letter_topic.endswith(FIFO_SUFFIX)
            yield DeclaredQueue(
                name=queue.dead_letter_topic, order="key" if is_fifo else "none"
            )
