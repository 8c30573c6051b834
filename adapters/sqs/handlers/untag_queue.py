"""UntagQueue: remove tags of a queue."""

from typing import Final

from adapters.sqs.call import Call, Result
from adapters.sqs.errors import missing_parameter
from adapters.sqs.node import SqsNode
from adapters.sqs.queues.tags import check_tag_keys
from gateway.auth.ports import Operation

ACTION: Final = "UntagQueue"


async def handle(call: Call, node: SqsNode) -> Result:
    """Remove tags by key; unknown keys are ignored."""
    return await node.changes.make(_untag, call, node)


async def _untag(call: Call, node: SqsNode) -> Result:
    queue = node.queue_of(call, url=call.params["QueueUrl"])
    node.authorize(call, queue, Operation.ALTER)
    gone: list[str] = call.params["TagKeys"]
    if not gone:
        raise missing_parameter("TagKeys")
    check_tag_keys(gone)
    tags = {key: value for key, value in queue.tags.items() if key not in gone}
    await node.queues.alter(queue, tags=tags)
    return {}
