"""Batches: count, ids and size of entries."""

from typing import Any

import pytest

from adapters.sqs.errors import (
    BATCH_ENTRY_IDS_NOT_DISTINCT,
    BATCH_REQUEST_TOO_LONG,
    EMPTY_BATCH_REQUEST,
    INVALID_BATCH_ENTRY_ID,
    RECEIPT_HANDLE_IS_INVALID,
    SERVICE_UNAVAILABLE,
    TOO_MANY_ENTRIES_IN_BATCH_REQUEST,
    ErrorCode,
    SqsError,
)
from adapters.sqs.messages.batch_entries import (
    BATCH_BYTES_MAX,
    check_batch_bytes,
    check_entries,
    failed_entry,
)


def entries(*ids: str) -> list[dict[str, Any]]:
    return [{"Id": entry_id} for entry_id in ids]


def test_ten_entries_with_legal_ids_are_taken() -> None:
    check_entries(entries(*"abcdefgh", "Z_9-", "x" * 80), "SomeEntry")


@pytest.mark.parametrize(
    ("ids", "code", "message"),
    [
        ([], EMPTY_BATCH_REQUEST, "There should be at least one SomeEntry in the request."),
        (
            [str(number) for number in range(11)],
            TOO_MANY_ENTRIES_IN_BATCH_REQUEST,
            "Maximum number of entries per request are 10. You have sent 11.",
        ),
        (["a", "b", "a"], BATCH_ENTRY_IDS_NOT_DISTINCT, "Id a repeated."),
        (
            [""],
            INVALID_BATCH_ENTRY_ID,
            (
                "A batch entry id can only contain alphanumeric characters, hyphens and "
                "underscores. It can be at most 80 letters long."
            ),
        ),
        (["x" * 81], INVALID_BATCH_ENTRY_ID, "A batch entry id"),
        (["in:valid"], INVALID_BATCH_ENTRY_ID, "A batch entry id"),
        (["é"], INVALID_BATCH_ENTRY_ID, "A batch entry id"),
        (["a\n"], INVALID_BATCH_ENTRY_ID, "A batch entry id"),
        (["a", "b\nc"], INVALID_BATCH_ENTRY_ID, "A batch entry id"),
    ],
)
def test_bad_batch_is_refused(ids: list[str], code: ErrorCode, message: str) -> None:
    with pytest.raises(SqsError) as caught:
        check_entries(entries(*ids), "SomeEntry")

    assert caught.value.code is code
    assert caught.value.message.startswith(message)


def test_batch_of_1_mib_is_taken_and_one_byte_more_is_not() -> None:
    check_batch_bytes(BATCH_BYTES_MAX)
    with pytest.raises(SqsError) as caught:
        check_batch_bytes(BATCH_BYTES_MAX + 1)

    assert caught.value.code is BATCH_REQUEST_TOO_LONG
    assert caught.value.message == (
        "Batch requests cannot be longer than 1048576 bytes. You have sent 1048577 bytes."
    )


def test_failed_entry_says_whose_fault_it_is() -> None:
    theirs = failed_entry("a", SqsError(RECEIPT_HANDLE_IS_INVALID, "bad"))
    ours = failed_entry("b", SqsError(SERVICE_UNAVAILABLE, "full"))

    assert theirs == {
        "Id": "a",
        "SenderFault": True,
        "Code": "ReceiptHandleIsInvalid",
        "Message": "bad",
    }
    assert ours["SenderFault"] is False
