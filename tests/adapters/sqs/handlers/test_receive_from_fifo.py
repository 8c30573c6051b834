"""ReceiveMessage of FIFO queues: groups, and attempts that are repeated."""

from typing import Any

import pytest

from tests.adapters.sqs.handlers.messages import (
    bodies,
    change,
    delete,
    let_pass,
    receive,
    receive_one,
    send,
)
from tests.adapters.sqs.handlers.serving import Live


async def test_group_of_a_fifo_queue_is_locked_while_a_message_is_in_flight(
    live: Live,
) -> None:
    url = await live.queue("orders.fifo", ContentBasedDeduplication="true")
    for group, body in (("a", "a1"), ("a", "a2"), ("b", "b1"), ("a", "a3")):
        await send(live, url, body, MessageGroupId=group)

    first = await receive_one(live, url)
    assert await bodies(live, url) == ["b1"]
    await delete(live, url, first)

    assert first["Body"] == "a1"
    assert await bodies(live, url) == ["a2", "a3"]


@pytest.mark.parametrize("timeout_s", [0, 1])
async def test_message_that_was_given_back_is_handed_out_while_later_ones_are_in_flight(
    live: Live, timeout_s: int
) -> None:
    url = await live.queue("orders.fifo", ContentBasedDeduplication="true")
    for group, body in (("a", "a1"), ("a", "a2"), ("b", "b1"), ("a", "a3")):
        await send(live, url, body, MessageGroupId=group)
    first = await receive_one(live, url)
    await change(live, url, first, 0)
    first, second = await receive(live, url, 2)

    await change(live, url, first, timeout_s)
    await let_pass(live, timeout_s)

    assert sorted(await bodies(live, url)) == ["a1", "b1"]
    assert await receive(live, url) == []
    await delete(live, url, second)
    assert await receive(live, url) == []  # a1 is in flight, before a3


async def receive_attempt(live: Live, url: str, **params: Any) -> list[dict[str, Any]]:
    return await receive(live, url, 2, ReceiveRequestAttemptId="try-1", **params)


async def make_fifo(live: Live) -> str:
    url = await live.queue("orders.fifo", ContentBasedDeduplication="true")
    for body in ("1", "2", "3"):
        await send(live, url, body, MessageGroupId="g")
    return url


async def test_repeated_attempt_gets_the_same_messages_and_handles(live: Live) -> None:
    url = await make_fifo(live)
    first = await receive_attempt(live, url)

    again = await receive_attempt(live, url)

    assert [message["Body"] for message in first] == ["1", "2"]
    assert again == first
    assert await receive(live, url) == []


async def test_repeated_attempt_answers_no_more_messages_than_are_wanted(live: Live) -> None:
    url = await make_fifo(live)
    first = await receive_attempt(live, url)

    again = await receive(live, url, 1, ReceiveRequestAttemptId="try-1")

    assert again == first[:1]
    assert await receive_attempt(live, url) == first


async def test_repeated_attempt_begins_the_timeout_anew(live: Live) -> None:
    url = await make_fifo(live)
    first = await receive_attempt(live, url)
    await let_pass(live, 20)
    await receive_attempt(live, url)

    await let_pass(live, 20)
    assert await receive(live, url) == []
    await let_pass(live, 10)

    assert [message["Body"] for message in await receive(live, url)] == ["1", "2", "3"]
    assert first


async def test_attempt_is_over_once_a_message_is_deleted(live: Live) -> None:
    url = await make_fifo(live)
    first = await receive_attempt(live, url)
    await delete(live, url, first[0])
    await let_pass(live, 20)

    assert await receive_attempt(live, url) == []

    await let_pass(live, 10)  # nor does the timeout of the other begin anew
    assert [message["Body"] for message in await receive(live, url)] == ["2", "3"]


@pytest.mark.parametrize("in_batch", [False, True])
async def test_attempt_is_over_once_a_visibility_was_changed(
    live: Live, *, in_batch: bool
) -> None:
    url = await make_fifo(live)
    first = await receive_attempt(live, url)
    if in_batch:
        handle = first[1]["ReceiptHandle"]
        entry = {"Id": "a", "ReceiptHandle": handle, "VisibilityTimeout": 60}
        await live.call("change_message_visibility_batch", QueueUrl=url, Entries=[entry])
    else:
        await change(live, url, first[1], 60)

    assert await receive_attempt(live, url) == []


async def test_attempts_go_with_their_queue(live: Live) -> None:
    url = await make_fifo(live)
    await receive_attempt(live, url)
    assert len(live.adapter.node.messages.attempts) == 1

    await live.call("delete_queue", QueueUrl=url)

    assert len(live.adapter.node.messages.attempts) == 0


async def test_attempt_is_over_once_the_messages_are_visible_again(live: Live) -> None:
    url = await make_fifo(live)
    first = await receive_attempt(live, url)
    await let_pass(live, 30)

    again = await receive_attempt(live, url)

    assert [message["Body"] for message in again] == ["1", "2"]
    assert again[0]["ReceiptHandle"] != first[0]["ReceiptHandle"]


@pytest.mark.parametrize("attempt_id", ["", "a b", "x" * 129])
async def test_bad_attempt_id_is_refused(live: Live, attempt_id: str) -> None:
    url = await live.queue("orders.fifo")

    refused = await live.refused(
        "receive_message", QueueUrl=url, ReceiveRequestAttemptId=attempt_id
    )

    assert refused.code == "InvalidParameterValue"
