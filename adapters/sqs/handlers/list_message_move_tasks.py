"""ListMessageMoveTasks: the latest tasks of a dead-letter queue, newest first."""

from typing import Any, Final

from adapters.sqs.call import Call, Result
from adapters.sqs.errors import invalid_parameter
from adapters.sqs.node import SqsNode
from adapters.sqs.queues.move_tasks import TaskHandle, format_task_handle, queue_of_arn
from gateway.auth.ports import Operation
from gateway.queues.redrive import Redrive

ACTION: Final = "ListMessageMoveTasks"
RESULTS_MAX: Final = 10


def handle(call: Call, node: SqsNode) -> Result:
    """Return the tasks; they do not survive a restart of the node."""
    source = queue_of_arn(node, call.params["SourceArn"], "SourceArn")
    node.authorize(call, source, Operation.DESCRIBE)
    wanted = call.params.get("MaxResults")
    count = 1 if wanted is None else wanted
    if not 1 <= count <= RESULTS_MAX:
        msg = (
            f"Value {count} for parameter MaxResults is invalid. "
            f"Reason: Must be between 1 and {RESULTS_MAX}, if provided."
        )
        raise invalid_parameter(msg)
    arn = node.arn_of(source)
    tasks = node.queues.redrives.of(source)[:count]
    return {"Results": [_describe(node, task, arn) for task in tasks]}


def _describe(node: SqsNode, task: Redrive, source_arn: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "Status": task.status,
        "SourceArn": source_arn,
        "ApproximateNumberOfMessagesMoved": task.moved,
        "ApproximateNumberOfMessagesToMove": task.total_at_start,
        "StartedTimestamp": task.started_unix_ms,
    }
    if task.status == "RUNNING":
        found["TaskHandle"] = format_task_handle(TaskHandle(task.handle, source_arn))
    if task.destination is not None:
        found["DestinationArn"] = node.arn_of_name(task.destination)
    if task.rate_per_s is not None:
        found["MaxNumberOfMessagesPerSecond"] = task.rate_per_s
    if task.status == "FAILED":
        found["FailureReason"] = task.failure
    return found
