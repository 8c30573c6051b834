"""ChangeMessageVisibility and ChangeMessageVisibilityBatch."""

from typing import Any

import pytest

from tests.adapters.sqs.handlers.messages import (
    HOUR_S,
    bodies,
    change,
    delete,
    let_pass,
    receive,
    receive_one,
    send,
)
from tests.adapters.sqs.handlers.serving import Live, Refused

FORGED = "A" * 60


async def refuse(live: Live, url: str, handle: str, timeout_s: int) -> Refused:
    return await live.refused(
        "change_message_visibility",
        QueueUrl=url,
        ReceiptHandle=handle,
        VisibilityTimeout=timeout_s,
    )


async def in_flight(live: Live) -> tuple[str, dict[str, Any]]:
    """Make a queue with a message, and receive it."""
    url = await live.queue()
    await send(live, url)
    return url, await receive_one(live, url)


async def test_timeout_counts_from_the_change(live: Live) -> None:
    url, message = await in_flight(live)
    await let_pass(live, 20)

    await change(live, url, message, 60)

    await let_pass(live, 59)
    assert await receive(live, url) == []
    await let_pass(live, 1)
    assert await bodies(live, url) == ["hello"]


async def test_timeout_of_nothing_gives_the_message_back(live: Live) -> None:
    url, message = await in_flight(live)

    await change(live, url, message, 0)

    assert await bodies(live, url) == ["hello"]


async def test_twelve_hours_in_all_are_the_most(live: Live) -> None:
    url, message = await in_flight(live)
    handle = message["ReceiptHandle"]
    await change(live, url, message, 12 * HOUR_S)
    await let_pass(live, HOUR_S)

    refused = await refuse(live, url, handle, 11 * HOUR_S + 1)

    assert (refused.code, refused.status) == ("InvalidParameterValue", 400)
    assert refused.message == (
        f"Value {11 * HOUR_S + 1} for parameter VisibilityTimeout is invalid. Reason: Total "
        "VisibilityTimeout for the message is beyond the limit [43200 seconds]."
    )
    await change(live, url, message, 11 * HOUR_S)


@pytest.mark.parametrize("timeout_s", [-1, 43_201])
async def test_timeout_outside_its_range_is_refused(live: Live, timeout_s: int) -> None:
    url, message = await in_flight(live)

    refused = await refuse(live, url, message["ReceiptHandle"], timeout_s)

    assert refused.code == "InvalidParameterValue"
    assert f"Value {timeout_s} for parameter VisibilityTimeout is invalid" in refused.message


async def test_message_of_a_fifo_queue_whose_timeout_is_over_is_not_in_flight(
    live: Live,
) -> None:
    url = await live.queue("orders.fifo", ContentBasedDeduplication="true")
    await send(live, url, MessageGroupId="g")
    message = await receive_one(live, url)
    await let_pass(live, 30)

    refused = await refuse(live, url, message["ReceiptHandle"], 60)

    assert refused.code == "AWS.SimpleQueueService.MessageNotInflight"
    assert refused.status == 400


async def test_message_whose_timeout_is_over_is_invisible_again(live: Live) -> None:
    url, message = await in_flight(live)
    await let_pass(live, 30)

    await change(live, url, message, 60)

    await let_pass(live, 59)
    assert await receive(live, url) == []
    await let_pass(live, 1)
    again = await receive_one(live, url, MessageSystemAttributeNames=["All"])
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"


async def test_message_whose_timeout_is_over_may_be_given_back(live: Live) -> None:
    url, message = await in_flight(live)
    await let_pass(live, 30)

    await change(live, url, message, 0)

    assert await bodies(live, url) == ["hello"]


@pytest.mark.parametrize("in_batch", [False, True])
async def test_handle_of_an_earlier_receive_changes_the_timeout(
    live: Live,
    in_batch: bool,  # noqa: FBT001
) -> None:
    url, message = await in_flight(live)
    await let_pass(live, 30)
    await receive_one(live, url)

    if in_batch:
        entry = {"Id": "a", "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 0}
        answer = await live.call(
            "change_message_visibility_batch", QueueUrl=url, Entries=[entry]
        )
        assert answer == {"Successful": [{"Id": "a"}]}
    else:
        await change(live, url, message, 0)

    assert await bodies(live, url) == ["hello"]


async def test_message_that_is_deleted_is_not_there(live: Live) -> None:
    url, message = await in_flight(live)
    await delete(live, url, message)

    refused = await refuse(live, url, message["ReceiptHandle"], 60)

    assert refused.code == "InvalidParameterValue"
    assert "Message does not exist or is not available for visibility" in refused.message


async def test_handle_that_is_not_ours_is_refused(live: Live) -> None:
    url = await live.queue()

    refused = await refuse(live, url, FORGED, 60)

    assert (refused.code, refused.status) == ("ReceiptHandleIsInvalid", 404)


async def test_queue_that_is_not_there_is_refused(live: Live) -> None:
    url = f"{live.url}/000000000000/nowhere"

    refused = await refuse(live, url, FORGED, 60)

    assert refused.code == "AWS.SimpleQueueService.NonExistentQueue"


async def test_next_receive_has_the_queues_timeout_again(live: Live) -> None:
    url, message = await in_flight(live)
    await change(live, url, message, 1)
    await let_pass(live, 1)
    await receive_one(live, url)

    await let_pass(live, 29)
    assert await receive(live, url) == []


async def test_batch_changes_and_says_what_failed(live: Live) -> None:
    url = await live.queue()
    for number in range(3):
        await send(live, url, str(number))
    handles = [message["ReceiptHandle"] for message in await receive(live, url)]
    entries = [
        {"Id": "back", "ReceiptHandle": handles[0], "VisibilityTimeout": 0},
        {"Id": "longer", "ReceiptHandle": handles[1], "VisibilityTimeout": 60},
        {"Id": "forged", "ReceiptHandle": FORGED, "VisibilityTimeout": 1},
        {"Id": "beyond", "ReceiptHandle": handles[2], "VisibilityTimeout": 43_201},
        {"Id": "missing", "ReceiptHandle": handles[2]},
    ]

    answer = await live.call("change_message_visibility_batch", QueueUrl=url, Entries=entries)

    assert [one["Id"] for one in answer["Successful"]] == ["back", "longer"]
    assert [(one["Id"], one["Code"]) for one in answer["Failed"]] == [
        ("forged", "ReceiptHandleIsInvalid"),
        ("beyond", "InvalidParameterValue"),
        ("missing", "MissingParameter"),
    ]
    assert await bodies(live, url) == ["0"]
    await let_pass(live, 30)
    assert sorted(await bodies(live, url)) == ["0", "2"]
