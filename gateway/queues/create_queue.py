"""Creation of a queue with its own topic, or on an existing one."""

from collections.abc import Mapping
from typing import Final

from features.queue.model import Order
from gateway.errors import GatewayError, InvalidRequest, PolicyViolation
from gateway.model import TopicName
from gateway.queues.manager import Queue, QueueManager
from gateway.queues.model import DEFAULT_GROUP, QueueSettings
from gateway.topics.manager import Topic, TopicManager

FIFO_SUFFIX: Final = ".fifo"  # whoever names a queue so expects order, as SQS's clients do
# What all queue groups have settled goes after five minutes: for so long the log can tell which
# ids were sent twice, as SQS's FIFO queues promise. The size is SQS's 1 MiB, and headers.
QUEUE_TOPIC_CONFIGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "queue",
    "queue.keep.ms": "300000",
    "max.message.bytes": "1114112",
}


def check_order(name: TopicName, settings: QueueSettings) -> None:
    """Refuse a queue name that promises an order which the settings do not provide."""
    if name.name.endswith(FIFO_SUFFIX) and settings.order is not Order.KEY:
        raise InvalidRequest(f"a queue whose name ends in {FIFO_SUFFIX} has the order key")


async def make_queue(  # noqa: PLR0913 - what makes one queue differ from another
    queues: QueueManager,
    topics: TopicManager,
    name: TopicName,
    settings: QueueSettings,
    *,
    group: str = DEFAULT_GROUP,
    partitions: int | None = None,
    from_start: bool = False,
    attributes: Mapping[str, str] | None = None,
    tags: Mapping[str, str] | None = None,
) -> Queue:
    """Make a queue, and its topic if there is none; that topic is deleted with the queue.

    On a topic that is there, the queue begins at its end, or with ``from_start`` at what is
    left of its start, and ``partitions`` means nothing; ``is_left_over`` says when such a topic
    goes with the queue nonetheless. Errors: ``InvalidRequest`` for a name
    that promises an order that the settings do not keep, ``PolicyViolation`` for internal
    topics; those of ``TopicManager.create`` and ``QueueManager.create``.
    """
    check_order(name, settings)
    topic = topics.find(name)
    if topic is not None and topic.is_internal:
        raise PolicyViolation(f"topic {name.name} is internal")
    owns_topic = topic is None or is_left_over(queues, topic)
    if topic is None:
        topic = await topics.create(name, partitions=partitions, configs=QUEUE_TOPIC_CONFIGS)
    try:
        return await queues.create(
            topic,
            settings,
            group=group,
            attributes=dict(attributes or {}),
            tags=dict(tags or {}),
            owns_topic=owns_topic,
            from_start=from_start,
        )
    except GatewayError:
        # Or the next try would find a topic of somebody else. Who overtook us has it now.
        if owns_topic and is_left_over(queues, topic):
            await topics.delete(name)
        raise


def is_left_over(queues: QueueManager, topic: Topic) -> bool:
    """Say whether a topic is left over from a crash before its queue was made."""
    return topic.configs == QUEUE_TOPIC_CONFIGS and not any(
        queue.topic is topic for queue in queues.everything()
    )
