"""SetQueueAttributes: change attributes of a queue; all of a request, or none."""

from typing import Final

from adapters.sqs.call import Call, Result
from adapters.sqs.errors import missing_parameter
from adapters.sqs.node import SqsNode
from adapters.sqs.queues.attributes import changed_settings, merge, parse_change
from adapters.sqs.queues.changes import check_fifo_stays, dead_letter_finder
from adapters.sqs.queues.names import is_fifo_name
from gateway.auth.ports import Operation

ACTION: Final = "SetQueueAttributes"


async def handle(call: Call, node: SqsNode) -> Result:
    """Change the named attributes."""
    return await node.changes.make(_set, call, node)


async def _set(call: Call, node: SqsNode) -> Result:
    queue = node.queue_of(call, url=call.params["QueueUrl"])
    node.authorize(call, queue, Operation.ALTER_CONFIGS)
    given: dict[str, str] = call.params["Attributes"]
    if not given:
        raise missing_parameter("Attributes")
    name = queue.topic.name
    fifo = is_fifo_name(name.name)
    check_fifo_stays(given, fifo=fifo)
    change = parse_change(
        given, fifo=fifo, find_target=dead_letter_finder(node, name, call, queue)
    )
    await node.queues.alter(
        queue,
        settings=changed_settings(queue.settings, change),
        attributes=merge(queue.attributes, change),
    )
    return {}
