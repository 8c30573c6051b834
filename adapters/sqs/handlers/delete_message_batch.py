"""DeleteMessageBatch: up to ten messages; each is answered for itself."""

from typing import TYPE_CHECKING, Final

from adapters.sqs.batches import check_entries
from adapters.sqs.call import Call, Params, Result
from adapters.sqs.receipts import Receipt
from adapters.sqs.settling import OnSettled, serve_batch
from adapters.sqs.visibility import delete_error
from gateway.auth import Operation
from gateway.queue_model import Outcome

if TYPE_CHECKING:
    from adapters.sqs.node import SqsNode

ACTION: Final = "DeleteMessageBatch"


def handle(call: Call, node: "SqsNode") -> Result | None:
    """Settle the messages; it answers later."""
    queue = node.queue_of(call, url=call.params["QueueUrl"])
    node.authorize(call, queue, Operation.READ)
    check_entries(call.params["Entries"], "DeleteMessageBatchRequestEntry")
    rules = node.messages.rules_of(queue)

    def settle(good: list[tuple[Params, Receipt]], on_done: OnSettled) -> None:
        queue.settle([(receipt.delivery_id, Outcome.ACK) for _, receipt in good], on_done)

    return serve_batch(
        call,
        node,
        queue,
        settle=settle,
        refusal=lambda result, handle: delete_error(result, handle, rules),
    )
