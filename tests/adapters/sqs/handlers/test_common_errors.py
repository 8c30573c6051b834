"""Errors of many operations."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.config.auth import AuthRule
from gateway.metadata import changes
from gateway.model import TopicName
from tests.adapters.sqs.handlers.serving import Live, running

QUEUE_PARAMS: dict[str, dict[str, Any]] = {
    "add_permission": {
        "Label": "share",
        "AWSAccountIds": ["111111111111"],
        "Actions": ["SendMessage"],
    },
    "delete_queue": {},
    "get_queue_attributes": {"AttributeNames": ["All"]},
    "list_dead_letter_source_queues": {},
    "list_queue_tags": {},
    "purge_queue": {},
    "remove_permission": {"Label": "share"},
    "set_queue_attributes": {"Attributes": {"DelaySeconds": "1"}},
    "tag_queue": {"Tags": {"team": "a"}},
    "untag_queue": {"TagKeys": ["team"]},
}
CHANGES = sorted(
    QUEUE_PARAMS.keys()
    - {
        "get_queue_attributes",
        "list_dead_letter_source_queues",
        "list_queue_tags",
        "purge_queue",
    }
)


@pytest.mark.parametrize("action", sorted(QUEUE_PARAMS))
async def test_a_queue_that_is_not_there(live: Live, action: str) -> None:
    for url in (f"{live.url}/000000000000/orders", "orders", f"{live.url}/111111111111/orders"):
        refused = await live.refused(action, QueueUrl=url, **QUEUE_PARAMS[action])
        assert refused.exception == "QueueDoesNotExist"
        assert refused.code == "AWS.SimpleQueueService.NonExistentQueue"
        assert refused.message == "The specified queue does not exist."
        assert refused.status == 400


@pytest.mark.parametrize("action", sorted(QUEUE_PARAMS))
async def test_an_address_that_is_none(live: Live, action: str) -> None:
    for url in (f"{live.url}/a/b/c/orders", f"{live.url}/", "http:///", "/"):
        refused = await live.refused(action, QueueUrl=url, **QUEUE_PARAMS[action])
        assert refused.exception == "InvalidAddress"
        assert refused.status == 404


@pytest.mark.parametrize("action", sorted(QUEUE_PARAMS))
async def test_a_queue_of_a_foreign_host_is_not_there(live: Live, action: str) -> None:
    """The host is of a region that is not served, or the URL names no queue at another host.

    A host that is merely another name of this one is not foreign.
    """
    await live.queue("orders")
    for url in (
        "https://sqs.eu-north-1.amazonaws.com/000000000000/orders",
        "https://eu-north-1.queue.amazonaws.com/000000000000/orders",
        "http://queue.example/",
        "http://queue.example/000000000000/orders/more",
    ):
        refused = await live.refused(action, QueueUrl=url, **QUEUE_PARAMS[action])
        assert refused.code == "AWS.SimpleQueueService.NonExistentQueue"
    assert await live.attributes("http://sqs.queues.example:9324/000000000000/orders")


@pytest.mark.parametrize("action", sorted(QUEUE_PARAMS))
async def test_a_queue_must_be_named(live: Live, action: str) -> None:
    refused = await live.refused(action, **QUEUE_PARAMS[action])
    assert refused.code == "MissingParameter"
    assert refused.message == "The request must contain the parameter QueueUrl."


@pytest.mark.parametrize("action", CHANGES)
async def test_too_many_changes_that_wait_are_throttled(
    live: Live, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    url = await live.queue()
    monkeypatch.setattr(changes, "CHANGES_MAX", 1)
    may_go_on = asyncio.Event()
    slow = live.adapter.node.changes.start(may_go_on.wait)
    refused = await live.refused(action, QueueUrl=url, **QUEUE_PARAMS[action])
    may_go_on.set()
    await slow
    assert refused.exception == "RequestThrottled"
    assert refused.status == 403


async def test_operations_that_name_no_queue_ask_who_it_is_too(tmp_path: Path) -> None:
    async with running(tmp_path, rules=(only("alice"),)) as live:
        alice, bob = await live.user("alice"), await live.user("bob")
        await live.queue("dead", by=alice)
        policy = {"deadLetterTargetArn": live.arn("dead"), "maxReceiveCount": 3}
        await live.queue(by=alice, RedrivePolicy=json.dumps(policy))
        arn = {"SourceArn": live.arn("dead")}
        refused = [
            await live.refused("create_queue", by=bob, QueueName="others"),
            await live.refused("get_queue_url", by=bob, QueueName="orders"),
            await live.refused("start_message_move_task", by=bob, **arn),
            await live.refused("list_message_move_tasks", by=bob, **arn),
        ]
        handle = await live.call("start_message_move_task", by=alice, **arn)
        refused.append(await live.refused("cancel_message_move_task", by=bob, **handle))
        assert [error.code for error in refused] == ["AccessDenied"] * 5


async def test_a_queue_on_a_topic_is_a_change_of_the_topic(tmp_path: Path) -> None:
    rules = (only("alice"), only("bob", "create"))
    async with running(tmp_path, rules=rules) as live:
        alice, bob = await live.user("alice"), await live.user("bob")
        await live.kernel.topics.create(TopicName("default", "orders"))
        refused = await live.refused("create_queue", by=bob, QueueName="orders")
        assert refused.code == "AccessDenied"
        assert await live.queue(by=alice)


async def test_a_move_task_reads_its_source_and_writes_where_messages_go(
    tmp_path: Path,
) -> None:
    rules = (
        only("alice"),
        only("bob", "read", "dead"),
        only("bob", "write", "elsewhere"),
        only("carol", "write"),
    )
    async with running(tmp_path, rules=rules) as live:
        alice, bob, carol = [await live.user(name) for name in ("alice", "bob", "carol")]
        for name in ("dead", "elsewhere"):
            await live.queue(name, by=alice)
        policy = {"deadLetterTargetArn": live.arn("dead"), "maxReceiveCount": 3}
        await live.queue(by=alice, RedrivePolicy=json.dumps(policy))
        back = {"SourceArn": live.arn("dead")}
        for by, params in (
            (bob, back),
            (bob, {**back, "DestinationArn": live.arn("orders")}),
            (carol, back),
        ):
            refused = await live.refused("start_message_move_task", by=by, **params)
            assert refused.code == "AccessDenied"
        elsewhere = {**back, "DestinationArn": live.arn("elsewhere")}
        assert await live.call("start_message_move_task", by=bob, **elsewhere)


@pytest.mark.parametrize("action", sorted(QUEUE_PARAMS))
async def test_the_gateways_rules_hold(tmp_path: Path, action: str) -> None:
    async with running(tmp_path, rules=(only("alice"),)) as live:
        url = await live.queue(by=await live.user("alice"))
        bob = await live.user("bob")
        refused = await live.refused(action, by=bob, QueueUrl=url, **QUEUE_PARAMS[action])
        assert refused.code == "AccessDenied"
        assert refused.status == 403
        assert "user/bob is not authorized to perform: sqs:" in refused.message


def only(user: str, operation: Any = "all", name: str = "") -> AuthRule:
    pattern: Any = "literal" if name else "any"
    return AuthRule(
        principal=user, operation=operation, resource="topic", pattern=pattern, name=name
    )


async def test_texts_of_any_kind_do_no_harm(live: Live) -> None:
    url = await live.queue()
    strange = "\x00\ud7ff\uffff\U0001f600'\"<&>${jndi}"
    requests: dict[str, dict[str, Any]] = {
        "create_queue": {"QueueName": strange},
        "get_queue_url": {"QueueName": strange},
        "list_queues": {"QueueNamePrefix": strange},
        "get_queue_attributes": {"QueueUrl": url, "AttributeNames": [strange]},
        "set_queue_attributes": {"QueueUrl": url, "Attributes": {"Policy": strange}},
        "tag_queue": {"QueueUrl": url, "Tags": {strange: strange}},
        "add_permission": {**QUEUE_PARAMS["add_permission"], "QueueUrl": url, "Label": strange},
        "purge_queue": {"QueueUrl": strange},
        "start_message_move_task": {"SourceArn": strange},
    }
    for action, params in requests.items():
        if action == "list_queues":
            assert await live.call(action, **params) == {}
        else:
            assert (await live.refused(action, **params)).status < 500
