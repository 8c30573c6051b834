"""CreateTopics, DeleteTopics, CreatePartitions: results and error codes."""

import uuid
from typing import Any, TypeAlias

import pytest
from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)

from adapters.kafka.errors import ErrorCode
from gateway.auth.ports import Operation
from gateway.model import TopicName
from tests.adapters.kafka.handlers.handler_fixture import NODE_ID, Rig

Topic: TypeAlias = CreateTopicsRequest.CreatableTopic
Assignment: TypeAlias = CreateTopicsRequest.CreatableTopic.CreatableReplicaAssignment
Config: TypeAlias = CreateTopicsRequest.CreatableTopic.CreatableTopicConfig
State: TypeAlias = DeleteTopicsRequest.DeleteTopicState
More: TypeAlias = CreatePartitionsRequest.CreatePartitionsTopic
MoreAssignment: TypeAlias = (
    CreatePartitionsRequest.CreatePartitionsTopic.CreatePartitionsAssignment
)


def new(name: str = "fresh", **fields: Any) -> Topic:
    defaults = {
        "num_partitions": 2,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }
    return Topic(name=name, **(defaults | fields))


async def create(rig: Rig, *topics: Topic, version: int = 7, **fields: Any) -> Any:
    answer = await rig.ask("create_topics", version, topics=list(topics), **fields)
    return answer.topics


@pytest.mark.parametrize("version", range(2, 8))
async def test_topics_are_created(rig: Rig, version: int) -> None:
    configs = [Config(name="retention.ms", value="1234")]

    [result] = await create(rig, new(num_partitions=5, configs=configs), version=version)

    topic = rig.topics.get(TopicName("default", "fresh"))
    assert result.error_code.value == ErrorCode.NONE
    assert result.error_message is None
    assert (len(topic.partition_ids), topic.settings.retention_ms) == (5, 1234)
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (5, 1)
        shown = {config.name: config for config in result.configs}
        assert (shown["retention.ms"].value, shown["retention.ms"].config_source) == ("1234", 1)
        assert shown["cleanup.policy"].config_source == 5
    if version >= 7:
        assert result.topic_id == topic.uuid


async def test_minus_one_is_the_default(rig: Rig) -> None:
    [result] = await create(rig, new(num_partitions=-1, replication_factor=-1))

    assert (result.error_code.value, result.num_partitions) == (ErrorCode.NONE, 1)


async def test_validate_only_creates_nothing(rig: Rig) -> None:
    [result] = await create(rig, new(), validate_only=True)

    assert (result.error_code.value, result.num_partitions) == (ErrorCode.NONE, 2)
    assert rig.topics.topics() == []


async def test_a_manual_assignment_gives_the_count(rig: Rig) -> None:
    assignments = [Assignment(partition_index=n, broker_ids=[NODE_ID]) for n in (1, 0, 2)]

    [result] = await create(
        rig, new(num_partitions=-1, replication_factor=-1, assignments=assignments)
    )

    assert result.num_partitions == 3


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"name": "a/b"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": ""}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "there"}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ({"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"num_partitions": -2}, ErrorCode.INVALID_PARTITIONS),
        ({"num_partitions": 2**31 - 1}, ErrorCode.INVALID_PARTITIONS),
        ({"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": 2}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"configs": [Config(name="retention.mz", value="1")]}, ErrorCode.INVALID_CONFIG),
        ({"configs": [Config(name="retention.ms", value="x")]}, ErrorCode.INVALID_CONFIG),
        ({"configs": [Config(name="retention.ms", value=None)]}, ErrorCode.INVALID_CONFIG),
    ],
)
async def test_what_cannot_be_made_gets_kafkas_code(
    rig: Rig, fields: dict[str, Any], code: ErrorCode
) -> None:
    await rig.topic("there")

    [result] = await create(rig, new(**fields))

    assert result.error_code.value == code
    assert result.error_message
    assert len(rig.topics.topics()) == 1


