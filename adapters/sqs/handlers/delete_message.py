"""DeleteMessage: delete a message; answered when the journal has it."""

from functools import partial
from typing import TYPE_CHECKING, Final

from adapters.sqs.call import Call
from adapters.sqs.messages.settlement import answer_for_one
from adapters.sqs.messages.visibility import delete_error
from gateway.auth.ports import Operation
from gateway.queues.model import Outcome

if TYPE_CHECKING:
    from adapters.sqs.node import SqsNode

ACTION: Final = "DeleteMessage"


def handle(call: Call, node: "SqsNode") -> None:
    """Settle the message; the answer comes later."""
    params = call.params
    queue = node.queue_of(call, url=params["QueueUrl"])
    node.authorize(call, queue, Operation.READ)
    receipt_handle: str = params["ReceiptHandle"]
    receipt = node.messages.receipt_handles_of(queue).decode(receipt_handle)
    rules = node.messages.rules_of(queue)
    if rules.is_fifo:
        node.messages.attempts.message_changed(queue.topic.uuid, receipt.delivery_id)
    on_done = partial(answer_for_one, call, receipt_handle, partial(delete_error, rules=rules))
    queue.settle([(receipt.delivery_id, Outcome.ACK)], on_done)
