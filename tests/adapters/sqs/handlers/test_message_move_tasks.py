"""StartMessageMoveTask, CancelMessageMoveTask, ListMessageMoveTasks."""

import asyncio
import base64
import json
from typing import Any

import pytest

from tests.adapters.sqs.handlers.messages import append
from tests.adapters.sqs.handlers.serving import Live

WAIT_S = 60.0


async def with_dead_letters(live: Live, count: int, *, name: str = "orders") -> tuple[str, str]:
    """Make a queue and its dead-letter queue with messages; return their URLs."""
    suffix = ".fifo" if name.endswith(".fifo") else ""
    dead = await live.queue(f"dead{suffix}")
    policy = {"deadLetterTargetArn": live.arn(f"dead{suffix}"), "maxReceiveCount": 1}
    url = await live.queue(name, RedrivePolicy=json.dumps(policy), VisibilityTimeout="0")
    for number in range(count):
        more = {"MessageGroupId": "g", "MessageDeduplicationId": f"{number}"} if suffix else {}
        await live.call("send_message", QueueUrl=url, MessageBody=f"{number}", **more)
    while live.kept(f"dead{suffix}").counts().ready < count:
        await live.call("receive_message", QueueUrl=url, MaxNumberOfMessages=10)
    return url, dead


async def tasks(live: Live, **params: Any) -> list[dict[str, Any]]:
    answer = await live.call("list_message_move_tasks", SourceArn=live.arn("dead"), **params)
    return list(answer.get("Results", []))


async def ended(live: Live) -> dict[str, Any]:
    """Wait until the latest task has ended, return it."""
    async with asyncio.timeout(WAIT_S):
        while (await tasks(live))[0]["Status"] in {"RUNNING", "CANCELLING"}:
            pass
    return (await tasks(live))[0]


async def test_messages_go_back_where_they_came_from(live: Live) -> None:
    await with_dead_letters(live, 3)
    started_unix_ms = live.clock.unix_ms()
    answer = await live.call("start_message_move_task", SourceArn=live.arn("dead"))
    assert answer.keys() == {"TaskHandle"}
    assert await ended(live) == {
        "Status": "COMPLETED",
        "SourceArn": live.arn("dead"),
        "ApproximateNumberOfMessagesMoved": 3,
        "ApproximateNumberOfMessagesToMove": 3,
        "StartedTimestamp": started_unix_ms,
    }
    assert live.kept("dead").counts() == (0, 0, 0)
    assert live.kept("orders").counts().ready == 3


async def test_what_says_it_came_from_another_queue_stays(live: Live) -> None:
    """Permission was checked for the sources of the queue, not for a queue in a header."""
    await with_dead_letters(live, 1)
    await live.queue("elsewhere")
    headers = [("dlq.source.topic", b"elsewhere"), ("dlq.reason", b"rejected")]
    await append(live, b"forged", headers=headers, name="dead")
    await live.call("start_message_move_task", SourceArn=live.arn("dead"))
    assert (await ended(live))["ApproximateNumberOfMessagesMoved"] == 1
    assert live.kept("elsewhere").counts().ready == 0
    assert live.kept("dead").counts().ready == 1


async def test_a_moved_message_may_be_received_as_often_as_a_new_one(live: Live) -> None:
    url, _ = await with_dead_letters(live, 1)
    await live.call("start_message_move_task", SourceArn=live.arn("dead"))
    await ended(live)
    answer = await live.call("receive_message", QueueUrl=url, AttributeNames=["All"])
    [message] = answer["Messages"]
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    assert message["Body"] == "0"


async def test_messages_go_to_another_queue(live: Live) -> None:
    await with_dead_letters(live, 2)
    await live.queue("elsewhere")
    await live.call(
        "start_message_move_task",
        SourceArn=live.arn("dead"),
        DestinationArn=live.arn("elsewhere"),
        MaxNumberOfMessagesPerSecond=500,
    )
    task = await ended(live)
    assert task["Status"] == "COMPLETED"
    assert task["DestinationArn"] == live.arn("elsewhere")
    assert task["MaxNumberOfMessagesPerSecond"] == 500
    assert live.kept("elsewhere").counts().ready == 2


