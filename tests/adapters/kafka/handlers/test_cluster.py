"""DescribeCluster, DescribeTopicPartitions, InitProducerId; APIs with empty responses."""

import uuid
from typing import TypeAlias

import pytest
from kafka.protocol.admin import (
    DescribeQuorumRequest,
    DescribeTopicPartitionsRequest,
    ElectLeadersRequest,
)

from adapters.kafka.errors import ErrorCode
from gateway.auth.ports import Operation
from gateway.model import TopicName
from tests.adapters.kafka.handlers.handler_fixture import LEADER_EPOCH, NODE_ID, Rig

Asked: TypeAlias = DescribeTopicPartitionsRequest.TopicRequest
Cursor: TypeAlias = DescribeTopicPartitionsRequest.Cursor


@pytest.mark.parametrize("version", range(3))
async def test_the_cluster_is_described(rig: Rig, version: int) -> None:
    answer = await rig.ask("describe_cluster", version)

    [broker] = answer.brokers
    assert (answer.cluster_id, answer.controller_id) == ("cluster-of-one-node-22", NODE_ID)
    assert (broker.broker_id, broker.host, broker.port) == (NODE_ID, "gate.example", 9092)
    assert answer.cluster_authorized_operations == -(2**31)


async def test_operations_on_the_cluster_are_told_when_asked_for(rig: Rig) -> None:
    await rig.allow("ada", Operation.DESCRIBE, "cluster", "")
    await rig.allow("bob", Operation.CREATE, "cluster", "")

    ada, bob = [
        await rig.ask(
            "describe_cluster",
            0,
            session=rig.login(name),
            include_cluster_authorized_operations=True,
        )
        for name in ("ada", "bob")
    ]

    assert ada.cluster_authorized_operations == 1 << 8
    assert bob.cluster_authorized_operations == 0


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [
        (1, ErrorCode.NONE),
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
async def test_only_brokers_are_here(rig: Rig, endpoint_type: int, code: ErrorCode) -> None:
    answer = await rig.ask("describe_cluster", 1, endpoint_type=endpoint_type)

    assert answer.error_code.value == code


async def test_topic_partitions_come_in_pages(rig: Rig) -> None:
    await rig.topic("a", partitions=2)
    await rig.topic("b", partitions=3)
    await rig.topic("c", partitions=1)
    pages, cursor = [], None

    while True:
        answer = await rig.ask(
            "describe_topic_partitions",
            0,
            topics=[],
            response_partition_limit=2,
            cursor=cursor,
        )
        pages.append(
            [(t.name, [p.partition_index for p in t.partitions]) for t in answer.topics]
        )
        if answer.next_cursor is None:
            break
        cursor = Cursor(
            topic_name=answer.next_cursor.topic_name,
            partition_index=answer.next_cursor.partition_index,
        )

    assert pages == [
        [("a", [0, 1])],
        [("b", [0, 1])],
        [("b", [2]), ("c", [0])],
    ]


async def test_topic_partitions_of_named_topics(rig: Rig) -> None:
    topic = await rig.topic("known", partitions=1)
    asked = [Asked(name=name) for name in ("unknown", "known", "b a d")]

    answer = await rig.ask("describe_topic_partitions", 0, topics=asked)

    bad, known, unknown = answer.topics
    [partition] = known.partitions
    assert bad.error_code.value == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert unknown.error_code.value == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (known.name, known.topic_id, known.is_internal) == ("known", topic.uuid, False)
    assert (partition.leader_id, partition.leader_epoch) == (NODE_ID, LEADER_EPOCH)
    assert partition.replica_nodes == partition.isr_nodes == (NODE_ID,)
    assert answer.next_cursor is None


async def test_topic_partitions_hide_what_may_not_be_described(rig: Rig) -> None:
    await rig.topic("mine")
    await rig.topic("theirs")
    await rig.topics.create(TopicName("default", "__compaction"), internal=True)
    await rig.allow("ada", Operation.READ, "topic", "mine")
    ada = rig.login("ada")

    everything = await rig.ask("describe_topic_partitions", 0, session=ada, topics=[])
    named = await rig.ask(
        "describe_topic_partitions", 0, session=ada, topics=[Asked(name="theirs")]
    )

    assert [topic.name for topic in everything.topics] == ["mine"]
    assert everything.topics[0].topic_authorized_operations == 1 << 3 | 1 << 8
    assert named.topics[0].error_code.value == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert named.topics[0].topic_id in {None, uuid.UUID(int=0)}


@pytest.mark.parametrize("version", range(6))
async def test_producer_ids_differ(rig: Rig, version: int) -> None:
    answers = [
        await rig.ask("init_producer_id", version, transactional_id=None) for _ in range(3)
    ]

    assert {answer.error_code.value for answer in answers} == {ErrorCode.NONE}
    assert {answer.producer_epoch for answer in answers} == {0}
    assert len({answer.producer_id for answer in answers}) == 3


async def test_an_id_without_an_epoch_is_refused(rig: Rig) -> None:
    answer = await rig.ask(
        "init_producer_id", 3, transactional_id=None, producer_id=5, producer_epoch=-1
    )

    assert answer.error_code.value == ErrorCode.INVALID_REQUEST


async def test_idempotent_writes_need_a_right_to_write_somewhere(rig: Rig) -> None:
    await rig.allow("ada", Operation.WRITE, "topic", "mine")
    await rig.allow("bob", Operation.READ, "topic", "")

    ada, bob = [
        await rig.ask("init_producer_id", 4, session=rig.login(name), transactional_id=None)
        for name in ("ada", "bob")
    ]

    assert ada.error_code.value == ErrorCode.NONE
    assert bob.error_code.value == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("version", range(3))
async def test_elections_are_not_needed(rig: Rig, version: int) -> None:
    await rig.topic("t")
    asked = ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0, 1])

    some = await rig.ask("elect_leaders", version, topic_partitions=[asked])
    everything = await rig.ask("elect_leaders", version, topic_partitions=None)

    codes = [p.error_code.value for p in some.replica_election_results[0].partition_result]
    assert codes == [ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert everything.replica_election_results == ()


async def test_there_are_no_reassignments(rig: Rig) -> None:
    await rig.allow("ada", Operation.READ, "topic", "")

    answer = await rig.ask("list_partition_reassignments", 0, topics=None)
    refused = await rig.ask(
        "list_partition_reassignments", 0, session=rig.login("ada"), topics=None
    )

    assert (answer.error_code.value, answer.topics) == (ErrorCode.NONE, ())
    assert refused.error_code.value == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("version", range(3))
async def test_this_node_is_the_only_voter(rig: Rig, version: int) -> None:
    topic = DescribeQuorumRequest.TopicData
    answer = await rig.ask(
        "describe_quorum",
        version,
        topics=[
            topic(
                topic_name=name,
                partitions=[topic.PartitionData(partition_index=n) for n in (0, 1)],
            )
            for name in ("__cluster_metadata", "orders")
        ],
    )

    (quorum, missing), (other, _) = (one.partitions for one in answer.topics)
    assert answer.error_code.value == ErrorCode.NONE
    assert [voter.replica_id for voter in quorum.current_voters] == [NODE_ID]
    assert quorum.leader_id == NODE_ID
    assert {int(p.error_code) for p in (missing, other)} == {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }


@pytest.mark.parametrize("module", ["describe_client_quotas", "describe_quorum"])
async def test_quotas_and_quorum_need_a_right(rig: Rig, module: str) -> None:
    await rig.allow("ada", Operation.CREATE, "cluster", "")
    fields: dict[str, list[object]] = (
        {"topics": []} if module == "describe_quorum" else {"components": []}
    )
    answer = await rig.ask(module, 1, session=rig.login("ada"), **fields)
    assert int(answer.error_code) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
