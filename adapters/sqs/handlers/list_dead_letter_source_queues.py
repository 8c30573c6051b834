"""ListDeadLetterSourceQueues: the queues that have a queue as dead-letter queue."""

from typing import Final

from adapters.sqs.call import Call, Result
from adapters.sqs.node import SqsNode
from adapters.sqs.queues.pagination import take_page
from gateway.auth.ports import Operation
from gateway.queues.model import DEFAULT_GROUP

ACTION: Final = "ListDeadLetterSourceQueues"


def handle(call: Call, node: SqsNode) -> Result:
    """Return a page of URLs of the queues that the caller may describe."""
    queue = node.queue_of(call, url=call.params["QueueUrl"])
    node.authorize(call, queue, Operation.DESCRIBE)
    name = queue.topic.name
    sources = sorted(
        (
            source
            for source in node.queues.sources_of(name)
            if source.group == DEFAULT_GROUP and node.allows(call, source, Operation.DESCRIBE)
        ),
        key=lambda source: source.topic.name.name,
    )
    page, token = take_page(iter(sources), call.params, (ACTION, *name))
    result: Result = {"queueUrls": [node.url_of(call, source) for source in page]}
    if token is not None:
        result["NextToken"] = token
    return result
