"""Access to messages: each action refuses a call that a queue's policy denies."""

import json
from typing import Any

import pytest

from tests.adapters.sqs.handlers.messages import receive_one, send
from tests.adapters.sqs.handlers.serving import Live

ENTRY = {"Id": "a", "MessageBody": "m"}
HANDLE = "handle"  # stands for that of a message in flight


@pytest.mark.parametrize(
    ("policy_action", "action", "params"),
    [
        ("SendMessage", "send_message", {"MessageBody": "m"}),
        ("SendMessage", "send_message_batch", {"Entries": [ENTRY]}),
        ("ReceiveMessage", "receive_message", {}),
        ("DeleteMessage", "delete_message", {"ReceiptHandle": HANDLE}),
        (
            "DeleteMessage",
            "delete_message_batch",
            {"Entries": [{"Id": "a", "ReceiptHandle": HANDLE}]},
        ),
        (
            "ChangeMessageVisibility",
            "change_message_visibility",
            {"ReceiptHandle": HANDLE, "VisibilityTimeout": 0},
        ),
        (
            "ChangeMessageVisibility",
            "change_message_visibility_batch",
            {"Entries": [{"Id": "a", "ReceiptHandle": HANDLE, "VisibilityTimeout": 0}]},
        ),
    ],
)
async def test_what_the_policy_denies_is_refused(
    live: Live, policy_action: str, action: str, params: dict[str, Any]
) -> None:
    url = await live.queue()
    await send(live, url)
    handle = (await receive_one(live, url))["ReceiptHandle"]
    asked = json.loads(json.dumps(params).replace(f'"{HANDLE}"', f'"{handle}"'))
    statement = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": f"sqs:{policy_action}",
        "Resource": "*",
    }
    policy = json.dumps({"Statement": [statement]})
    await live.call("set_queue_attributes", QueueUrl=url, Attributes={"Policy": policy})

    refused = await live.refused(action, QueueUrl=url, **asked)

    assert (refused.code, refused.status) == ("AccessDenied", 403)


async def test_dates_of_a_policy_are_compared_with_the_clock_as_it_is(live: Live) -> None:
    """The clock was an hour ahead and was corrected: the node's unix time stands still."""
    url = await live.queue()
    in_half_an_hour_s = live.clock.unix_ms() // 1_000 + 1_800
    statement = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "sqs:SendMessage",
        "Resource": "*",
        "Condition": {"DateGreaterThan": {"aws:CurrentTime": str(in_half_an_hour_s)}},
    }
    policy = json.dumps({"Statement": [statement]})
    await live.call("set_queue_attributes", QueueUrl=url, Attributes={"Policy": policy})

    live.clock.step_unix(3_600_000)
    refused = await live.refused("send_message", QueueUrl=url, MessageBody="m")
    live.clock.step_unix(-3_600_000)
    await send(live, url)

    assert (refused.code, refused.status) == ("AccessDenied", 403)
