"""Clients in groups: heartbeats, lists of members, notices, locks, offsets."""

import json
from pathlib import Path
from typing import Any

import pytest

from adapters.rocketmq.remoting.client import RemotingClient
from adapters.rocketmq.remoting.wire import Command, RequestCode, ResponseCode
from gateway.groups.model import GroupName, JoinRequest
from tests.adapters.rocketmq.running_adapter import RunningRocketMq, json_of, running, send
from tests.support.waiting import until

GROUP = "group"
WHERE = {"consumerGroup": GROUP, "topic": "orders", "queueId": "0"}


def heartbeat_of(client_id: str, topic: str = "orders", **changed: Any) -> dict[str, Any]:
    subscription = {
        "topic": topic,
        "subString": "*",
        "tagsSet": [],
        "codeSet": [],
        "subVersion": 1,
        "classFilterMode": False,
        "expressionType": "TAG",
    }
    consumer = {
        "groupName": GROUP,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [subscription],
        "unitMode": False,
    }
    return {
        "clientID": client_id,
        "producerDataSet": [{"groupName": "producers"}],
        "consumerDataSet": [consumer],
        "heartbeatFingerprint": 0,
        "withoutSub": False,
        **changed,
    }


async def beat(client: RemotingClient, data: object) -> Command:
    return await client.call(RequestCode.HEART_BEAT, body=json.dumps(data).encode() + b"\n")


async def ids(client: RemotingClient) -> list[str] | None:
    """Return the client ids of the group; None when it has no member."""
    fields = {"consumerGroup": GROUP}
    response = await client.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields)
    if response.code == ResponseCode.SYSTEM_ERROR:
        return None
    found: list[str] = json_of(response)["consumerIdList"]
    return found


async def test_members_are_told_of_those_that_come_and_go(tmp_path: Path) -> None:
    noticed: dict[str, list[Command]] = {"a": [], "b": []}
    async with running(tmp_path) as live:
        first = await live.client(on_request=noticed["a"].append)
        assert await ids(first) is None
        response = await beat(first, heartbeat_of("a"))
        assert response.fields["IS_SUPPORT_HEART_BEAT_V2"] == "true"
        await until(lambda: len(noticed["a"]) == 1)  # who comes is told, too
        second = await live.client(on_request=noticed["b"].append)
        await beat(second, heartbeat_of("b"))
        await until(lambda: len(noticed["a"]) == 2 and len(noticed["b"]) == 1)
        notice = noticed["a"][0]
        assert notice.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        assert notice.is_oneway
        assert notice.fields == {"consumerGroup": GROUP}
        assert await ids(first) == ["a", "b"]

        await beat(first, heartbeat_of("a"))
        await second.close()
        await until(lambda: len(noticed["a"]) == 3)
        assert await ids(first) == ["a"]


