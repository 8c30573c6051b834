"""RemovePermission: remove a statement of a queue's policy by its label, the Sid."""

from typing import Final

from adapters.sqs.auth.permissions import remove_permission
from adapters.sqs.call import Call, Result
from adapters.sqs.node import POLICY, SqsNode
from gateway.auth.ports import Operation

ACTION: Final = "RemovePermission"


async def handle(call: Call, node: SqsNode) -> Result:
    """Remove the statement; without statements the queue has no policy."""
    return await node.changes.make(_remove, call, node)


async def _remove(call: Call, node: SqsNode) -> Result:
    queue = node.queue_of(call, url=call.params["QueueUrl"])
    node.authorize(call, queue, Operation.ALTER_CONFIGS)
    attributes = dict(queue.attributes)
    document = remove_permission(attributes.pop(POLICY, ""), call.params["Label"])
    if document:
        attributes[POLICY] = document
    await node.queues.alter(queue, attributes=attributes)
    return {}
