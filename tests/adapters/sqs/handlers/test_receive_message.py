"""ReceiveMessage."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from adapters.sqs.messages.receive_request import ReceiveRequest
from tests.adapters.sqs.handlers.messages import (
    append,
    bodies,
    delete,
    let_pass,
    receive,
    receive_one,
    send,
    until_waiting,
)
from tests.adapters.sqs.handlers.serving import Live, running

MIB = 1_048_576


async def test_queue_without_messages_answers_none(live: Live) -> None:
    url = await live.queue()

    assert await live.call("receive_message", QueueUrl=url) == {}


async def test_one_message_is_the_default_and_ten_the_most(live: Live) -> None:
    url = await live.queue()
    for number in range(12):
        await send(live, url, str(number))

    assert len((await live.call("receive_message", QueueUrl=url))["Messages"]) == 1
    assert len(await receive(live, url, 10)) == 10


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"MaxNumberOfMessages": 11},
            (
                "Value 11 for parameter MaxNumberOfMessages is invalid. Reason: Must be between 1 "
                "and 10, if provided."
            ),
        ),
        ({"MaxNumberOfMessages": 0}, "Value 0 for parameter MaxNumberOfMessages is invalid."),
        (
            {"WaitTimeSeconds": 21},
            (
                "Value 21 for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and "
                "<= 20, if provided."
            ),
        ),
        ({"WaitTimeSeconds": -1}, "Value -1 for parameter WaitTimeSeconds is invalid."),
        ({"VisibilityTimeout": 43_201}, "Value 43201 for parameter VisibilityTimeout"),
        ({"VisibilityTimeout": -1}, "Value -1 for parameter VisibilityTimeout is invalid."),
        ({"ReceiveRequestAttemptId": "x"}, "not valid for this queue type"),
    ],
)
async def test_value_outside_its_range_is_refused(
    live: Live, params: dict[str, Any], message: str
) -> None:
    url = await live.queue()

    refused = await live.refused("receive_message", QueueUrl=url, **params)

    assert (refused.code, refused.status) == ("InvalidParameterValue", 400)
    assert message in refused.message


async def test_queue_that_is_not_there_is_refused(live: Live) -> None:
    url = f"{live.url}/000000000000/nowhere"

    refused = await live.refused("receive_message", QueueUrl=url)

    assert refused.code == "AWS.SimpleQueueService.NonExistentQueue"


# --- visibility


async def test_message_is_invisible_for_the_queues_timeout(live: Live) -> None:
    url = await live.queue(VisibilityTimeout="7")
    await send(live, url)
    await receive_one(live, url)

    await let_pass(live, 6.9)
    assert await receive(live, url) == []
    await let_pass(live, 0.1)
    message = await receive_one(live, url, AttributeNames=["ApproximateReceiveCount"])
    assert message["Attributes"] == {"ApproximateReceiveCount": "2"}


async def test_receive_may_say_another_timeout(live: Live) -> None:
    url = await live.queue()
    await send(live, url)
    await receive_one(live, url, VisibilityTimeout=2)

    await let_pass(live, 2)

    assert await bodies(live, url) == ["hello"]


async def test_timeout_of_nothing_leaves_the_message_visible(live: Live) -> None:
    url = await live.queue()
    await send(live, url)

    first = await receive_one(live, url, VisibilityTimeout=0)
    await let_pass(live, 0)
    second = await receive_one(live, url)

    assert first["MessageId"] == second["MessageId"]
    assert first["ReceiptHandle"] != second["ReceiptHandle"]


async def test_times_of_send_and_first_receive_stay(live: Live) -> None:
    url = await live.queue()
    await send(live, url)
    sent = live.clock.unix_ms()
    await let_pass(live, 3)
    received = live.clock.unix_ms()
    await receive_one(live, url)

    await let_pass(live, 30)

    message = await receive_one(live, url, MessageSystemAttributeNames=["All"])
    assert message["Attributes"]["SentTimestamp"] == str(sent)
    assert message["Attributes"]["ApproximateFirstReceiveTimestamp"] == str(received)


# --- waiting


async def test_receive_that_waits_gets_what_comes(live: Live) -> None:
    url = await live.queue()
    receiving = asyncio.create_task(receive(live, url, WaitTimeSeconds=20))
    await until_waiting(live)

    await send(live, url, "at last")

    assert [message["Body"] for message in await receiving] == ["at last"]


async def test_receive_that_waits_ends_with_its_time(live: Live) -> None:
    url = await live.queue()
    receiving = asyncio.create_task(receive(live, url, WaitTimeSeconds=5))
    await until_waiting(live)

    await let_pass(live, 4.9)
    assert live.kernel.queues.waiting_count == 1
    await let_pass(live, 0.2)

    assert await receiving == []


async def test_queue_may_say_how_long_receives_wait(live: Live) -> None:
    url = await live.queue(ReceiveMessageWaitTimeSeconds="20")
    receiving = asyncio.create_task(receive(live, url))
    await until_waiting(live)

    assert await receive(live, url, WaitTimeSeconds=0) == []
    await send(live, url, "at last")

    assert [message["Body"] for message in await receiving] == ["at last"]


async def test_client_that_goes_away_waits_no_more(live: Live) -> None:
    url = await live.queue()
    address = ("127.0.0.1", live.adapter.listener.port)
    _, writer = await asyncio.open_connection(*address)
    body = json.dumps({"QueueUrl": url, "WaitTimeSeconds": 20}).encode()
    writer.write(
        b"POST / HTTP/1.1\r\nhost: localhost\r\nx-amz-target: AmazonSQS.ReceiveMessage\r\n"
        b"content-type: application/x-amz-json-1.0\r\ncontent-length: %d\r\n\r\n%s"
        % (len(body), body)
    )
    await until_waiting(live)

    writer.close()
    await writer.wait_closed()

    async with asyncio.timeout(60):
        while live.kernel.queues.waiting_count:
            await asyncio.to_thread(int)
    await send(live, url)
    assert await bodies(live, url) == ["hello"]


async def test_receive_that_waits_ends_when_the_queue_is_deleted(live: Live) -> None:
    url = await live.queue()
    receiving = asyncio.create_task(receive(live, url, WaitTimeSeconds=20))
    await until_waiting(live)

    await live.call("delete_queue", QueueUrl=url)

    assert await receiving == []


async def test_queue_with_all_that_may_be_in_flight_refuses_who_does_not_wait(
    live: Live,
) -> None:
    url = await live.queue()
    queue = live.kept()
    settings = queue.settings.model_copy(update={"in_flight_max": 1})
    await live.kernel.queues.alter(queue, settings=settings)
    await send(live, url, "first")
    await send(live, url, "second")
    first = await receive_one(live, url)

    refused = await live.refused("receive_message", QueueUrl=url)
    assert (refused.code, refused.status) == ("OverLimit", 403)
    receiving = asyncio.create_task(receive(live, url, WaitTimeSeconds=20))
    await until_waiting(live)
    await delete(live, url, first)

    assert [message["Body"] for message in await receiving] == ["second"]


async def test_limit_of_messages_in_flight_is_of_all_partitions_together(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, sqs={"queue_partitions": 4}) as live:
        url = await live.queue()
        queue = live.kept()
        settings = queue.settings.model_copy(update={"in_flight_max": 3})
        await live.kernel.queues.alter(queue, settings=settings)
        for number in range(12):
            await send(live, url, str(number))
        got: list[dict[str, Any]] = []
        for _ in range(3):
            got += await receive(live, url, 2, WaitTimeSeconds=1) if len(got) < 3 else []
        assert len(got) == 3

        receiving = asyncio.create_task(receive(live, url, WaitTimeSeconds=20))
        await until_waiting(live)
        assert queue.counts().in_flight == 3
        assert (await live.refused("receive_message", QueueUrl=url)).code == "OverLimit"
        await delete(live, url, got[0])

        assert len(await receiving) == 1
        assert queue.counts().in_flight == 3


async def test_full_fifo_queue_answers_none(live: Live) -> None:
    url = await live.queue("orders.fifo", ContentBasedDeduplication="true")
    queue = live.kept("orders.fifo")
    settings = queue.settings.model_copy(update={"in_flight_max": 1})
    await live.kernel.queues.alter(queue, settings=settings)
    await send(live, url, "first", MessageGroupId="a")
    await send(live, url, "second", MessageGroupId="b")
    await receive_one(live, url)

    assert await receive(live, url) == []


@pytest.mark.parametrize("is_waiting", [False, True])
async def test_bug_behind_a_receive_is_answered(
    live: Live,
    monkeypatch: pytest.MonkeyPatch,
    is_waiting: bool,  # noqa: FBT001
) -> None:
    url = await live.queue()
    asyncio.get_running_loop().set_exception_handler(lambda *_of_what: None)

    def break_down(*_of_what: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(ReceiveRequest, "_answer_plain", break_down)
    if not is_waiting:
        await append(live, b"there already", headers=(("h", b"v"),))
        refused = await live.refused("receive_message", QueueUrl=url, MaxNumberOfMessages=10)
    else:
        receiving = asyncio.create_task(
            live.refused("receive_message", QueueUrl=url, WaitTimeSeconds=20)
        )
        await until_waiting(live)
        await append(live, b"late", headers=(("h", b"v"),))
        refused = await receiving

    assert (refused.code, refused.status) == ("InternalFailure", 500)