async def test_a_client_leaves_its_groups(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client, stranger = await live.client(), await live.client()
        await beat(client, heartbeat_of("a"))
        assert live.node.producers.groups() == [GroupName("default", "producers")]
        fields = {"clientID": "a", "producerGroup": "producers", "consumerGroup": GROUP}
        await stranger.call(RequestCode.UNREGISTER_CLIENT, fields)
        assert await ids(client) == ["a"]
        await client.call(RequestCode.UNREGISTER_CLIENT, fields)
        assert await ids(client) is None
        assert live.node.producers.groups() == []


async def test_a_client_that_sends_no_heartbeat_expires(tmp_path: Path) -> None:
    async with running(tmp_path, client_expiry_s=120) as live:
        client = await live.client()
        await beat(client, heartbeat_of("a"))
        live.clock.advance(120_000)
        live.node.consumers._deadlines.run_due()
        assert await ids(client) is None


async def test_heartbeats_of_the_cpp_client_are_read(tmp_path: Path) -> None:
    """Enumerations are integers, and lists that are empty are left out."""
    async with running(tmp_path) as live:
        client = await live.client()
        consumer = {"groupName": GROUP, "consumeType": 1, "messageModel": 1}
        await beat(client, {"clientID": "a", "consumerDataSet": [consumer]})
        assert await ids(client) == ["a"]


async def test_a_heartbeat_without_subscriptions_keeps_those_before(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        bare = heartbeat_of("a", heartbeatFingerprint=5, withoutSub=True)
        assert (await beat(client, bare)).fields["IS_SUB_CHANGE"] == "true"
        assert await ids(client) is None
        await beat(client, heartbeat_of("a", heartbeatFingerprint=5))
        assert (await beat(client, bare)).fields["IS_SUB_CHANGE"] == "false"
        [member] = live.node.consumers.members(GroupName("default", GROUP))
        assert list(member.subscription) == ["orders"]


async def test_a_connection_shows_its_client_and_groups(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await beat(await live.client(), heartbeat_of("a"))
        [shown] = live.adapter.connections()
        assert (shown["client_id"], shown["groups"]) == ("a", [GROUP, "producers"])


@pytest.mark.parametrize(
    "data",
    [
        [],
        {},
        {"clientID": ""},
        {"clientID": "x" * 501},
        {"clientID": "a", "producerDataSet": {"groupName": "a"}},
        {"clientID": "a", "producerDataSet": [1]},
        {"clientID": "a", "producerDataSet": [{}]},
        {"clientID": "a", "producerDataSet": [{"groupName": "a b"}]},
        {"clientID": "a", "producerDataSet": [{"groupName": "a"}] * 1_001},
    ],
)
async def test_a_heartbeat_that_cannot_be_read_is_refused(data: object, tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        assert (await beat(client, data)).code == ResponseCode.INVALID_PARAMETER
        assert len(live.node.producers) == 0


async def test_memberships_are_bounded(tmp_path: Path) -> None:
    async with running(tmp_path, client_groups_max=1) as live:
        client = await live.client()
        assert (await beat(client, heartbeat_of("a"))).code == ResponseCode.SUCCESS
        assert (await beat(client, heartbeat_of("b"))).code == ResponseCode.SYSTEM_BUSY


@pytest.mark.parametrize(
    ("expression", "code"),
    [("a = 1", ResponseCode.SUCCESS), ("a >", ResponseCode.SUBSCRIPTION_PARSE_FAILED)],
)
async def test_expressions_are_checked(
    expression: str, code: ResponseCode, tmp_path: Path
) -> None:
    data = {"topic": "t", "subString": expression, "expressionType": "SQL92"}
    body = json.dumps({"clientId": "a", "group": GROUP, "subscriptionData": data}).encode()
    async with running(tmp_path) as live:
        client = await live.client()
        response = await client.call(RequestCode.CHECK_CLIENT_CONFIG, body=body)
        assert response.code == code


# --- locks


def lock_body(client_id: str, *queue_ids: int) -> bytes:
    queues = [
        {"topic": "orders", "brokerName": "headgate", "queueId": number} for number in queue_ids
    ]
    data = {"consumerGroup": GROUP, "clientId": client_id, "mqSet": queues}
    return json.dumps(data).encode()


async def locked(client: RemotingClient, client_id: str, *queue_ids: int) -> list[int]:
    body = lock_body(client_id, *queue_ids)
    response = await client.call(RequestCode.LOCK_BATCH_MQ, body=body)
    return [one["queueId"] for one in json_of(response)["lockOKMQSet"]]


async def test_a_queue_is_locked_for_one_client_of_a_group(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        assert await locked(client, "a", 0, 1) == [0, 1]
        assert await locked(client, "b", 1, 2) == [2]
        await client.call(RequestCode.UNLOCK_BATCH_MQ, body=lock_body("a", 1, 2))
        assert await locked(client, "b", 0, 1, 2) == [1, 2]
        live.clock.advance(60_000)
        assert await locked(client, "b", 0) == [0]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"consumerGroup":1,"clientId":"a"}',
        b'{"consumerGroup":"g","clientId":1}',
        b'{"consumerGroup":"g","clientId":"a","mqSet":1}',
        b'{"consumerGroup":"g","clientId":"a","mqSet":[1]}',
        b'{"consumerGroup":"g","clientId":"a","mqSet":[{"topic":1,"brokerName":"b","queueId":0}]}',
    ],
)
async def test_a_lock_that_cannot_be_read_is_refused(body: bytes, tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
            response = await client.call(code, body=body)
            assert response.code == ResponseCode.INVALID_PARAMETER


# --- offsets


async def offset(
    live: RunningRocketMq, client: RemotingClient, code: int, **fields: str
) -> int:
    del live
    response = await client.call(code, {**WHERE, **fields})
    assert response.code == ResponseCode.SUCCESS, response.remark
    return int(response.fields["offset"])


async def test_a_groups_offset_is_stored(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.topic("orders")
        client = await live.client()
        response = await client.call(RequestCode.QUERY_CONSUMER_OFFSET, WHERE)
        assert response.code == ResponseCode.QUERY_NOT_FOUND
        fields = {**WHERE, "commitOffset": "7"}
        await client.send_oneway(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        assert await offset(live, client, RequestCode.QUERY_CONSUMER_OFFSET) == 7
        response = await client.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        assert response.code == ResponseCode.SUCCESS
        name = GroupName("default", GROUP)
        [cursor] = live.kernel.cursors.fetch_all(name)
        assert cursor.offset == 7  # Kafka's consumers of this group go on there


async def test_a_new_group_starts_at_0_in_a_young_queue(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.topic("orders")
        client = await live.client()
        await send(client, "orders", b"x")
        assert await offset(live, client, RequestCode.QUERY_CONSUMER_OFFSET) == 0
        fields = {**WHERE, "setZeroIfNotFound": "false"}
        response = await client.call(RequestCode.QUERY_CONSUMER_OFFSET, fields)
        assert response.code == ResponseCode.QUERY_NOT_FOUND


async def test_a_group_with_members_of_kafka_keeps_its_offsets(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.topic("orders")
        client = await live.client()
        join = JoinRequest("", None, "c", "h", 10_000, 10_000, "consumer", (("range", b""),))
        live.kernel.groups.join(GroupName("default", GROUP), join, lambda _result: None)
        fields = {**WHERE, "commitOffset": "7"}
        response = await client.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        assert response.code == ResponseCode.SYSTEM_ERROR


async def test_offsets_of_a_queue(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.topic("orders")
        client = await live.client()
        times = []
        for number in range(3):
            times.append(live.clock.unix_ms())
            await send(client, "orders", b"%d" % number)
            live.clock.advance(1_000)
        assert await offset(live, client, RequestCode.GET_MIN_OFFSET) == 0
        assert await offset(live, client, RequestCode.GET_MAX_OFFSET) == 3
        search = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        for timestamp, lower, upper in (
            (times[0] - 1, 0, 0),
            (times[1], 1, 1),
            (times[1] + 1, 2, 1),
            (times[2] + 1, 3, 2),
        ):
            fields = {"timestamp": str(timestamp)}
            assert await offset(live, client, search, **fields) == lower
            assert await offset(live, client, search, **fields, boundaryType="UPPER") == upper
