"""DeleteMessage and DeleteMessageBatch; refused batches of all settling actions."""

import json
from typing import Any

import pytest

from tests.adapters.sqs.handlers.messages import (
    bodies,
    delete,
    let_pass,
    receive,
    receive_one,
    send,
)
from tests.adapters.sqs.handlers.serving import Live

FORGED = "A" * 60


async def delete_batch(live: Live, url: str, *pairs: tuple[str, str]) -> dict[str, Any]:
    entries = [{"Id": name, "ReceiptHandle": handle} for name, handle in pairs]
    answer: dict[str, Any] = await live.call(
        "delete_message_batch", QueueUrl=url, Entries=entries
    )
    return answer


async def test_deleted_message_never_comes_back(live: Live) -> None:
    url = await live.queue()
    await send(live, url)

    await delete(live, url, await receive_one(live, url))

    await let_pass(live, 3_600)
    assert await receive(live, url) == []
    assert sum(live.kept().counts()) == 0


async def test_deleting_again_succeeds(live: Live) -> None:
    url = await live.queue()
    await send(live, url)
    message = await receive_one(live, url)
    await delete(live, url, message)

    await delete(live, url, message)


async def test_the_last_of_the_attempts_may_be_deleted_late(live: Live) -> None:
    """A message received maxReceiveCount times moves with the next receive, and not before."""
    await live.queue("dead")
    policy = json.dumps({"deadLetterTargetArn": live.arn("dead"), "maxReceiveCount": 1})
    url = await live.queue(RedrivePolicy=policy)
    await send(live, url)
    message = await receive_one(live, url)
    await let_pass(live, 31)

    await delete(live, url, message)

    assert await receive(live, url) == []
    assert sum(live.kept("dead").counts()) == 0


async def test_standard_queue_deletes_by_a_late_handle(live: Live) -> None:
    url = await live.queue()
    await send(live, url)
    message = await receive_one(live, url)
    await let_pass(live, 31)

    await delete(live, url, message)

    assert await receive(live, url) == []


async def test_standard_queue_answers_an_old_handle_with_success_and_keeps_the_message(
    live: Live,
) -> None:
    url = await live.queue()
    await send(live, url)
    message = await receive_one(live, url)
    await let_pass(live, 30)
    await receive_one(live, url)

    await delete(live, url, message)

    await let_pass(live, 30)
    assert await bodies(live, url) == ["hello"]


async def test_fifo_queue_refuses_a_late_handle(live: Live) -> None:
    url = await live.queue("orders.fifo", ContentBasedDeduplication="true")
    await send(live, url, MessageGroupId="g")
    handle = (await receive_one(live, url))["ReceiptHandle"]
    await let_pass(live, 30)

    refused = await live.refused("delete_message", QueueUrl=url, ReceiptHandle=handle)

    assert (refused.code, refused.status) == ("InvalidParameterValue", 400)
    assert refused.message == (
        f"Value {handle} for parameter ReceiptHandle is invalid. Reason: The receipt handle has "
        "expired."
    )


@pytest.mark.parametrize("handle", ["", "garbage", FORGED, "x" * 5_000, "é" * 60])
async def test_handle_that_is_not_ours_is_refused(live: Live, handle: str) -> None:
    url = await live.queue()

    refused = await live.refused("delete_message", QueueUrl=url, ReceiptHandle=handle)

    assert (refused.code, refused.status) == ("ReceiptHandleIsInvalid", 404)


async def test_handle_of_another_queue_is_refused(live: Live) -> None:
    url, other = await live.queue("orders"), await live.queue("other")
    await send(live, url)
    handle = (await receive_one(live, url))["ReceiptHandle"]

    refused = await live.refused("delete_message", QueueUrl=other, ReceiptHandle=handle)

    assert refused.code == "ReceiptHandleIsInvalid"


async def test_queue_that_is_not_there_is_refused(live: Live) -> None:
    url = f"{live.url}/000000000000/nowhere"

    refused = await live.refused("delete_message", QueueUrl=url, ReceiptHandle=FORGED)
    of_batch = await live.refused(
        "delete_message_batch", QueueUrl=url, Entries=[{"Id": "a", "ReceiptHandle": FORGED}]
    )

    assert refused.code == of_batch.code == "AWS.SimpleQueueService.NonExistentQueue"


# --- batches


async def test_batch_deletes_and_says_what_failed(live: Live) -> None:
    url = await live.queue()
    for number in range(3):
        await send(live, url, str(number))
    handles = [message["ReceiptHandle"] for message in await receive(live, url)]

    answer = await delete_batch(
        live, url, ("a", handles[0]), ("b", FORGED), ("c", handles[1]), ("d", handles[1])
    )

    assert [one["Id"] for one in answer["Successful"]] == ["a", "c", "d"]
    assert [(one["Id"], one["Code"], one["SenderFault"]) for one in answer["Failed"]] == [
        ("b", "ReceiptHandleIsInvalid", True)
    ]
    await let_pass(live, 30)
    assert await bodies(live, url) == ["2"]


async def test_batch_of_which_nothing_is_ours_is_answered(live: Live) -> None:
    url = await live.queue()

    answer = await delete_batch(live, url, ("a", FORGED))

    assert [one["Id"] for one in answer["Failed"]] == ["a"]


@pytest.mark.parametrize(
    ("ids", "code"),
    [
        ([], "EmptyBatchRequest"),
        ([str(number) for number in range(11)], "TooManyEntriesInBatchRequest"),
        (["a", "a"], "BatchEntryIdsNotDistinct"),
        (["a.b"], "InvalidBatchEntryId"),
        (["x" * 81], "InvalidBatchEntryId"),
    ],
)
async def test_batch_that_breaks_a_rule_is_refused(
    live: Live, ids: list[str], code: str
) -> None:
    url = await live.queue()
    entries = [{"Id": one, "ReceiptHandle": FORGED} for one in ids]

    for action in ("delete_message_batch", "change_message_visibility_batch"):
        refused = await live.refused(action, QueueUrl=url, Entries=entries)
        assert (refused.code, refused.status) == (f"AWS.SimpleQueueService.{code}", 400)
