"""TagQueue: add tags to a queue, or replace their values."""

from typing import Final

from adapters.sqs.call import Call, Result
from adapters.sqs.errors import missing_parameter
from adapters.sqs.node import SqsNode
from adapters.sqs.queues.tags import merge_tags
from gateway.auth.ports import Operation

ACTION: Final = "TagQueue"


async def handle(call: Call, node: SqsNode) -> Result:
    """Add all tags, or none."""
    return await node.changes.make(_tag, call, node)


async def _tag(call: Call, node: SqsNode) -> Result:
    queue = node.queue_of(call, url=call.params["QueueUrl"])
    node.authorize(call, queue, Operation.ALTER)
    added: dict[str, str] = call.params["Tags"]
    if not added:
        raise missing_parameter("Tags")
    await node.queues.alter(queue, tags=merge_tags(queue.topic.name.name, queue.tags, added))
    return {}
