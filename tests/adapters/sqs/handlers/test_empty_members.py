"""Members of an answer that would be empty are left out, as at Amazon SQS."""

import pytest

from tests.adapters.sqs.handlers.messages import receive, send
from tests.adapters.sqs.handlers.serving import Live


async def test_no_queues(live: Live) -> None:
    assert await live.call("list_queues") == {}


async def test_no_tags(live: Live) -> None:
    url = await live.queue()
    assert await live.call("list_queue_tags", QueueUrl=url) == {}


async def test_none_of_the_attributes_that_are_asked_for(live: Live) -> None:
    url = await live.queue()

    answer = await live.call(
        "get_queue_attributes", QueueUrl=url, AttributeNames=["Policy", "RedrivePolicy"]
    )

    assert answer == {}


@pytest.mark.parametrize("body", ["plain", "é", "\x01"])
async def test_a_batch_of_sends_without_failures_or_successes(live: Live, body: str) -> None:
    url = await live.queue()

    answer = await live.call(
        "send_message_batch", QueueUrl=url, Entries=[{"Id": "a", "MessageBody": body}]
    )

    assert list(answer) == ["Failed" if body == "\x01" else "Successful"]


@pytest.mark.parametrize("is_alone", [True, False])
async def test_a_batch_of_deletes_without_failures(live: Live, is_alone: bool) -> None:  # noqa: FBT001
    url = await live.queue()
    for _ in range(3):
        await send(live, url)
    handles = [message["ReceiptHandle"] for message in await receive(live, url)]
    if is_alone:  # a single message takes another way than contiguous ones
        del handles[:2]

    answer = await live.call(
        "delete_message_batch",
        QueueUrl=url,
        Entries=[{"Id": f"e{n}", "ReceiptHandle": one} for n, one in enumerate(handles)],
    )

    assert answer == {"Successful": [{"Id": f"e{n}"} for n in range(len(handles))]}


async def test_a_batch_of_changes_all_of_which_fail(live: Live) -> None:
    url = await live.queue()

    answer = await live.call(
        "change_message_visibility_batch",
        QueueUrl=url,
        Entries=[{"Id": "a", "ReceiptHandle": "forged", "VisibilityTimeout": 1}],
    )

    assert list(answer) == ["Failed"]
