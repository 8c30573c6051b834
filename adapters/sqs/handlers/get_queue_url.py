"""GetQueueUrl: the URL of a queue by its name."""

from typing import Final

from adapters.sqs.call import Call, Result
from adapters.sqs.errors import no_queue
from adapters.sqs.node import SqsNode
from gateway.auth.ports import Operation
from gateway.model import TopicName

ACTION: Final = "GetQueueUrl"


def handle(call: Call, node: SqsNode) -> Result:
    """Return the URL of the caller's queue, or of one of ``QueueOwnerAWSAccountId``."""
    account = call.params.get("QueueOwnerAWSAccountId") or call.identity.account
    namespace = node.namespace(account, call.identity.region)
    queue = node.queues.find(TopicName(namespace, call.params["QueueName"]))
    if queue is None:
        raise no_queue()
    node.authorize(call, queue, Operation.DESCRIBE)
    return {"QueueUrl": node.url_of(call, queue)}
