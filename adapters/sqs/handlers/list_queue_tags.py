"""ListQueueTags: the tags of a queue."""

from typing import Final

from adapters.sqs.call import Call, Result
from adapters.sqs.node import SqsNode
from gateway.auth.ports import Operation

ACTION: Final = "ListQueueTags"


def handle(call: Call, node: SqsNode) -> Result:
    """Return all tags, if there are any."""
    queue = node.queue_of(call, url=call.params["QueueUrl"])
    node.authorize(call, queue, Operation.DESCRIBE)
    return {"Tags": dict(queue.tags)} if queue.tags else {}
