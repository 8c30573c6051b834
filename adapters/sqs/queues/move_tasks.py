"""Message move tasks: handles, and look-up of the queues in their requests.

As in SQS, a handle is base64 of JSON with the task and its queue. It is no secret; permission to
cancel depends on the queue.
"""

import base64
import binascii
import json
from typing import Final, NamedTuple

from adapters.sqs.errors import RESOURCE_NOT_FOUND, SqsError, invalid_parameter
from adapters.sqs.queues.ports import QueueNode
from adapters.sqs.queues.urls import parse_queue_arn
from gateway.queues.manager import Queue

_HANDLE_CHARS_MAX: Final = 4_096


class TaskHandle(NamedTuple):
    """A decoded task handle."""

    task_id: str
    source_arn: str


def format_task_handle(handle: TaskHandle) -> str:
    """Return the handle as text for clients."""
    fields = {"taskId": handle.task_id, "sourceArn": handle.source_arn}
    return base64.b64encode(json.dumps(fields).encode()).decode()


def parse_task_handle(text: str) -> TaskHandle:
    """Return a decoded handle. Errors: ``InvalidParameterValue``."""
    try:
        fields = json.loads(base64.b64decode(text[:_HANDLE_CHARS_MAX], validate=True))
        handle = TaskHandle(fields["taskId"], fields["sourceArn"])
    except (ValueError, binascii.Error, KeyError, TypeError, RecursionError):
        handle = None
    if handle is None or not all(isinstance(field, str) for field in handle):
        msg = "Value for parameter TaskHandle is invalid."
        raise invalid_parameter(msg)
    return handle


def queue_of_arn(node: QueueNode, arn: str, parameter: str) -> Queue:
    """Return the queue of an ARN.

    Errors: ``InvalidParameterValue`` (no ARN of a queue), ``ResourceNotFoundException``.
    """
    if parse_queue_arn(arn) is None:
        msg = (
            f"You must use this format to specify the {parameter}: "
            "arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
        )
        raise invalid_parameter(msg)
    queue = node.queue_by_arn(arn)
    if queue is None:
        msg = f"The resource that you specified for the {parameter} parameter doesn't exist."
        raise SqsError(RESOURCE_NOT_FOUND, msg)
    return queue
