"""DeleteQueue: delete a queue with its messages, and its topic if the queue created it."""

from typing import Final

from adapters.sqs.call import Call, Result
from adapters.sqs.node import SqsNode
from gateway.auth.ports import Operation

ACTION: Final = "DeleteQueue"


async def handle(call: Call, node: SqsNode) -> Result:
    """Delete the queue; its name is barred for ``deleted_name_s``."""
    return await node.changes.make(_delete, call, node)


async def _delete(call: Call, node: SqsNode) -> Result:
    queue = node.queue_of(call, url=call.params["QueueUrl"])
    node.authorize(call, queue, Operation.DELETE)
    name = queue.topic.name
    await node.queues.delete(queue)
    node.deleted.add(name)
    node.purged.discard(name)
    return {}
