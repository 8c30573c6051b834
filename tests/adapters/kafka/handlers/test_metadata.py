"""Metadata: brokers, topics by name, by id or all, auto-creation, authorization."""

import uuid
from pathlib import Path
from typing import TypeAlias

import pytest
from kafka.protocol.metadata import MetadataRequest

from adapters.kafka.errors import ErrorCode
from gateway.auth.ports import Operation
from gateway.config.settings import TopicDefaults
from gateway.model import TopicName
from tests.adapters.kafka.handlers.handler_fixture import LEADER_EPOCH, NODE_ID, Rig, running

VERSIONS = range(14)
Asked: TypeAlias = MetadataRequest.MetadataRequestTopic


def by_name(*names: str) -> list[Asked]:
    return [Asked(name=name, topic_id=None) for name in names]


@pytest.mark.parametrize("version", VERSIONS)
async def test_all_topics_are_listed_with_their_partitions(rig: Rig, version: int) -> None:
    await rig.topic("beta", partitions=2)
    alpha = await rig.topic("alpha", partitions=3)

    answer = await rig.ask("metadata", version, topics=None if version else [])

    assert [topic.name for topic in answer.topics] == ["alpha", "beta"]
    assert [len(topic.partitions) for topic in answer.topics] == [3, 2]
    assert [p.partition_index for p in answer.topics[0].partitions] == [0, 1, 2]
    assert {p.leader_id for p in answer.topics[0].partitions} == {NODE_ID}
    if version >= 7:
        assert {p.leader_epoch for p in answer.topics[0].partitions} == {LEADER_EPOCH}
    if version >= 10:
        assert answer.topics[0].topic_id == alpha.uuid


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_broker_is_where_the_client_reached_it(rig: Rig, version: int) -> None:
    answer = await rig.ask("metadata", version, topics=[])

    [broker] = answer.brokers
    assert (broker.node_id, broker.host, broker.port) == (NODE_ID, "gate.example", 9092)
    if version:
        assert answer.controller_id == NODE_ID
    if version >= 2:
        assert answer.cluster_id == "cluster-of-one-node-22"


async def test_a_list_follows_every_change(rig: Rig) -> None:
    topic = await rig.topic("one")
    names = []

    async def look() -> None:
        answer = await rig.ask("metadata", 9, topics=None)
        names.append([(t.name, len(t.partitions)) for t in answer.topics])

    await look()
    await look()
    await rig.topics.add_partitions(topic.name, 4)
    await look()
    await rig.topic("two")
    await look()
    await rig.topics.delete(topic.name)
    await look()

    one = ("one", 1)
    assert names == [[one], [one], [("one", 4)], [("one", 4), ("two", 1)], [("two", 1)]]


async def test_no_topics_asked_for_is_none_of_them(rig: Rig) -> None:
    await rig.topic("there")

    assert (await rig.ask("metadata", 4, topics=[])).topics == ()


async def test_an_unknown_topic_is_made_when_the_request_allows_it(rig: Rig) -> None:
    asked = by_name("fresh")

    refused = await rig.ask("metadata", 5, topics=asked, allow_auto_topic_creation=False)
    made = await rig.ask("metadata", 5, topics=asked, allow_auto_topic_creation=True)

    assert refused.topics[0].error_code.value == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert made.topics[0].error_code.value == ErrorCode.NONE
    assert len(made.topics[0].partitions) == 1
    assert rig.topics.find(TopicName("default", "fresh")) is not None


async def test_an_unknown_topic_is_not_made_when_the_node_does_not(tmp_path: Path) -> None:
    async with running(tmp_path, topic_defaults=TopicDefaults(auto_create=False)) as rig:
        answer = await rig.ask("metadata", 1, topics=by_name("fresh"))

        assert answer.topics[0].error_code.value == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert rig.topics.topics() == []


