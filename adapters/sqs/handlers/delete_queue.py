"""DeleteQueue: the queue with what waits in it, and its topic when that was made for it."""

from typing import Final

from adapters.sqs.call import Call, Result
from adapters.sqs.node import SqsNode
from gateway.auth.ports import Operation

ACTION: Final = "DeleteQueue"


async def handle(call: Call, node: SqsNode) -> Result:
    """Delete the queue; its name cannot be used for a while."""
    return await node.changes.make(_delete(call, node))


async def _delete(call: Call, node: SqsNode) -> Result:
    queue = node.queue_of(call, url=call.params["QueueUrl"])
    node.authorize(call, queue, Operation.DELETE)
    name = queue.topic.name
    await node.queues.delete(queue)
    node.deleted.add(name)
    node.purged.discard(name)
    return {}