async def test_dead_letters_of_fifo_queues_are_moved(live: Live) -> None:
    await with_dead_letters(live, 1, name="orders.fifo")
    await live.call("start_message_move_task", SourceArn=live.arn("dead.fifo"))
    async with asyncio.timeout(WAIT_S):
        while live.kept("orders.fifo").counts().ready < 1:
            await live.call("list_message_move_tasks", SourceArn=live.arn("dead.fifo"))


async def running_task(live: Live) -> str:
    """Start a task that is slow enough to be observed; return its handle."""
    await with_dead_letters(live, 3)
    answer = await live.call(
        "start_message_move_task", SourceArn=live.arn("dead"), MaxNumberOfMessagesPerSecond=1
    )
    return str(answer["TaskHandle"])


async def test_a_running_task_is_listed_with_its_handle(live: Live) -> None:
    handle = await running_task(live)
    [task] = await tasks(live)
    assert (task["Status"], task["TaskHandle"]) == ("RUNNING", handle)


async def test_one_task_of_a_queue_runs_at_a_time(live: Live) -> None:
    await running_task(live)
    refused = await live.refused("start_message_move_task", SourceArn=live.arn("dead"))
    assert refused.code == "InvalidParameterValue"
    assert refused.message == (
        "There is already a task running. "
        "Only one active task is allowed for a source queue arn at a given time."
    )


async def test_a_cancelled_task_moves_no_more(live: Live) -> None:
    handle = await running_task(live)
    answer = await live.call("cancel_message_move_task", TaskHandle=handle)
    task = await ended(live)
    assert task["Status"] == "CANCELLED"
    assert "TaskHandle" not in task
    moved = task["ApproximateNumberOfMessagesMoved"]
    assert answer["ApproximateNumberOfMessagesMoved"] <= moved < 3
    assert live.kept("dead").counts().ready == 3 - moved


async def test_a_task_that_has_ended_cannot_be_cancelled(live: Live) -> None:
    handle = await running_task(live)
    await live.call("cancel_message_move_task", TaskHandle=handle)
    refused = await live.refused("cancel_message_move_task", TaskHandle=handle)
    assert refused.exception == "UnsupportedOperation"


async def test_a_task_fails_when_its_destination_goes(live: Live) -> None:
    await with_dead_letters(live, 3)
    elsewhere = await live.queue("elsewhere")
    await live.call(
        "start_message_move_task",
        SourceArn=live.arn("dead"),
        DestinationArn=live.arn("elsewhere"),
        MaxNumberOfMessagesPerSecond=1,
    )
    await live.call("delete_queue", QueueUrl=elsewhere)
    live.clock.advance(60_000)
    task = await ended(live)
    assert task["Status"] == "FAILED"
    assert "elsewhere" in task["FailureReason"]


async def test_the_latest_tasks_are_listed_first(live: Live) -> None:
    await with_dead_letters(live, 0)
    assert await tasks(live, MaxResults=10) == []
    started = []
    for _ in range(3):
        live.clock.advance(1_000)
        started.append(live.clock.unix_ms())
        await live.call("start_message_move_task", SourceArn=live.arn("dead"))
        await ended(live)
    found = await tasks(live, MaxResults=2)
    assert [task["StartedTimestamp"] for task in found] == [started[2], started[1]]
    assert len(await tasks(live)) == 1


@pytest.mark.parametrize("count", [0, 11])
async def test_1_to_10_tasks_are_listed(live: Live, count: int) -> None:
    await live.queue("dead")
    refused = await live.refused(
        "list_message_move_tasks", SourceArn=live.arn("dead"), MaxResults=count
    )
    assert refused.code == "InvalidParameterValue"
    assert "Must be between 1 and 10" in refused.message


@pytest.mark.parametrize("rate", [0, 501, -1])
async def test_the_rate_is_1_to_500_messages_per_second(live: Live, rate: int) -> None:
    await with_dead_letters(live, 0)
    refused = await live.refused(
        "start_message_move_task", SourceArn=live.arn("dead"), MaxNumberOfMessagesPerSecond=rate
    )
    assert refused.code == "InvalidParameterValue"
    assert "Must be between 1 and 500" in refused.message


