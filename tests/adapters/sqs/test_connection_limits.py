"""Limits of one connection's requests in progress, however many come in one read."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.connection import WRITE_HIGH_BYTES
from tests.adapters.sqs.handlers.serving import Live, running
from tests.adapters.sqs.test_connection import connect, of, receive, request
from tests.support.waiting import until

PIPELINED_MAX = 4


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    async with running(tmp_path, sqs={"requests_pipelined_max": PIPELINED_MAX}) as live:
        yield live


async def test_no_more_receives_wait_than_may_be_pipelined(live: Live) -> None:
    await live.queue("jobs")
    live.boto.close()
    await until(lambda: not live.adapter.listener.connections)
    client = await connect(live)

    client.send(*[receive()] * 50)
    await until(lambda: live.kernel.queues.waiting_count >= PIPELINED_MAX)
    await until(of(live).is_held_but_for)

    assert live.kernel.queues.waiting_count == PIPELINED_MAX
    for number in range(50):
        await live.call("send_message", QueueUrl="jobs", MessageBody=str(number))
    bodies = [(await client.answer()).value["Messages"][0]["Body"] for _ in range(50)]
    assert sorted(bodies) == sorted(map(str, range(50)))


async def test_large_answers_that_wait_for_one_before_them_are_few(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.queue("jobs")
        await live.queue("large")
        for _ in range(10):
            await live.call("send_message", QueueUrl="large", MessageBody="x" * 300_000)
        live.boto.close()
        await until(lambda: not live.adapter.listener.connections)
        client = await connect(live)
        params = {"QueueUrl": "large", "MaxNumberOfMessages": 10, "VisibilityTimeout": 0}
        counts = live.adapter.dispatcher.requests
        before = counts["ReceiveMessage"]

        client.send(receive(), *[request("ReceiveMessage", params)] * 20)
        await until(lambda: counts["ReceiveMessage"] > before)
        connection = of(live)
        await until(lambda: len(connection._requests) > 0)

        held_bytes = sum(len(reply.data or b"") for reply in connection._replies)
        assert WRITE_HIGH_BYTES < held_bytes < 2 * 10 * 300_000
        await live.call("send_message", QueueUrl="jobs", MessageBody="go on")
        answers = [await client.answer() for _ in range(21)]
        assert answers[0].value["Messages"][0]["Body"] == "go on"
        assert all(json.loads(answer.body) is not None for answer in answers)


async def test_what_waits_to_be_served_is_counted_and_given_back(live: Live) -> None:
    await live.queue("jobs")
    live.boto.close()
    await until(lambda: not live.adapter.listener.connections)
    client = await connect(live)
    budget = live.adapter.body_budget
    size_bytes = len(receive().partition(b"\r\n\r\n")[2])

    client.send(*[receive()] * 10)
    await until(lambda: live.kernel.queues.waiting_count == PIPELINED_MAX)
    await until(of(live).is_held_but_for)
    assert budget.bytes_taken == (10 - PIPELINED_MAX) * size_bytes

    for number in range(8):
        await live.call("send_message", QueueUrl="jobs", MessageBody=str(number))
    for _ in range(8):
        await client.answer()
    assert budget.bytes_taken == 0
    client.close()
    await until(lambda: live.kernel.queues.waiting_count == 0)
    assert budget.bytes_taken == 0