@pytest.mark.parametrize(
    ("fields", "numbers", "brokers", "code"),
    [
        ({"num_partitions": 1}, [0], [NODE_ID], ErrorCode.INVALID_REQUEST),
        ({"replication_factor": 1}, [0], [NODE_ID], ErrorCode.INVALID_REQUEST),
        ({}, [0, 2], [NODE_ID], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({}, [0, 0], [NODE_ID], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({}, [0], [NODE_ID + 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({}, [0], [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
async def test_a_wrong_assignment_gets_kafkas_code(
    rig: Rig, fields: dict[str, int], numbers: list[int], brokers: list[int], code: ErrorCode
) -> None:
    wanted: dict[str, Any] = {"num_partitions": -1, "replication_factor": -1} | fields
    assignments = [Assignment(partition_index=n, broker_ids=brokers) for n in numbers]

    [result] = await create(rig, new(**wanted, assignments=assignments))

    assert result.error_code.value == code


async def test_a_name_given_twice_is_refused_once(rig: Rig) -> None:
    results = await create(rig, new("twice"), new("twice"), new("once"))

    assert {(result.name, result.error_code.value) for result in results} == {
        ("twice", ErrorCode.INVALID_REQUEST),
        ("once", ErrorCode.NONE),
    }
    assert len(results) == 2


async def test_creating_needs_a_right_to_the_name_or_the_cluster(rig: Rig) -> None:
    await rig.allow("ada", Operation.CREATE, "topic", "ada-")

    results = (
        await rig.ask(
            "create_topics",
            7,
            session=rig.login("ada"),
            topics=[new("ada-1"), new("other")],
        )
    ).topics

    by_name = {result.name: result for result in results}
    assert by_name["ada-1"].error_code.value == ErrorCode.NONE
    assert by_name["other"].error_code.value == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    # Creating is no right to see configs.
    assert by_name["ada-1"].topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert by_name["ada-1"].num_partitions == -1


@pytest.mark.parametrize("version", range(1, 7))
async def test_topics_are_deleted_by_name(rig: Rig, version: int) -> None:
    topic = await rig.topic("gone")
    asked = (
        {"topics": [State(name="gone", topic_id=None), State(name="never", topic_id=None)]}
        if version == 6
        else {"topic_names": ["gone", "never"]}
    )

    results = (await rig.ask("delete_topics", version, **asked)).responses

    assert [(result.name, result.error_code.value) for result in results] == [
        ("gone", ErrorCode.NONE),
        ("never", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert rig.topics.topics() == []
    if version == 6:
        assert results[0].topic_id == topic.uuid


async def test_topics_are_deleted_by_id(rig: Rig) -> None:
    topic = await rig.topic("gone")
    unknown = uuid.UUID(int=4711)
    asked = [State(name=None, topic_id=topic.uuid), State(name=None, topic_id=unknown)]

    first, second = (await rig.ask("delete_topics", 6, topics=asked)).responses

    assert (first.name, first.error_code.value) == ("gone", ErrorCode.NONE)
    assert (second.topic_id, second.error_code.value) == (unknown, ErrorCode.UNKNOWN_TOPIC_ID)


@pytest.mark.parametrize("fields", [{"name": "a", "topic_id": uuid.UUID(int=1)}, {}])
async def test_a_topic_to_delete_has_a_name_or_an_id(rig: Rig, fields: dict[str, Any]) -> None:
    asked = [State(**({"name": None, "topic_id": None} | fields))]

    [result] = (await rig.ask("delete_topics", 6, topics=asked)).responses

    assert result.error_code.value == ErrorCode.INVALID_REQUEST


async def test_deleting_needs_the_right_and_hides_names_behind_ids(rig: Rig) -> None:
    topic = await rig.topic("theirs")
    await rig.allow("ada", Operation.DELETE, "topic", "mine")
    ada = rig.login("ada")

    by_name = await rig.ask("delete_topics", 5, session=ada, topic_names=["theirs", "nowhere"])
    by_id = await rig.ask(
        "delete_topics", 6, session=ada, topics=[State(name=None, topic_id=topic.uuid)]
    )

    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert {result.error_code.value for result in by_name.responses} == {refused}
    assert (by_id.responses[0].name, by_id.responses[0].error_code.value) == (None, refused)
    assert rig.topics.topics() == [topic]


async def test_internal_topics_are_left_alone(rig: Rig) -> None:
    await rig.topics.create(TopicName("default", "__compaction"), internal=True)

    deleted = await rig.ask("delete_topics", 5, topic_names=["__compaction"])
    grown = await rig.ask(
        "create_partitions", 3, topics=[More(name="__compaction", count=9, assignments=None)]
    )

    assert deleted.responses[0].error_code.value == ErrorCode.POLICY_VIOLATION
    assert grown.results[0].error_code.value == ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize("version", range(4))
async def test_partitions_are_added(rig: Rig, version: int) -> None:
    topic = await rig.topic("grows", partitions=2)

    answer = await rig.ask(
        "create_partitions", version, topics=[More(name="grows", count=5, assignments=None)]
    )

    assert answer.results[0].error_code.value == ErrorCode.NONE
    assert len(topic.partition_ids) == 5


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code"),
    [
        ("grows", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("grows", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("grows", -1, None, ErrorCode.INVALID_PARTITIONS),
        ("never", 3, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("grows", 4, [[NODE_ID]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("grows", 3, [[NODE_ID + 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
async def test_what_is_no_increase_gets_kafkas_code(
    rig: Rig, name: str, count: int, assignments: list[list[int]] | None, code: ErrorCode
) -> None:
    topic = await rig.topic("grows", partitions=2)
    given = None if assignments is None else [MoreAssignment(broker_ids=i) for i in assignments]

    answer = await rig.ask(
        "create_partitions", 3, topics=[More(name=name, count=count, assignments=given)]
    )

    assert answer.results[0].error_code.value == code
    assert answer.results[0].error_message
    assert len(topic.partition_ids) == 2


async def test_partitions_are_only_validated(rig: Rig) -> None:
    topic = await rig.topic("grows", partitions=2)
    asked = [More(name="grows", count=3, assignments=[MoreAssignment(broker_ids=[NODE_ID])])]

    answer = await rig.ask("create_partitions", 1, topics=asked, validate_only=True)

    assert answer.results[0].error_code.value == ErrorCode.NONE
    assert len(topic.partition_ids) == 2
