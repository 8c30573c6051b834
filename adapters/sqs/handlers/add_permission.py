"""AddPermission: allow accounts some actions on a queue, by a statement of its policy."""

from typing import Final

from adapters.sqs.auth.permissions import add_permission
from adapters.sqs.call import Call, Result
from adapters.sqs.node import POLICY, SqsNode
from gateway.auth.ports import Operation

ACTION: Final = "AddPermission"


async def handle(call: Call, node: SqsNode) -> Result:
    """Add the statement."""
    return await node.changes.make(_add, call, node)


async def _add(call: Call, node: SqsNode) -> Result:
    params = call.params
    queue = node.queue_of(call, url=params["QueueUrl"])
    node.authorize(call, queue, Operation.ALTER_CONFIGS)
    document = add_permission(
        queue.attributes.get(POLICY, ""),
        label=params["Label"],
        accounts=params["AWSAccountIds"],
        actions=params["Actions"],
        arn=node.arn_of(queue),
    )
    await node.queues.alter(queue, attributes={**queue.attributes, POLICY: document})
    return {}
