"""Managers of two nodes over one store: what one has changed, the other reloads."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from features.quota.model import Entity, QuotaKey
from features.routing.model import Binding, Destination
from gateway.auth.access_keys import AccessKeyExists
from gateway.auth.ports import Operation, PatternKind, ResourceType, Rule
from gateway.errors import InvalidPartitions, InvalidTopicName, Overloaded, TopicExists
from gateway.exchanges.model import ExchangeName
from gateway.exchanges.standard import ExchangeExists, ExchangeInUse, ExchangeNotFound
from gateway.metadata import changes, feed
from gateway.metadata.store import ProtocolAddress
from gateway.model import TopicName
from tests.gateway.metadata.following_node import FollowingNode

ORDERS = TopicName("default", "orders")
LOGS, COPY = ExchangeName("default", "logs"), ExchangeName("default", "copy")
TO_ORDERS = Binding("logs", Destination("orders"), "key")
RULE = Rule("alice", Operation.READ, ResourceType.TOPIC, PatternKind.LITERAL, "orders")
ALICE = Entity("alice", None, None)


@pytest.fixture
async def nodes(url: str, tmp_path: Path) -> AsyncIterator[list[FollowingNode]]:
    found = [await FollowingNode.open(url, tmp_path, partitions_max=10) for _ in range(2)]
    yield found
    for node in reversed(found):
        await node.close()


async def test_topics_are_reloaded(nodes: list[FollowingNode]) -> None:
    one, two = nodes
    changed: list[str] = []
    deleted: list[str] = []
    two.topics.on_changed.append(lambda topic: changed.append(topic.name.name))
    two.topics.on_deleted.append(lambda topic: deleted.append(topic.name.name))

    created = await one.topics.create(ORDERS, partitions=2)
    await two.metadata.feed.catch_up()
    shown = two.topics.get(ORDERS)
    await one.topics.add_partitions(ORDERS, 5)
    await one.topics.alter_configs(ORDERS, {"retention.ms": "7"})
    await two.metadata.feed.catch_up()

    assert two.topics.get(ORDERS) is shown
    assert (shown.uuid, shown.partition_ids) == (created.uuid, created.partition_ids)
    assert (shown.configs, shown.settings.retention_ms) == ({"retention.ms": "7"}, 7)
    assert two.topics.identify(created.partition_ids[4]).number == 4

    await one.topics.delete(ORDERS)
    again = await one.topics.create(ORDERS, partitions=1)
    await two.metadata.feed.catch_up()

    assert two.topics.get(ORDERS).uuid == again.uuid
    assert (changed, deleted) == (["orders", "orders", "orders"], ["orders"])


async def test_a_node_that_is_far_behind_reloads_everything(
    nodes: list[FollowingNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "KEYS_MAX", 1)
    one, two = nodes
    await one.topics.create(ORDERS)
    await one.exchanges.declare(LOGS, "fanout")
    await two.metadata.feed.catch_up()
    await one.exchanges.delete(LOGS)
    await one.topics.delete(ORDERS)
    for name in ("a", "b"):
        await one.topics.create(TopicName("default", name))
        await one.exchanges.declare(ExchangeName("default", name), "topic")
        await one.documents.put("kind", "default", name, {"value": name})
    await one.exchanges.bind("default", Binding("amq.topic", Destination("a"), "x"))

    await two.metadata.feed.catch_up()

    assert [topic.name.name for topic in two.topics.topics()] == ["a", "b"]
    assert sorted(name.name for name in two.exchanges.names) == ["a", "b"]
    assert len(two.exchanges.bindings("default")) == 1
    assert len(two.documents.of_kind("kind")) == 2


async def test_reloading_ones_own_changes_changes_nothing(nodes: list[FollowingNode]) -> None:
    node = nodes[0]
    created = await node.topics.create(ORDERS)
    await node.users.put_user("alice", "secret")
    await node.exchanges.declare(LOGS, "fanout")
    await node.exchanges.bind("default", TO_ORDERS)
    await node.keys.add("alice")
    credential = node.users.stored("alice")[0]
    before = (node.topics.revision, node.exchanges.revision("default"), node.keys.revision)

    await node.metadata.feed.catch_up()

    assert node.topics.get(ORDERS) is created
    assert node.users.stored("alice")[0] is credential  # passwords that it fits are remembered
    after = (node.topics.revision, node.exchanges.revision("default"), node.keys.revision)
    assert after == before


async def test_exchanges_and_bindings_are_reloaded(nodes: list[FollowingNode]) -> None:
    one, two = nodes
    await one.topics.create(ORDERS)
    await one.exchanges.declare(LOGS, "topic", auto_delete=True)
    await one.exchanges.declare(COPY, "fanout")
    await one.exchanges.bind("default", TO_ORDERS)
    await one.exchanges.bind("default", Binding("copy", Destination("logs", is_exchange=True)))

    await two.metadata.feed.catch_up()

    assert two.exchanges.row(LOGS) == one.exchanges.row(LOGS)
    assert two.exchanges.bindings("default") == one.exchanges.bindings("default")
    assert two.exchanges.binding_count == 2

    await one.exchanges.unbind("default", TO_ORDERS)  # and the exchange goes with it
    await two.metadata.feed.catch_up()

    assert two.exchanges.names == [COPY]
    assert two.exchanges.binding_count == 0

    await one.exchanges.declare(LOGS, "direct")
    await two.metadata.feed.catch_up()

    assert two.exchanges.row(LOGS) == one.exchanges.row(LOGS)


async def test_access_is_reloaded(nodes: list[FollowingNode]) -> None:
    one, two = nodes
    removed: list[str] = []
    two.users.on_removed += [removed.append, two.keys.forget_user]
    added = await one.users.add_user("alice", "secret")
    key = await one.keys.add("alice")
    await one.rules.add_rules([RULE])
    await one.quotas.change(ALICE, {QuotaKey.PRODUCER_BYTE_RATE: 5.0})
    assert added.login_is_new

    await two.metadata.feed.catch_up()

    assert await two.users.authenticate_plain("alice", "secret") == "alice"
    assert (two.users.required, two.users.is_super_user("alice")) == (True, True)
    assert removed == ["ANONYMOUS"]
    assert two.keys.find(key.key_id) == key
    assert two.rules.stored_rules() == [RULE]
    assert two.quotas.limits_of(ALICE) == {QuotaKey.PRODUCER_BYTE_RATE: 5.0}

    await one.users.remove_user("alice")
    await one.rules.delete_rules([RULE])
    await one.quotas.change(ALICE, {QuotaKey.PRODUCER_BYTE_RATE: None})
    await two.metadata.feed.catch_up()

    assert not two.users.is_known("alice")
    assert not two.users.is_super_user("alice")
    assert two.keys.find(key.key_id) is None
    assert removed == ["ANONYMOUS", "alice"]
    assert (two.rules.stored_rules(), two.quotas.limits_of(ALICE)) == ([], {})


async def test_a_revoked_key_and_a_document_are_reloaded(nodes: list[FollowingNode]) -> None:
    one, two = nodes
    noted: list[str] = []
    two.documents.on_change.append(lambda _kind, key: noted.append(key.name))
    kept, revoked = await one.keys.add("alice"), await one.keys.add("bob")
    await one.documents.put("policy", "default", "all", {"priority": 1})
    await two.metadata.feed.catch_up()

    await one.keys.remove(revoked.key_id)
    await one.documents.delete("policy", "default", "all")
    await two.metadata.feed.catch_up()

    assert two.keys.keys() == [kept]
    assert two.documents.find("policy", "default", "all") is None
    assert noted == ["all", "all"]


async def test_addresses_are_reloaded(nodes: list[FollowingNode]) -> None:
    one, two = nodes
    topic = await one.topics.create(ORDERS)
    address = ProtocolAddress("default", "rocketmq", "%RETRY%g", topic.uuid, "g")
    await one.addresses.put(address)

    await two.metadata.feed.catch_up()

    assert two.addresses.find("default", "rocketmq", "%RETRY%g") == address


# --- judged anew after another node was faster


async def test_of_two_nodes_that_create_a_topic_one_succeeds(
    nodes: list[FollowingNode],
) -> None:
    outcomes = await asyncio.gather(
        *(node.topics.create(ORDERS, partitions=2) for node in nodes), return_exceptions=True
    )

    assert sorted(type(one).__name__ for one in outcomes) == ["Topic", "TopicExists"]
    await nodes[0].metadata.feed.catch_up()
    uuids = {node.topics.get(ORDERS).uuid for node in nodes}
    assert len(uuids) == 1


async def test_a_topic_that_another_node_creates_is_auto_created_once(
    nodes: list[FollowingNode],
) -> None:
    found = await asyncio.gather(*(node.topics.auto_create(ORDERS) for node in nodes))

    assert found[0].uuid == found[1].uuid


async def test_bounds_and_rules_of_names_hold_across_nodes(nodes: list[FollowingNode]) -> None:
    one, two = nodes
    await one.topics.create(TopicName("default", "a.b"), partitions=8)

    with pytest.raises(InvalidTopicName, match="collides"):
        await two.topics.create(TopicName("default", "a_b"), partitions=1)
    await one.topics.create(ORDERS)
    with pytest.raises(InvalidPartitions, match="partitions_max"):
        await two.topics.create(TopicName("default", "large"), partitions=5)


async def test_changes_of_one_row_are_not_lost(nodes: list[FollowingNode]) -> None:
    one, two = nodes
    await one.topics.create(ORDERS)
    await two.metadata.feed.catch_up()

    await one.topics.alter_configs(ORDERS, {"retention.ms": "7"})
    altered = await two.topics.alter_configs(ORDERS, {"segment.ms": "8"})

    assert altered.configs == {"retention.ms": "7", "segment.ms": "8"}
    await one.topics.add_partitions(ORDERS, 4)
    with pytest.raises(InvalidPartitions, match="has 4 partitions"):
        await two.topics.add_partitions(ORDERS, 3)


async def test_exchanges_are_judged_by_what_other_nodes_have(
    nodes: list[FollowingNode],
) -> None:
    one, two = nodes
    await one.topics.create(ORDERS)
    await one.exchanges.declare(LOGS, "fanout")

    with pytest.raises(ExchangeExists, match="inequivalent arg 'type'"):
        await two.exchanges.declare(LOGS, "direct")
    assert not await two.exchanges.declare(LOGS, "fanout")
    await one.exchanges.bind("default", TO_ORDERS)
    with pytest.raises(ExchangeInUse):
        await two.exchanges.delete(LOGS, if_unused=True)
    await one.exchanges.delete(LOGS)
    with pytest.raises(ExchangeNotFound):
        await two.exchanges.delete(LOGS)


async def test_a_key_id_is_given_once(nodes: list[FollowingNode]) -> None:
    one, two = nodes
    await one.keys.add("alice", key_id="AKIA1")

    with pytest.raises(AccessKeyExists):
        await two.keys.add("bob", key_id="AKIA1")


async def test_only_one_first_user_administers(nodes: list[FollowingNode]) -> None:
    one, two = nodes

    first, second = await asyncio.gather(
        one.users.add_user("alice", "secret"), two.users.add_user("bob", "secret")
    )

    assert [first.is_administrator, second.is_administrator].count(True) == 1


async def test_a_change_that_is_overtaken_each_time_is_refused(
    nodes: list[FollowingNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = nodes
    monkeypatch.setattr(changes, "TRIES_MAX", 2)

    async def overtake() -> None:
        await one.documents.put("kind", "default", "name", two.metadata.feed.seen)

    original = two.metadata.put_document

    async def put_overtaken(document: object) -> None:
        await overtake()
        await original(document)  # type: ignore[arg-type]

    monkeypatch.setattr(two.metadata, "put_document", put_overtaken)

    with pytest.raises(Overloaded, match="2 times"):
        await two.documents.put("kind", "default", "name", 0)


async def test_a_topic_of_ones_own_is_unchanged_by_a_failed_creation(
    nodes: list[FollowingNode],
) -> None:
    one, two = nodes
    created = await one.topics.create(ORDERS)

    with pytest.raises(TopicExists):
        await two.topics.create(ORDERS)

    await one.metadata.feed.catch_up()
    assert one.topics.get(ORDERS) is created
