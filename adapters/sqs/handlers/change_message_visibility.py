"""ChangeMessageVisibility: restart the timeout now; 0 makes the message visible at once.

On a standard queue the handle of an earlier receive works too, as in Amazon SQS, and a message
whose timeout is over becomes invisible again.
"""

from functools import partial
from typing import TYPE_CHECKING, Final

from adapters.sqs.call import Call
from adapters.sqs.mapping import MS_PER_S
from adapters.sqs.messages.settlement import answer_for_one
from adapters.sqs.messages.visibility import change_error, check_timeout, check_total
from gateway.auth.ports import Operation

if TYPE_CHECKING:
    from adapters.sqs.node import SqsNode

ACTION: Final = "ChangeMessageVisibility"


def handle(call: Call, node: "SqsNode") -> None:
    """Extend or end the lease; the answer comes later."""
    params = call.params
    queue = node.queue_of(call, url=params["QueueUrl"])
    node.authorize(call, queue, Operation.READ)
    receipt_handle: str = params["ReceiptHandle"]
    timeout_s: int = params["VisibilityTimeout"]
    check_timeout(timeout_s)
    receipt = node.messages.receipt_handles_of(queue).decode(receipt_handle)
    check_total(receipt, timeout_s, node.clock.steady_unix_ms())
    node.messages.attempts.message_changed(queue.topic.uuid, receipt.delivery_id)
    on_done = partial(answer_for_one, call, receipt_handle, change_error)
    is_fifo = node.messages.rules_of(queue).is_fifo
    items = [(receipt.delivery_id, timeout_s * MS_PER_S)]
    queue.extend(items, on_done, latest_only=is_fifo)
