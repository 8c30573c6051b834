"""CreateQueue: create a topic and a queue on it, or a queue on an existing topic.

Repeating the request returns the same queue; another value of an attribute is refused. A queue on
an existing topic of Kafka or MQTT begins at the topic's end, leaves the topic in place when it is
deleted, and may have a name that is legal for topics only, as ``orders.v1``.
"""

from typing import Final

from adapters.sqs.call import Call, Result
from adapters.sqs.errors import (
    QUEUE_DELETED_RECENTLY,
    QUEUE_NAME_EXISTS,
    UNSUPPORTED_OPERATION,
    SqsError,
)
from adapters.sqs.node import SqsNode
from adapters.sqs.queues import attribute_values
from adapters.sqs.queues.changes import (
    NewQueue,
    dead_letter_finder,
    is_fifo_requested,
    new_queue,
    target_arn_of,
)
from adapters.sqs.queues.names import check_queue_name, is_fifo_name
from gateway.auth.ports import Operation
from gateway.model import TopicName
from gateway.queues.create_queue import is_left_over, make_queue
from gateway.queues.manager import Queue

ACTION: Final = "CreateQueue"


async def handle(call: Call, node: SqsNode) -> Result:
    """Return the URL of the new or existing queue."""
    identity = call.identity
    text: str = call.params["QueueName"]
    name = TopicName(node.namespace(identity.account, identity.region), text)
    node.authorize(call, name, Operation.CREATE)
    given: dict[str, str] = call.params.get("Attributes") or {}
    fifo = is_fifo_requested(given)
    topic = node.kernel.topics.find(name)
    if topic is None or is_fifo_name(text) or fifo:
        check_queue_name(text, fifo=fifo)
    if topic is not None and topic.is_internal:
        raise SqsError(UNSUPPORTED_OPERATION, f"The name {text} is reserved.")
    tags = call.params.get("tags") or {}
    queue = node.queues.find(name)
    find_target = dead_letter_finder(node, name, call, queue)
    wanted = new_queue(text, given, tags, fifo=fifo, find_target=find_target)
    if queue is None:
        queue = await node.changes.make(_make, call, node, name, wanted)
    _check_same(node, queue, given)
    return {"QueueUrl": node.url_of(call, queue)}


async def _make(call: Call, node: SqsNode, name: TopicName, wanted: NewQueue) -> Queue:
    """Create the queue, or return the one that another request has created meanwhile."""
    queue = node.queues.find(name)
    if queue is not None:
        return queue
    if name in node.deleted:
        msg = (
            f"You must wait {node.config.deleted_name_s} seconds after deleting a queue "
            "before you can create another with the same name."
        )
        raise SqsError(QUEUE_DELETED_RECENTLY, msg)
    topics = node.kernel.topics
    topic = topics.find(name)
    if topic is not None and not is_left_over(node.queues, topic):
        # A queue that is behind keeps the topic from retention: that is a change of the topic.
        node.authorize(call, name, Operation.ALTER)
    return await make_queue(
        node.queues,
        topics,
        name,
        wanted.settings,
        partitions=node.config.queue_partitions,
        attributes=wanted.attributes,
        tags=wanted.tags,
    )


def _check_same(node: SqsNode, queue: Queue, given: dict[str, str]) -> None:
    name = queue.topic.name
    present = attribute_values.describe_settable(
        queue, target_arn=target_arn_of(node, name, queue.settings.dead_letter_topic)
    )
    different = attribute_values.find_difference(given, present)
    if different is not None:
        msg = (
            "A queue already exists with the same name and a different value for "
            f"attribute {different}"
        )
        raise SqsError(QUEUE_NAME_EXISTS, msg)
