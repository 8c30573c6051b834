"""The name server: routes, cluster, lists of topics, configs, registration."""

import json
import zlib
from pathlib import Path

from adapters.rocketmq.remoting.client import RemotingClient
from adapters.rocketmq.remoting.wire import Command, RequestCode, ResponseCode, Serialization
from tests.adapters.rocketmq.running_adapter import RunningRocketMq, json_of, running
from tests.support.waiting import until

REGISTRATION = {
    "brokerName": "broker-a",
    "brokerAddr": "10.0.0.1:10911",
    "clusterName": "Other",
    "haServerAddr": "10.0.0.1:10912",
    "brokerId": "0",
    "compressed": "false",
}
TOPICS = json.dumps(
    {
        "topicConfigSerializeWrapper": {
            "topicConfigTable": {
                "foreign": {"readQueueNums": 3, "writeQueueNums": 3, "perm": 6},
                "orders": {"readQueueNums": 1, "writeQueueNums": 1, "perm": 4},
            }
        },
        "filterServerList": [],
    }
).encode()


async def route(client: RemotingClient, topic: str) -> Command:
    fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
    return await client.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)


async def topics_of(client: RemotingClient, code: int, **fields: str) -> list[str]:
    response = await client.call(code, fields)
    assert response.code == ResponseCode.SUCCESS
    found: list[str] = json_of(response)["topicList"]
    return found


async def register(client: RemotingClient, **changed: str) -> Command:
    return await client.call(RequestCode.REGISTER_BROKER, {**REGISTRATION, **changed}, TOPICS)


def broker_address(live: RunningRocketMq) -> str:
    return str(live.adapter.broker_address)