async def test_an_illegal_name_is_refused(rig: Rig) -> None:
    answer = await rig.ask("metadata", 1, topics=by_name("a b"))

    assert answer.topics[0].error_code.value == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_internal_topics_are_shown_to_who_asks_by_name_only(rig: Rig) -> None:
    await rig.topics.create(TopicName("default", "__compaction"), internal=True)

    everything = await rig.ask("metadata", 9, topics=None)
    named = await rig.ask("metadata", 9, topics=by_name("__compaction"))

    assert everything.topics == ()
    assert named.topics[0].is_internal


async def test_topics_are_found_by_id(rig: Rig) -> None:
    topic = await rig.topic("known", partitions=2)
    unknown = uuid.UUID(int=12345)
    asked = [Asked(name=None, topic_id=topic.uuid), Asked(name=None, topic_id=unknown)]

    known, missing = (await rig.ask("metadata", 12, topics=asked)).topics

    assert (known.name, len(known.partitions)) == ("known", 2)
    assert missing.error_code.value == ErrorCode.UNKNOWN_TOPIC_ID
    assert (missing.name, missing.topic_id) == (None, unknown)


async def test_ids_are_not_taken_before_version_12(rig: Rig) -> None:
    topic = await rig.topic("known")

    answer = await rig.ask("metadata", 11, topics=[Asked(name="known", topic_id=topic.uuid)])

    assert answer.topics[0].error_code.value == ErrorCode.INVALID_REQUEST


async def test_a_list_hides_what_a_session_may_not_describe(rig: Rig) -> None:
    await rig.topic("mine-1")
    await rig.topic("theirs")
    await rig.allow("ada", Operation.READ, "topic", "mine")
    ada = rig.login("ada")

    everything = await rig.ask("metadata", 9, session=ada, topics=None)
    named = await rig.ask("metadata", 9, session=ada, topics=by_name("theirs", "nowhere"))

    assert [topic.name for topic in everything.topics] == ["mine-1"]
    assert {topic.error_code.value for topic in named.topics} == {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED
    }
    assert len((await rig.ask("metadata", 9, topics=None)).topics) == 2


async def test_a_list_follows_the_rules(rig: Rig) -> None:
    await rig.topic("mine")
    ada = rig.login("ada")
    await rig.allow("ada", Operation.READ, "topic", "mine")
    before = await rig.ask("metadata", 9, session=ada, topics=None)

    await rig.rules.delete_rules(rig.rules.stored_rules())
    after = await rig.ask("metadata", 9, session=ada, topics=None)

    assert (len(before.topics), len(after.topics)) == (1, 0)


async def test_who_may_not_create_is_told_that_the_topic_is_unknown(rig: Rig) -> None:
    await rig.allow("ada", Operation.READ, "topic", "")

    answer = await rig.ask("metadata", 5, session=rig.login("ada"), topics=by_name("fresh"))

    assert answer.topics[0].error_code.value == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert rig.topics.topics() == []


@pytest.mark.parametrize("version", range(8, 14))
async def test_authorized_operations_are_told_when_asked_for(rig: Rig, version: int) -> None:
    await rig.topic("mine")
    await rig.allow("ada", Operation.READ, "topic", "mine")
    ada = rig.login("ada")

    not_asked = await rig.ask("metadata", version, session=ada, topics=None)
    asked = await rig.ask(
        "metadata",
        version,
        session=ada,
        topics=None,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )

    assert not_asked.topics[0].topic_authorized_operations == -(2**31)
    assert asked.topics[0].topic_authorized_operations == 1 << 3 | 1 << 8
    if version <= 10:
        assert not_asked.cluster_authorized_operations == -(2**31)
        assert asked.cluster_authorized_operations == 0


async def test_a_topic_that_is_asked_for_twice_is_answered_once(rig: Rig) -> None:
    await rig.topic("one")

    assert len((await rig.ask("metadata", 1, topics=by_name("one", "one"))).topics) == 1
