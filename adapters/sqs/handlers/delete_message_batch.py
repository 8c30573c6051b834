"""DeleteMessageBatch: up to ten messages, each with its own result."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from adapters.sqs.call import Call, Params, Result
from adapters.sqs.errors import to_sqs_error
from adapters.sqs.messages.batch_entries import check_entries
from adapters.sqs.messages.contiguous_json import all_deleted_body
from adapters.sqs.messages.receipt_handles import Receipt
from adapters.sqs.messages.settlement import OnSettled, serve_batch
from adapters.sqs.messages.visibility import delete_error
from features.queue.model import BY_TIME, SettledRange
from gateway.auth.ports import Operation
from gateway.errors import StorageUnavailable
from gateway.queues.model import Outcome

if TYPE_CHECKING:
    from adapters.sqs.node import SqsNode
    from gateway.queues.manager import Queue

ACTION: Final = "DeleteMessageBatch"


def handle(call: Call, node: "SqsNode") -> Result | None:
    """Settle the messages; the answer comes later."""
    queue = node.queue_of(call, url=call.params["QueueUrl"])
    node.authorize(call, queue, Operation.READ)
    entries: list[Params] = call.params["Entries"]
    check_entries(entries, "DeleteMessageBatchRequestEntry")
    rules = node.messages.rules_of(queue)
    # On a FIFO queue a delete also ends the receive attempt of its message.
    if call.is_json and not rules.is_fifo and _delete_contiguous(call, node, queue, entries):
        return None

    def settle(good: list[tuple[Params, Receipt]], on_done: OnSettled) -> None:
        queue.settle([(receipt.delivery_id, Outcome.ACK) for _, receipt in good], on_done)

    return serve_batch(
        call,
        node,
        queue,
        settle=settle,
        refusal=partial(delete_error, rules=rules),
    )


def _delete_contiguous(
    call: Call, node: "SqsNode", queue: "Queue", entries: Sequence[Params]
) -> bool:
    """Delete the contiguous messages of one receive; False if the handles are not exactly those."""
    receipts = node.messages.receipt_handles_of(queue)
    contiguous = receipts.decode_contiguous([entry["ReceiptHandle"] for entry in entries])
    if contiguous is None:
        return False
    number, offsets, attempt, _ = contiguous
    if not queue.holds(number, offsets, attempt, holder=BY_TIME):
        return False
    settled = (SettledRange(offsets, attempt, Outcome.ACK),)
    queue.settle_ranges(number, settled, partial(_on_deleted, call, entries))
    return True


def _on_deleted(
    call: Call,
    entries: Sequence[Params],
    _counts: Sequence[int],
    error: StorageUnavailable | None,
) -> None:
    if error is None:
        call.reply_json(all_deleted_body([entry["Id"] for entry in entries]))
    else:
        call.fail(to_sqs_error(error))