async def test_only_dead_letters_are_moved(live: Live) -> None:
    await live.queue()
    refused = await live.refused("start_message_move_task", SourceArn=live.arn("orders"))
    assert refused.code == "InvalidParameterValue"
    assert refused.message == "Source queue must be configured as a Dead Letter Queue."


@pytest.mark.parametrize("arn", ["", "x", "arn:aws:sns:us-east-1:000000000000:dead"])
async def test_arns_of_no_queue_are_refused(live: Live, arn: str) -> None:
    await with_dead_letters(live, 0)
    for action in ("start_message_move_task", "list_message_move_tasks"):
        refused = await live.refused(action, SourceArn=arn)
        assert refused.code == "InvalidParameterValue"
        assert refused.message.startswith("You must use this format to specify the SourceArn: ")


async def test_queues_that_are_not_there(live: Live) -> None:
    await with_dead_letters(live, 0)
    nowhere = live.arn("nowhere")
    for action in ("start_message_move_task", "list_message_move_tasks"):
        refused = await live.refused(action, SourceArn=nowhere)
        assert refused.exception == "ResourceNotFoundException"
        assert refused.status == 404
        assert refused.message == (
            "The resource that you specified for the SourceArn parameter doesn't exist."
        )
    refused = await live.refused(
        "start_message_move_task", SourceArn=live.arn("dead"), DestinationArn=nowhere
    )
    assert refused.exception == "ResourceNotFoundException"
    assert "DestinationArn" in refused.message


async def test_the_destination_is_another_queue_of_the_same_kind(live: Live) -> None:
    await with_dead_letters(live, 0)
    await live.queue("orders.fifo")
    for name, words in (("dead", "cannot be the same"), ("orders.fifo", "same type of queue")):
        refused = await live.refused(
            "start_message_move_task",
            SourceArn=live.arn("dead"),
            DestinationArn=live.arn(name),
        )
        assert refused.code == "InvalidParameterValue"
        assert words in refused.message


@pytest.mark.parametrize(
    ("name", "action"),
    [("dead", "ReceiveMessage"), ("dead", "DeleteMessage"), ("orders", "SendMessage")],
)
async def test_a_policy_denies_moving_by_what_moving_stands_for(
    live: Live, name: str, action: str
) -> None:
    await with_dead_letters(live, 0)
    statement = {"Effect": "Deny", "Principal": "*", "Action": f"sqs:{action}", "Resource": "*"}
    await live.call(
        "set_queue_attributes",
        QueueUrl=f"{live.url}/000000000000/{name}",
        Attributes={"Policy": json.dumps({"Statement": statement})},
    )
    destinations: list[dict[str, str]] = [{}]
    if name == "orders":
        destinations.append({"DestinationArn": live.arn("orders")})
    for params in destinations:
        refused = await live.refused(
            "start_message_move_task", SourceArn=live.arn("dead"), **params
        )
        assert refused.code == "AccessDenied"
        assert f"denies sqs:{action}" in refused.message


def handle_of(**fields: object) -> str:
    return base64.b64encode(json.dumps(fields).encode()).decode()


@pytest.mark.parametrize(
    "handle",
    [
        "",
        "x",
        "e30=",
        "W10=",
        "MQ==",
        handle_of(taskId=1, sourceArn="x"),
        handle_of(taskId="x"),
        handle_of(taskId="x", sourceArn="arn:aws:sqs:us-east-1:000000000000:dead") + "!",
        "W" * 5_000,
    ],
)
async def test_handles_that_are_none_are_refused(live: Live, handle: str) -> None:
    refused = await live.refused("cancel_message_move_task", TaskHandle=handle)
    assert refused.code == "InvalidParameterValue"
    assert refused.message == "Value for parameter TaskHandle is invalid."


async def test_a_handle_of_no_queue_or_no_task(live: Live) -> None:
    await live.queue("dead")
    for name, words in (("nowhere", "SourceArn"), ("dead", "Task does not exist.")):
        handle = handle_of(taskId="x", sourceArn=live.arn(name))
        refused = await live.refused("cancel_message_move_task", TaskHandle=handle)
        assert refused.exception == "ResourceNotFoundException"
        assert words in refused.message
