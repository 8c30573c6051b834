"""Checks of visibility timeouts: 0 to 43,200 seconds, also in total since the receive."""

from typing import Final

from adapters.sqs.errors import MESSAGE_NOT_INFLIGHT, SqsError, invalid_parameter
from adapters.sqs.mapping import MS_PER_S
from adapters.sqs.messages.receipt_handles import Receipt
from adapters.sqs.queues.queue_rules import QueueRules
from features.queue.model import Result as Settled

TIMEOUT_S_MAX: Final = 43_200


def check_timeout(timeout_s: int) -> None:
    """Check a VisibilityTimeout. Error: ``SqsError``."""
    if not 0 <= timeout_s <= TIMEOUT_S_MAX:
        raise invalid_parameter(
            f"Value {timeout_s} for parameter VisibilityTimeout is invalid. Reason: Must be "
            f"between 0 and {TIMEOUT_S_MAX}, if provided.",
        )


def check_total(receipt: Receipt, timeout_s: int, now_unix_ms: int) -> None:
    """Check that a timeout ends within 12 hours of the receive. Error: ``SqsError``."""
    ends_unix_ms = now_unix_ms + timeout_s * MS_PER_S
    if ends_unix_ms > receipt.received_unix_ms + TIMEOUT_S_MAX * MS_PER_S:
        raise invalid_parameter(
            f"Value {timeout_s} for parameter VisibilityTimeout is invalid. Reason: Total "
            f"VisibilityTimeout for the message is beyond the limit [{TIMEOUT_S_MAX} seconds].",
        )


def change_error(result: Settled, handle: str) -> SqsError | None:
    """Return the error for a visibility that could not be changed, or None."""
    if result is Settled.DONE:
        return None
    if result is Settled.STALE:
        return SqsError(MESSAGE_NOT_INFLIGHT, "The specified message isn't in flight.")
    return invalid_parameter(
        f"Value {handle} for parameter ReceiptHandle is invalid. Reason: Message does not exist "
        "or is not available for visibility timeout change.",
    )


def delete_error(result: Settled, handle: str, rules: QueueRules) -> SqsError | None:
    """Return the error for a message that could not be deleted, or None for success.

    A standard queue answers an old handle with success in any case; a FIFO queue refuses a handle
    whose visibility timeout is over.
    """
    if result is Settled.STALE and rules.is_fifo:
        return invalid_parameter(
            f"Value {handle} for parameter ReceiptHandle is invalid. Reason: The receipt handle "
            "has expired.",
        )
    return None