async def test_a_route_names_this_broker_and_its_queues(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.topic("orders", 3)
        for client in (await live.nameserver_client(), await live.client()):
            found = json_of(await route(client, "orders"))
            assert found["queueDatas"] == [
                {
                    "brokerName": "headgate",
                    "perm": 6,
                    "readQueueNums": 3,
                    "topicSysFlag": 0,
                    "writeQueueNums": 3,
                }
            ]
            [broker] = found["brokerDatas"]
            assert broker["brokerAddrs"] == {"0": broker_address(live)}


async def test_keys_of_a_route_are_quoted_by_the_clients_version(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.topic("orders")

        async def body_for(version: int) -> bytes:
            client = await live.client(sign=lambda command: command._replace(version=version))
            found = await client.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
            return bytes(found.body)

        assert b'"brokerAddrs":{0:' in await body_for(400)
        assert b'"brokerAddrs":{"0":' in await body_for(401)


async def test_a_binary_request_has_a_binary_response(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.topic("orders")
        client = await live.client(serialization=Serialization.ROCKETMQ)
        response = await route(client, "orders")
        assert (response.code, response.serialization) == (0, Serialization.ROCKETMQ)


async def test_an_unknown_topic_has_the_route_of_the_default_topic(tmp_path: Path) -> None:
    async with running(tmp_path, default_topic_queues=5) as live:
        client = await live.nameserver_client()
        for name in ("orders", "%RETRY%group", "a.b", ""):
            assert (await route(client, name)).code == ResponseCode.TOPIC_NOT_EXIST
        [queues] = json_of(await route(client, "TBW102"))["queueDatas"]
        assert (queues["perm"], queues["writeQueueNums"]) == (7, 5)


async def test_without_auto_creation_there_is_no_default_topic(tmp_path: Path) -> None:
    async with running(tmp_path, auto_create=False) as live:
        client = await live.nameserver_client()
        assert (await route(client, "TBW102")).code == ResponseCode.TOPIC_NOT_EXIST


async def test_topics_are_listed(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.topic("orders")
        await live.topic("not.visible")
        client = await live.nameserver_client()
        await register(client)

        everything = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        by_cluster = RequestCode.GET_TOPICS_BY_CLUSTER
        assert await topics_of(client, everything) == ["foreign", "orders"]
        assert await topics_of(client, by_cluster, cluster="DefaultCluster") == ["orders"]
        assert await topics_of(client, by_cluster, cluster="Other") == ["foreign", "orders"]
        assert await topics_of(client, by_cluster, cluster="none") == []
        system = await topics_of(client, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        assert {"TBW102", "headgate", "DefaultCluster", "broker-a", "Other"} <= set(system)


async def test_a_registered_broker_is_routed_to(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.topic("orders", 2)
        client = await live.nameserver_client()
        assert (
            await register(client, bodyCrc32=str(zlib.crc32(TOPICS) & 0x7FFFFFFF))
        ).code == 0

        found = json_of(await route(client, "orders"))
        assert [one["brokerName"] for one in found["queueDatas"]] == ["headgate", "broker-a"]
        assert found["brokerDatas"][1]["brokerAddrs"] == {"0": "10.0.0.1:10911"}
        found = json_of(await route(client, "foreign"))
        assert [one["cluster"] for one in found["brokerDatas"]] == ["Other"]
        cluster = await client.call(RequestCode.GET_BROKER_CLUSTER_INFO)
        assert b'"broker-a":{"brokerAddrs":{0:"10.0.0.1:10911"}' in bytes(cluster.body)

        slave = await register(client, brokerId="1", brokerAddr="10.0.0.2:10911")
        assert slave.fields["masterAddr"] == "10.0.0.1:10911"


async def test_a_broker_is_forgotten_when_it_unregisters_or_disconnects(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.nameserver_client()
        await register(client)
        await client.call(RequestCode.UNREGISTER_BROKER, REGISTRATION)
        assert (await route(client, "foreign")).code == ResponseCode.TOPIC_NOT_EXIST

        broker = await live.nameserver_client()
        await register(broker)
        assert (await route(client, "foreign")).code == ResponseCode.SUCCESS
        await broker.close()
        await until(lambda: not len(live.node.brokers))


async def test_a_registration_that_cannot_be_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.nameserver_client()
        for changed in (
            {"brokerName": "headgate"},
            {"brokerName": ""},
            {"brokerId": "-1"},
            {"brokerAddr": "nowhere"},
            {"compressed": "true"},
            {"bodyCrc32": "1"},
        ):
            assert (await register(client, **changed)).code == ResponseCode.SYSTEM_ERROR, (
                changed
            )
        assert not len(live.node.brokers)


async def test_configs_are_kept(tmp_path: Path) -> None:
    place = {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders"}
    async with running(tmp_path) as live:
        client = await live.nameserver_client()
        get = await client.call(RequestCode.GET_KV_CONFIG, place)
        assert get.code == ResponseCode.QUERY_NOT_FOUND
        listed = await client.call(RequestCode.GET_KVLIST_BY_NAMESPACE, place)
        assert listed.code == ResponseCode.QUERY_NOT_FOUND
        put = await client.call(RequestCode.PUT_KV_CONFIG, {**place, "value": "headgate:1"})
        assert put.code == ResponseCode.SUCCESS
        await live.topic("orders")
    async with running(tmp_path) as live:  # another start
        client = await live.nameserver_client()
        get = await client.call(RequestCode.GET_KV_CONFIG, place)
        assert get.fields == {"value": "headgate:1"}
        listed = await client.call(RequestCode.GET_KVLIST_BY_NAMESPACE, place)
        assert json_of(listed) == {"table": {"orders": "headgate:1"}}
        assert json_of(await route(client, "orders"))["orderTopicConf"] == "headgate:1"
        registered = await register(client)
        assert json_of(registered) == {"table": {"orders": "headgate:1"}}
        await client.call(RequestCode.DELETE_KV_CONFIG, place)
        get = await client.call(RequestCode.GET_KV_CONFIG, place)
        assert get.code == ResponseCode.QUERY_NOT_FOUND


async def test_a_request_of_the_broker_is_not_served_here(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.nameserver_client()
        response = await client.call(RequestCode.PULL_MESSAGE)
        assert response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert response.remark == " request type 11 not supported"
        missing = await client.call(RequestCode.GET_ROUTEINFO_BY_TOPIC)
        assert missing.code == ResponseCode.SYSTEM_ERROR
        assert missing.remark == "the custom field <topic> is null"
