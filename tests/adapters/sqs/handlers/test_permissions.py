"""AddPermission, RemovePermission, and permissions by policies."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.sqs.handlers.serving import ACCOUNT, SESSION, Live, running
from tests.support.certificates import make_certificate

OTHER = "111111111111"
SHARE = {"Label": "share", "AWSAccountIds": [OTHER], "Actions": ["SendMessage"]}


@pytest.fixture
async def shared(tmp_path: Path) -> AsyncIterator[Live]:
    """Return an endpoint that serves another account too."""
    async with running(tmp_path, sqs={"accounts": [OTHER]}) as live:
        yield live


async def set_policy(live: Live, url: str, *statements: dict[str, Any]) -> None:
    policy = json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
    await live.call("set_queue_attributes", QueueUrl=url, Attributes={"Policy": policy})


def statement(live: Live, **changes: Any) -> dict[str, Any]:
    fields = {"Effect": "Allow", "Principal": "*", "Action": "sqs:*"}
    return {**fields, "Resource": live.arn("orders"), **changes}


async def test_a_permission_is_a_statement_of_the_policy(live: Live) -> None:
    url = await live.queue()
    assert await live.call("add_permission", QueueUrl=url, **SHARE) == {}
    assert json.loads((await live.attributes(url))["Policy"]) == {
        "Version": "2008-10-17",
        "Id": f"{live.arn('orders')}/SQSDefaultPolicy",
        "Statement": [
            {
                "Sid": "share",
                "Effect": "Allow",
                "Principal": {"AWS": f"arn:aws:iam::{OTHER}:root"},
                "Action": "SQS:SendMessage",
                "Resource": live.arn("orders"),
            }
        ],
    }
    answer = await live.call("remove_permission", QueueUrl=url, Label="share")
    assert answer == {}
    assert "Policy" not in await live.attributes(url)


async def test_another_account_may_do_what_was_permitted(shared: Live) -> None:
    url = await shared.queue()
    bob = await shared.user("bob", OTHER)
    sent = {"QueueUrl": url, "MessageBody": "1"}
    assert (await shared.refused("send_message", by=bob, **sent)).status == 403
    await shared.call("add_permission", QueueUrl=url, **SHARE)
    assert await shared.call("send_message", by=bob, **sent)
    entry = {"Id": "1", "MessageBody": "2"}
    assert await shared.call("send_message_batch", by=bob, QueueUrl=url, Entries=[entry])
    refused = await shared.refused("receive_message", by=bob, QueueUrl=url)
    assert refused.code == "AccessDenied"
    await shared.call("remove_permission", QueueUrl=url, Label="share")
    assert (await shared.refused("send_message", by=bob, **sent)).code == "AccessDenied"


async def test_a_denial_holds_for_the_owners_users_too(live: Live) -> None:
    url = await live.queue()
    alice, bob = await live.user("alice"), await live.user("bob")
    denied = {"AWS": f"arn:aws:iam::{ACCOUNT}:user/bob"}
    await set_policy(
        live, url, statement(live, Effect="Deny", Principal=denied, Action="sqs:SendMessage")
    )
    sent = {"QueueUrl": url, "MessageBody": "1"}
    assert await live.call("send_message", by=alice, **sent)
    refused = await live.refused("send_message", by=bob, **sent)
    assert refused.code == "AccessDenied"
    assert "sqs:sendmessage" in refused.message
    assert await live.call("receive_message", by=bob, QueueUrl=url)


async def test_a_policy_of_another_queue_says_nothing(shared: Live) -> None:
    url = await shared.queue()
    bob = await shared.user("bob", OTHER)
    await set_policy(shared, url, statement(shared, Resource=shared.arn("others")))
    sent = {"QueueUrl": url, "MessageBody": "1"}
    assert (await shared.refused("send_message", by=bob, **sent)).code == "AccessDenied"


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"Label": ""}, "MissingParameter", "parameter Label"),
        ({"Label": "a b"}, "InvalidParameterValue", "parameter Label is invalid"),
        ({"AWSAccountIds": []}, "InvalidParameterValue", "Unable to verify."),
        ({"AWSAccountIds": ["bob"]}, "InvalidParameterValue", "Value [bob] for"),
        ({"Actions": []}, "MissingParameter", "parameter Actions"),
        ({"Actions": ["DeleteQueue"]}, "InvalidParameterValue", "Only the queue owner"),
        ({"Actions": ["*"] * 8}, "OverLimit", "8 Actions were found"),
    ],
)
async def test_wrong_permissions_are_refused(
    live: Live, changes: dict[str, Any], code: str, words: str
) -> None:
    url = await live.queue()
    refused = await live.refused("add_permission", QueueUrl=url, **{**SHARE, **changes})
    assert refused.code == code
    assert words in refused.message
    assert "Policy" not in await live.attributes(url)


async def test_a_label_is_there_once(live: Live) -> None:
    url = await live.queue()
    await live.call("add_permission", QueueUrl=url, **SHARE)
    refused = await live.refused("add_permission", QueueUrl=url, **SHARE)
    assert refused.code == "InvalidParameterValue"
    assert refused.message == (
        "Value share for parameter Label is invalid. Reason: Already exists."
    )


async def test_a_permission_too_many_is_over_the_limit(live: Live) -> None:
    url = await live.queue()
    await set_policy(live, url, *[statement(live, Resource="*")] * 20)
    refused = await live.refused("add_permission", QueueUrl=url, **SHARE)
    assert refused.exception == "OverLimit"
    assert refused.status == 403


async def test_a_label_that_is_not_there_cannot_be_removed(live: Live) -> None:
    url = await live.queue()
    refused = await live.refused("remove_permission", QueueUrl=url, Label="share")
    assert refused.code == "InvalidParameterValue"
    assert refused.message == (
        "Value share for parameter Label is invalid. Reason: can't find label."
    )


SNS_MAY_SEND = {"ArnEquals": {"aws:SourceArn": "arn:aws:sns:us-east-1:000000000000:news"}}
OF_THIS_ACCOUNT = {"StringEquals": {"aws:SourceAccount": ACCOUNT}}
ONLY_BY_TLS = {"Bool": {"aws:SecureTransport": "false"}}


@pytest.mark.parametrize("condition", [SNS_MAY_SEND, OF_THIS_ACCOUNT])
async def test_what_is_for_a_service_lets_no_other_account_in(
    shared: Live, condition: dict[str, Any]
) -> None:
    url = await shared.queue()
    bob = await shared.user("bob", OTHER)
    allowed = statement(shared, Action="sqs:SendMessage", Condition=condition)

    await set_policy(shared, url, allowed)

    sent = {"QueueUrl": url, "MessageBody": "1"}
    assert (await shared.refused("send_message", by=bob, **sent)).code == "AccessDenied"
    assert await shared.call("send_message", **sent)


async def test_a_queue_may_be_only_for_tls(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        url = await live.queue()
        denied = statement(live, Effect="Deny", Action="sqs:SendMessage", Condition=ONLY_BY_TLS)
        await set_policy(live, url, denied)
        refused = await live.refused("send_message", QueueUrl=url, MessageBody="1")
        assert refused.code == "AccessDenied"

    cert, key = make_certificate(tmp_path)
    async with running(tmp_path, sqs={"tls_cert": cert, "tls_key": key}) as live:
        url = f"https://127.0.0.1:{live.adapter.listener.port}"
        secure = SESSION.client(
            "sqs",
            endpoint_url=url,
            aws_access_key_id="any",
            aws_secret_access_key="any",
            verify=str(cert),
        )
        live.clients.append(secure)
        made = await live.queue(by=secure)
        await live.call(
            "set_queue_attributes",
            by=secure,
            QueueUrl=made,
            Attributes={"Policy": json.dumps({"Statement": [denied]})},
        )
        assert await live.call("send_message", by=secure, QueueUrl=made, MessageBody="1")


async def test_another_account_may_come_from_an_address(shared: Live) -> None:
    url = await shared.queue()
    bob = await shared.user("bob", OTHER)
    sent = {"QueueUrl": url, "MessageBody": "1"}

    async def let_in(network: str) -> None:
        condition = {"IpAddress": {"aws:SourceIp": network}}
        await set_policy(shared, url, statement(shared, Condition=condition))

    await let_in("10.0.0.0/8")
    assert (await shared.refused("send_message", by=bob, **sent)).code == "AccessDenied"
    await let_in("127.0.0.0/8")
    assert await shared.call("send_message", by=bob, **sent)
