"""Answers to deletes and visibility changes, of one message or of a batch."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from adapters.sqs.call import Call, Params, Result
from adapters.sqs.errors import SqsError, to_sqs_error
from adapters.sqs.messages.batch_entries import batch_result, failed_entry
from adapters.sqs.messages.receipt_handles import Receipt
from features.queue.model import Result as Settled
from gateway.errors import StorageUnavailable, as_value

if TYPE_CHECKING:
    from adapters.sqs.messages.ports import MessageNode
    from gateway.queues.manager import Queue

Check = Callable[[Params, Receipt], None]
Refusal = Callable[[Settled, str], SqsError | None]
OnSettled = Callable[[list[Settled], StorageUnavailable | None], None]
Settle = Callable[[list[tuple[Params, Receipt]], OnSettled], None]


def answer_for_one(
    call: Call,
    receipt_handle: str,
    refusal: Refusal,
    results: list[Settled],
    error: StorageUnavailable | None,
) -> None:
    """Answer for one message, which has been settled; ``refusal`` as in ``serve_batch``."""
    if error is not None:
        call.fail(to_sqs_error(error))
        return
    refused = refusal(results[0], receipt_handle)
    if refused is None:
        call.reply({})
    else:
        call.fail(refused)


def serve_batch(
    call: Call,
    node: "MessageNode",
    queue: "Queue",
    *,
    check: Check | None = None,
    settle: Settle,
    refusal: Refusal,
) -> Result | None:
    """Settle the entries with valid handles that pass ``check``, in one call.

    ``refusal`` returns the error for a result other than DONE, or None. The answer comes later,
    unless all entries fail.
    """
    failed: list[Result] = []
    good: list[tuple[Params, Receipt]] = []
    decode = node.messages.receipt_handles_of(queue).decode
    for entry in call.params["Entries"]:
        try:
            receipt = decode(entry["ReceiptHandle"])
            if check is not None:
                check(entry, receipt)
        except SqsError as error:
            failed.append(failed_entry(entry["Id"], as_value(error)))
        else:
            good.append((entry, receipt))
    attempts = node.messages.attempts
    if attempts:  # only FIFO queues have any
        for _, receipt in good:
            attempts.message_changed(queue.topic.uuid, receipt.delivery_id)
    if not good:
        return batch_result([], failed)
    settle(good, partial(_on_settled, call, good, failed, refusal))
    return None


def _on_settled(  # noqa: PLR0917 - the parts of a batch's answer
    call: Call,
    good: list[tuple[Params, Receipt]],
    failed: list[Result],
    refusal: Refusal,
    results: list[Settled],
    error: StorageUnavailable | None,
) -> None:
    if error is not None:
        call.fail(to_sqs_error(error))
        return
    successful: list[Result] = []
    for (entry, _), result in zip(good, results, strict=True):
        is_done = result is Settled.DONE
        refused = None if is_done else refusal(result, entry["ReceiptHandle"])
        if refused is None:
            successful.append({"Id": entry["Id"]})
        else:
            failed.append(failed_entry(entry["Id"], refused))
    call.reply(batch_result(successful, failed))
