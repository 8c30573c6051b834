"""GetQueueAttributes: settings of a queue and counts of its messages."""

from typing import Final

from adapters.sqs.call import Call, Result
from adapters.sqs.errors import INVALID_ATTRIBUTE_NAME, SqsError
from adapters.sqs.node import SqsNode
from adapters.sqs.queues.attribute_specs import ALL, NAMES
from adapters.sqs.queues.attribute_values import describe
from adapters.sqs.queues.changes import target_arn_of
from gateway.auth.ports import Operation

ACTION: Final = "GetQueueAttributes"


def handle(call: Call, node: SqsNode) -> Result:
    """Return the named attributes that the queue has; none without names."""
    queue = node.queue_of(call, url=call.params["QueueUrl"])
    node.authorize(call, queue, Operation.DESCRIBE_CONFIGS)
    wanted: list[str] = call.params.get("AttributeNames") or []
    for name in wanted:
        if name not in NAMES and name != ALL:
            raise SqsError(INVALID_ATTRIBUTE_NAME, f"Unknown Attribute {name[:200]}.")
    if not wanted:
        return {}
    counts = queue.counts()
    found = describe(
        queue,
        arn=node.arn_of(queue),
        target_arn=target_arn_of(node, queue.topic.name, queue.settings.dead_letter_topic),
        counts=counts._replace(delayed=counts.delayed + node.delays.count(queue.topic)),
    )
    if ALL not in wanted:
        found = {name: found[name] for name in wanted if name in found}
    return {"Attributes": found} if found else {}
