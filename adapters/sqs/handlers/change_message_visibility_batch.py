"""ChangeMessageVisibilityBatch: up to ten messages, each with its own result."""

from typing import TYPE_CHECKING, Final

from adapters.sqs.call import Call, Params, Result
from adapters.sqs.errors import missing_parameter
from adapters.sqs.mapping import MS_PER_S
from adapters.sqs.messages.batch_entries import check_entries
from adapters.sqs.messages.receipt_handles import Receipt
from adapters.sqs.messages.settlement import OnSettled, serve_batch
from adapters.sqs.messages.visibility import change_error, check_timeout, check_total
from gateway.auth.ports import Operation

if TYPE_CHECKING:
    from adapters.sqs.node import SqsNode

ACTION: Final = "ChangeMessageVisibilityBatch"


def handle(call: Call, node: "SqsNode") -> Result | None:
    """Extend or end the leases; the answer comes later."""
    queue = node.queue_of(call, url=call.params["QueueUrl"])
    node.authorize(call, queue, Operation.READ)
    check_entries(call.params["Entries"], "ChangeMessageVisibilityBatchRequestEntry")
    now_unix_ms = node.clock.steady_unix_ms()
    is_fifo = node.messages.rules_of(queue).is_fifo

    def check(entry: Params, receipt: Receipt) -> None:
        timeout_s: int | None = entry.get("VisibilityTimeout")
        if timeout_s is None:
            raise missing_parameter("VisibilityTimeout")
        check_timeout(timeout_s)
        check_total(receipt, timeout_s, now_unix_ms)

    def settle(good: list[tuple[Params, Receipt]], on_done: OnSettled) -> None:
        items = [
            (receipt.delivery_id, entry["VisibilityTimeout"] * MS_PER_S)
            for entry, receipt in good
        ]
        queue.extend(items, on_done, latest_only=is_fifo)

    return serve_batch(call, node, queue, check=check, settle=settle, refusal=change_error)
