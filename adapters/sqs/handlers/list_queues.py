"""ListQueues: the caller's queues in this region, sorted by name."""

from collections.abc import Iterator
from typing import Final

from adapters.sqs.call import Call, Result
from adapters.sqs.node import SqsNode
from adapters.sqs.queues.pagination import take_page
from gateway.auth.ports import Operation
from gateway.queues.manager import Queue
from gateway.queues.model import DEFAULT_GROUP

ACTION: Final = "ListQueues"


def handle(call: Call, node: SqsNode) -> Result:
    """Return a page of URLs of the queues that the caller may describe, if any."""
    prefix: str = call.params.get("QueueNamePrefix") or ""
    namespace = node.namespace(call.identity.account, call.identity.region)
    page, token = take_page(
        _queues(call, node, namespace, prefix), call.params, (ACTION, namespace, prefix)
    )
    result: Result = {}
    if page:
        result["QueueUrls"] = [node.url_of(call, queue) for queue in page]
    if token is not None:
        result["NextToken"] = token
    return result


def _queues(call: Call, node: SqsNode, namespace: str, prefix: str) -> Iterator[Queue]:
    for queue in node.queues.queues(namespace):
        is_listed = queue.group == DEFAULT_GROUP and queue.topic.name.name.startswith(prefix)
        if is_listed and node.allows(call, queue, Operation.DESCRIBE):
            yield queue
