"""CancelMessageMoveTask: stop a task; messages that were moved stay in their new queue."""

from typing import Final

from adapters.sqs.call import Call, Result
from adapters.sqs.errors import RESOURCE_NOT_FOUND, UNSUPPORTED_OPERATION, SqsError
from adapters.sqs.node import SqsNode
from adapters.sqs.queues.move_tasks import parse_task_handle, queue_of_arn
from gateway.auth.ports import Operation

ACTION: Final = "CancelMessageMoveTask"


def handle(call: Call, node: SqsNode) -> Result:
    """Cancel the task; return the count of messages that it has moved."""
    named = parse_task_handle(call.params["TaskHandle"])
    queue = queue_of_arn(node, named.source_arn, "SourceArn")
    node.authorize(call, queue, Operation.READ)
    redrives = node.queues.redrives
    task = next((task for task in redrives.of(queue) if task.handle == named.task_id), None)
    if task is None:
        raise SqsError(RESOURCE_NOT_FOUND, "Task does not exist.")
    if task.status != "RUNNING":
        raise SqsError(UNSUPPORTED_OPERATION, "Only active tasks can be cancelled.")
    redrives.cancel(task.handle)
    return {"ApproximateNumberOfMessagesMoved": task.moved}
