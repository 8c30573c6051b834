"""StartMessageMoveTask: move the messages of a dead-letter queue back, or to another queue.

It runs in the background, with an optional limit of messages per second; one task per queue.
"""

from typing import Final

from adapters.sqs.auth.policy import decide
from adapters.sqs.call import Call, Result
from adapters.sqs.errors import ACCESS_DENIED, SqsError, invalid_parameter
from adapters.sqs.node import POLICY, SqsNode
from adapters.sqs.queues.move_tasks import TaskHandle, format_task_handle, queue_of_arn
from adapters.sqs.queues.names import is_fifo_name
from gateway.auth.ports import Operation
from gateway.errors import PolicyViolation
from gateway.model import TopicName
from gateway.queues.manager import Queue

ACTION: Final = "StartMessageMoveTask"
RATE_PER_S_MAX: Final = 500
IMPLIED_ACTIONS: Final = {
    Operation.READ: ("ReceiveMessage", "DeleteMessage"),
    Operation.WRITE: ("SendMessage",),
}


def handle(call: Call, node: SqsNode) -> Result:
    """Start the task and return its handle."""
    params = call.params
    source = queue_of_arn(node, params["SourceArn"], "SourceArn")
    _authorize(call, node, source, Operation.READ)
    sources = node.queues.sources_of(source.topic.name)
    if not sources:
        raise invalid_parameter("Source queue must be configured as a Dead Letter Queue.")
    destination = _destination(call, node, source)
    if destination is None:  # messages of other sources, by their headers, stay
        for origin in sources:
            _authorize(call, node, origin, Operation.WRITE)
    rate_per_s = params.get("MaxNumberOfMessagesPerSecond")
    if rate_per_s is not None and not 1 <= rate_per_s <= RATE_PER_S_MAX:
        raise invalid_parameter(
            f"Value {rate_per_s} for parameter MaxNumberOfMessagesPerSecond is invalid. "
            f"Reason: Must be between 1 and {RATE_PER_S_MAX}, if provided."
        )
    try:
        task = node.queues.redrives.start(
            source,
            destination=destination,
            rate_per_s=rate_per_s,
            origins=frozenset(origin.topic.name for origin in sources),
        )
    except PolicyViolation:
        raise invalid_parameter(
            "There is already a task running. "
            "Only one active task is allowed for a source queue arn at a given time."
        ) from None
    return {"TaskHandle": format_task_handle(TaskHandle(task.handle, node.arn_of(source)))}


def _destination(call: Call, node: SqsNode, source: Queue) -> TopicName | None:
    """Return the destination; None for the source queue of each message."""
    arn = call.params.get("DestinationArn")
    if not arn:
        return None
    queue = queue_of_arn(node, arn, "DestinationArn")
    _authorize(call, node, queue, Operation.WRITE)
    name = queue.topic.name
    if name == source.topic.name:
        raise invalid_parameter(
            "The source queue and the destination queue cannot be the same."
        )
    if is_fifo_name(name.name) != is_fifo_name(source.topic.name.name):
        raise invalid_parameter(
            "The destination queue must be same type of queue as the source."
        )
    return name


def _authorize(call: Call, node: SqsNode, queue: Queue, operation: Operation) -> None:
    """Refuse callers that may not move; a Deny for the actions that a move implies counts too."""
    node.authorize(call, queue, operation)
    document = queue.attributes.get(POLICY)
    if document is None:
        return
    arn, context = node.arn_of(queue), node.request_context(call)
    for action in IMPLIED_ACTIONS[operation]:
        if decide(document, action=action, context=context, arn=arn) is False:
            msg = f"The policy of {arn} denies sqs:{action}, which moving messages needs."
            raise SqsError(ACCESS_DENIED, msg)
