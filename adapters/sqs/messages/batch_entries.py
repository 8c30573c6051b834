"""Checks of the entries of a batch request, and answers with failed entries."""

import re
from collections.abc import Sequence
from typing import Any, Final

from adapters.sqs.call import Params, Result
from adapters.sqs.errors import (
    BATCH_ENTRY_IDS_NOT_DISTINCT,
    BATCH_REQUEST_TOO_LONG,
    EMPTY_BATCH_REQUEST,
    INVALID_BATCH_ENTRY_ID,
    TOO_MANY_ENTRIES_IN_BATCH_REQUEST,
    SqsError,
)

ENTRIES_MAX: Final = 10
BATCH_BYTES_MAX: Final = 1_048_576

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")
_IDS: Final = re.compile(r"[A-Za-z0-9_-]{1,80}(?:\n[A-Za-z0-9_-]{1,80})*")


def check_entries(entries: Sequence[Params], entry_type: str) -> None:
    """Check the count and the ids of entries. ``entry_type`` names them in the error.

    Errors: ``SqsError`` (EmptyBatchRequest, TooManyEntriesInBatchRequest, InvalidBatchEntryId,
    BatchEntryIdsNotDistinct); then none of the entries is served.
    """
    if not entries:
        raise SqsError(
            EMPTY_BATCH_REQUEST, f"There should be at least one {entry_type} in the request."
        )
    if len(entries) > ENTRIES_MAX:
        raise SqsError(
            TOO_MANY_ENTRIES_IN_BATCH_REQUEST,
            f"Maximum number of entries per request are {ENTRIES_MAX}. "
            f"You have sent {len(entries)}.",
        )
    entry_ids = [entry["Id"] for entry in entries]
    text = "\n".join(entry_ids)
    if (
        _IDS.fullmatch(text)
        and text.count("\n") == len(entry_ids) - 1  # no id has a line feed
        and len(set(entry_ids)) == len(entry_ids)
    ):
        return
    ids: set[str] = set()
    for entry_id in entry_ids:
        if not _ID.fullmatch(entry_id):
            raise SqsError(
                INVALID_BATCH_ENTRY_ID,
                "A batch entry id can only contain alphanumeric characters, hyphens and "
                "underscores. It can be at most 80 letters long.",
            )
        if entry_id in ids:
            raise SqsError(BATCH_ENTRY_IDS_NOT_DISTINCT, f"Id {entry_id} repeated.")
        ids.add(entry_id)


def check_batch_bytes(size_bytes: int) -> None:
    """Check the total bytes of all messages. Error: ``SqsError`` (BatchRequestTooLong)."""
    if size_bytes > BATCH_BYTES_MAX:
        raise SqsError(
            BATCH_REQUEST_TOO_LONG,
            f"Batch requests cannot be longer than {BATCH_BYTES_MAX} bytes. "
            f"You have sent {size_bytes} bytes.",
        )


def failed_entry(entry_id: str, error: SqsError) -> dict[str, Any]:
    """Return the element of ``Failed`` for an entry."""
    return {
        "Id": entry_id,
        "SenderFault": error.code.is_sender,
        "Code": error.code.query_code,
        "Message": error.message,
    }


def batch_result(successful: list[Result], failed: list[Result]) -> Result:
    """Return the answer to a batch; an empty list is left out."""
    result: Result = {}
    if successful:
        result["Successful"] = successful
    if failed:
        result["Failed"] = failed
    return result
