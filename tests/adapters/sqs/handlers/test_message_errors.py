"""Errors that all actions on messages share."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.sqs.handlers.messages import receive, send, until_waiting
from tests.adapters.sqs.handlers.serving import Live, running

HANDLE = {"ReceiptHandle": "A" * 60}
ACTIONS: dict[str, dict[str, Any]] = {
    "send_message": {"MessageBody": "m"},
    "send_message_batch": {"Entries": [{"Id": "a", "MessageBody": "m"}]},
    "receive_message": {},
    "delete_message": HANDLE,
    "delete_message_batch": {"Entries": [{"Id": "a", **HANDLE}]},
    "change_message_visibility": {**HANDLE, "VisibilityTimeout": 1},
    "change_message_visibility_batch": {
        "Entries": [{"Id": "a", **HANDLE, "VisibilityTimeout": 1}]
    },
}


@pytest.mark.parametrize("action", ACTIONS)
async def test_address_that_is_none_is_refused(live: Live, action: str) -> None:
    refused = await live.refused(action, QueueUrl="http:///", **ACTIONS[action])

    assert (refused.code, refused.status) == ("InvalidAddress", 404)


@pytest.mark.parametrize("action", ACTIONS)
async def test_queue_that_is_not_there_is_refused(live: Live, action: str) -> None:
    refused = await live.refused(action, QueueUrl="nowhere", **ACTIONS[action])

    assert refused.code == "AWS.SimpleQueueService.NonExistentQueue"
    assert refused.message == "The specified queue does not exist."


@pytest.mark.parametrize(
    "action", [action for action in ACTIONS if action != "receive_message"]
)
async def test_parameter_that_is_missing_is_named(live: Live, action: str) -> None:
    url = await live.queue()
    for name in ACTIONS[action]:
        params = {**ACTIONS[action]}
        del params[name]

        refused = await live.refused(action, QueueUrl=url, **params)

        assert refused.code == "MissingParameter"
        assert name in refused.message


async def test_too_many_receives_that_wait_are_throttled(tmp_path: Path) -> None:
    async with running(tmp_path, queue={"receivers_max": 1}) as live:
        url = await live.queue()
        waiting = asyncio.create_task(receive(live, url, WaitTimeSeconds=20))
        await until_waiting(live)

        refused = await live.refused("receive_message", QueueUrl=url, WaitTimeSeconds=1)

        assert (refused.code, refused.status) == ("RequestThrottled", 403)
        await send(live, url)
        assert len(await waiting) == 1
