"""Answers to requests about partitions and groups of another node, in every protocol.

A whole node gives half of its shards away. Clients ask it over real sockets about a partition and
a group that it kept, and about some that it gave away.
"""

import socket
import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from uuid import UUID

import pytest
from kafka.protocol.admin import (
    DeleteRecordsRequest,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
)
from kafka.protocol.consumer import (
    FetchRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
)
from kafka.protocol.producer import ProduceRequest

from gateway.model import TopicName
from gateway.placement import shard_of
from gateway.slots import shard_of_group
from tests.adapters.kafka.codecs import kio_codec
from tests.adapters.kafka.handlers.handler_fixture import request_class_of
from tests.support.kafka_wire import batch
from tests.support.placed_node import SHARDS, PlacedNode

PARTITIONS: Final = 16
NONE: Final = 0
NOT_LEADER: Final = 6
NOT_COORDINATOR: Final = 16
SELF: Final = 1
OTHER: Final = 2
NOBODY: Final = -1


class Half(NamedTuple):
    """A node that has given half of its shards away."""

    node: PlacedNode
    topic_id: UUID
    kept: int
    """A partition of its topic ``t`` that the node owns; ``given``: that the other one owns."""
    given: int
    kept_group: str
    given_group: str


pytestmark = pytest.mark.xdist_group("other-owners")  # rows use what those before them made


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Half]:
    folder = tmp_path_factory.mktemp("half") / "data"
    with PlacedNode(folder, ["kafka"]) as node:
        ask(node, 19, 5, topics=[new_topic("t", PARTITIONS)], timeout_ms=1000)
        topic = node.kernel.topics.get(TopicName("default", "t"))
        node.give_half()
        away = [shard_of(topic, n, node.placement) >= SHARDS // 2 for n in range(PARTITIONS)]
        groups = {
            shard_of_group("default", name, SHARDS) >= SHARDS // 2: name
            for name in map("group-{}".format, range(64))
        }
        yield Half(
            node, topic.uuid, away.index(False), away.index(True), groups[False], groups[True]
        )


# --- Kafka

_OWN_CODECS: Final[dict[int, Any]] = {
    0: ProduceRequest,
    1: FetchRequest,
    8: OffsetCommitRequest,
    12: HeartbeatRequest,
}


def new_topic(name: str, partitions: int) -> Any:
    kind = request_class_of(19).CreatableTopic
    return kind(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )


def ask(node: PlacedNode, api_key: int, version: int, **fields: Any) -> Any:
    """Send a request encoded by kafka-python; return the response decoded by kio."""
    kind = _OWN_CODECS.get(api_key) or request_class_of(api_key)
    body = bytes(kind(version=version, **fields).encode())
    return _exchange(node, api_key, version, body)


def _exchange(node: PlacedNode, api_key: int, version: int, body: bytes) -> Any:
    kind = kio_codec.request_class(api_key, version)
    is_flexible = kind.__flexible__
    header = struct.pack(">hhi", api_key, version, 7) + struct.pack(">h", -1)
    frame = header + (b"\0" if is_flexible else b"") + body
    address = ("127.0.0.1", node.ports["kafka"])
    with socket.create_connection(address, timeout=60) as client, client.makefile("rb") as read:
        client.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", read.read(4))
        answer = read.read(size)
    return kio_codec.decode(
        kio_codec.response_class(api_key, version), answer[5 if is_flexible else 4 :]
    )


class Row(NamedTuple):
    """A request about one partition or group, and where its answer has the code."""

    name: str
    api_key: int
    version: int
    fields: Any
    """Callable that returns the fields of the request for a ``Half`` and the partition or group."""
    code: Any
    """Callable that returns the code of the response."""


def one(value: Any, *path: str) -> Any:
    """Return the attribute at the end of a path through lists of one element."""
    for name in path:
        value = getattr(value, name)
        if isinstance(value, tuple):
            [value] = value
    return value


_LIST: Final = ListOffsetsRequest.ListOffsetsTopic
_EPOCH: Final = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
_DELETE: Final = DeleteRecordsRequest.DeleteRecordsTopic
_PRODUCERS: Final = DescribeProducersRequest.TopicRequest

PARTITION_ROWS: Final = [
    Row(
        "ListOffsets",
        2,
        7,
        lambda _half, n: {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [
                _LIST(
                    name="t",
                    partitions=[
                        _LIST.ListOffsetsPartition(
                            partition_index=n, current_leader_epoch=-1, timestamp=-1
                        )
                    ],
                )
            ],
        },
        lambda found: one(found, "topics", "partitions", "error_code"),
    ),
    Row(
        "OffsetForLeaderEpoch",
        23,
        4,
        lambda _half, n: {
            "replica_id": -1,
            "topics": [
                _EPOCH(
                    topic="t",
                    partitions=[
                        _EPOCH.OffsetForLeaderPartition(
                            partition=n, current_leader_epoch=-1, leader_epoch=5
                        )
                    ],
                )
            ],
        },
        lambda found: one(found, "topics", "partitions", "error_code"),
    ),
    Row(
        "DeleteRecords",
        21,
        2,
        lambda _half, n: {
            "timeout_ms": 1000,
            "topics": [
                _DELETE(
                    name="t",
                    partitions=[_DELETE.DeleteRecordsPartition(partition_index=n, offset=0)],
                )
            ],
        },
        lambda found: one(found, "topics", "partitions", "error_code"),
    ),
    Row(
        "DescribeProducers",
        61,
        0,
        lambda _half, n: {"topics": [_PRODUCERS(name="t", partition_indexes=[n])]},
        lambda found: one(found, "topics", "partitions", "error_code"),
    ),
    *(
        Row(
            f"Produce v{version}",
            0,
            version,
            lambda half, n, version=version: produce_fields(half, n, version),
            lambda found: one(found, "responses", "partition_responses", "error_code"),
        )
        for version in range(3, 14)
    ),
    *(
        Row(
            f"Fetch v{version}",
            1,
            version,
            lambda half, n, version=version: fetch_fields(half, n, version),
            lambda found: one(found, "responses", "partitions", "error_code"),
        )
        for version in range(4, 19)
    ),
]


def produce_fields(half: Half, number: int, version: int) -> dict[str, Any]:
    kind = ProduceRequest.TopicProduceData
    ref = {"topic_id": half.topic_id} if version >= 13 else {"name": "t"}
    part = kind.PartitionProduceData(index=number, records=batch([b"v"]))
    return {
        "transactional_id": None,
        "acks": -1,
        "timeout_ms": 1000,
        "topic_data": [kind(**ref, partition_data=[part])],
    }


def fetch_fields(half: Half, number: int, version: int, *, wait_ms: int = 0) -> dict[str, Any]:
    kind = FetchRequest.FetchTopic
    ref = {"topic_id": half.topic_id} if version >= 13 else {"topic": "t"}
    part = kind.FetchPartition(
        partition=number,
        current_leader_epoch=-1,
        fetch_offset=0,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=1 << 20,
    )
    return {
        "replica_id": -1,
        "max_wait_ms": wait_ms,
        "min_bytes": 1 if wait_ms else 0,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [kind(**ref, partitions=[part])],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


@pytest.mark.parametrize("row", PARTITION_ROWS, ids=lambda row: row.name)
def test_kafka_answers_not_leader_for_a_partition_of_another_node(half: Half, row: Row) -> None:
    for number, code in ((half.kept, NONE), (half.given, NOT_LEADER)):
        found = ask(half.node, row.api_key, row.version, **row.fields(half, number))
        assert row.code(found).value == code, (row.name, number)


_MEMBER: Final = {"member_id": "m", "group_instance_id": None}
_PROTOCOL: Final = JoinGroupRequest.JoinGroupRequestProtocol
_COMMIT: Final = OffsetCommitRequest.OffsetCommitRequestTopic
_OFFSETS: Final = OffsetFetchRequest.OffsetFetchRequestGroup
_GONE: Final = OffsetDeleteRequest.OffsetDeleteRequestTopic


def join_fields(_half: Half, group: str) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        **_MEMBER,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [_PROTOCOL(name="range", metadata=b"")],
        "reason": None,
    }


GROUP_ROWS: Final = [
    (
        Row(
            "JoinGroup",
            11,
            9,
            join_fields,
            lambda found: found.error_code,
        ),
        79,  # MEMBER_ID_REQUIRED
    ),
    (
        Row(
            "SyncGroup",
            14,
            5,
            lambda _half, group: {
                "group_id": group,
                "generation_id": 1,
                **_MEMBER,
                "protocol_type": None,
                "protocol_name": None,
                "assignments": [],
            },
            lambda found: found.error_code,
        ),
        25,  # UNKNOWN_MEMBER_ID
    ),
    (
        Row(
            "Heartbeat",
            12,
            4,
            lambda _half, group: {"group_id": group, "generation_id": 1, **_MEMBER},
            lambda found: found.error_code,
        ),
        25,
    ),
    (
        Row(
            "LeaveGroup",
            13,
            5,
            lambda _half, group: {
                "group_id": group,
                "members": [LeaveGroupRequest.MemberIdentity(**_MEMBER, reason=None)],
            },
            lambda found: (
                found.error_code
                if found.error_code.value
                else one(found, "members", "error_code")
            ),
        ),
        25,
    ),
    (
        Row(
            "OffsetCommit",
            8,
            9,
            lambda half, group: {
                "group_id": group,
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "group_instance_id": None,
                "topics": [
                    _COMMIT(
                        name="t",
                        partitions=[
                            _COMMIT.OffsetCommitRequestPartition(
                                partition_index=half.given,
                                committed_offset=1,
                                committed_leader_epoch=-1,
                                committed_metadata="",
                            )
                        ],
                    )
                ],
            },
            lambda found: one(found, "topics", "partitions", "error_code"),
        ),
        NONE,
    ),
    (
        Row(
            "OffsetFetch",
            9,
            8,
            lambda _half, group: {
                "groups": [_OFFSETS(group_id=group, topics=None)],
                "require_stable": False,
            },
            lambda found: one(found, "groups", "error_code"),
        ),
        NONE,
    ),
    (
        Row(
            "DescribeGroups",
            15,
            5,
            lambda _half, group: {"groups": [group], "include_authorized_operations": False},
            lambda found: one(found, "groups", "error_code"),
        ),
        NONE,
    ),
    (
        Row(
            "OffsetDelete",
            47,
            0,
            lambda half, group: {
                "group_id": group,
                "topics": [
                    _GONE(
                        name="t",
                        partitions=[
                            _GONE.OffsetDeleteRequestPartition(partition_index=half.kept)
                        ],
                    )
                ],
            },
            lambda found: found.error_code,
        ),
        NONE,
    ),
    (
        Row(
            "DeleteGroups",
            42,
            2,
            lambda _half, group: {"groups_names": [group]},
            lambda found: one(found, "results", "error_code"),
        ),
        NONE,
    ),
]


@pytest.mark.parametrize(("row", "own"), GROUP_ROWS, ids=lambda row: getattr(row, "name", ""))
def test_kafka_answers_not_coordinator_for_a_group_of_another_node(
    half: Half, row: Row, own: int
) -> None:
    """Rows in order: the group has an offset from OffsetCommit until DeleteGroups."""
    for group, code in ((half.kept_group, own), (half.given_group, NOT_COORDINATOR)):
        found = ask(half.node, row.api_key, row.version, **row.fields(half, group))
        assert row.code(found).value == code, (row.name, group)


@pytest.mark.parametrize("version", range(14))
def test_metadata_names_each_partitions_owner_and_epoch(half: Half, version: int) -> None:
    kind = request_class_of(3)
    ref = {"topic_id": half.topic_id} if version >= 12 else {"topic_id": None}
    topic = kind.MetadataRequestTopic(name="t", **(ref if version >= 10 else {}))
    found = ask(half.node, 3, version, topics=[topic], allow_auto_topic_creation=False)
    _check_leaders(half, one(found, "topics").partitions)
    assert sorted(broker.node_id for broker in found.brokers) == [SELF, OTHER]


def _check_leaders(half: Half, partitions: Any) -> None:
    owners, topic = half.node.placement, half.node.kernel.topics.by_uuid(half.topic_id)
    assert topic is not None
    assert len(partitions) == PARTITIONS
    for partition in partitions:
        shard = shard_of(topic, partition.partition_index, owners)
        owner = owners.owner(shard)
        assert owner is not None
        assert partition.leader_id == owner.node_id
        assert partition.replica_nodes == partition.isr_nodes == (owner.node_id,)
        assert getattr(partition, "leader_epoch", owners.epoch(shard)) == owners.epoch(shard)


def test_describe_topic_partitions_names_each_partitions_owner(half: Half) -> None:
    kind = request_class_of(75)
    found = ask(
        half.node,
        75,
        0,
        topics=[kind.TopicRequest(name="t")],
        response_partition_limit=2000,
        cursor=None,
    )
    _check_leaders(half, one(found, "topics").partitions)


@pytest.mark.parametrize("version", [3, 4])
def test_find_coordinator_names_the_groups_owner(half: Half, version: int) -> None:
    for group, owner in ((half.kept_group, SELF), (half.given_group, OTHER)):
        keys = {"coordinator_keys": [group]} if version >= 4 else {"key": group}
        found = ask(half.node, 10, version, key_type=0, **keys)
        found = one(found, "coordinators") if version >= 4 else found
        assert (found.error_code.value, found.node_id) == (NONE, owner)
        assert found.port == half.node.ports["kafka"]


def test_lists_have_only_what_the_node_owns(half: Half) -> None:
    for row, _ in GROUP_ROWS:
        if row.name == "OffsetCommit":
            for group in (half.kept_group, half.given_group):
                ask(half.node, row.api_key, row.version, **row.fields(half, group))
    found = ask(half.node, 16, 4, states_filter=[])
    assert [group.group_id for group in found.groups] == [half.kept_group]

    kind = DescribeLogDirsRequest.DescribableLogDirTopic
    numbers = [half.kept, half.given]
    found = ask(half.node, 35, 4, topics=[kind(topic="t", partitions=numbers)])
    assert one(found, "results", "topics", "partitions", "partition_index") == half.kept


def test_describe_cluster_has_both_nodes(half: Half) -> None:
    found = ask(half.node, 60, 0, include_cluster_authorized_operations=False)
    assert {broker.broker_id: broker.host for broker in found.brokers} == {
        SELF: "127.0.0.1",
        OTHER: "127.0.0.2",
    }


def test_configs_of_the_other_broker_are_refused(half: Half) -> None:
    kind = request_class_of(32).DescribeConfigsResource
    resource = kind(resource_type=4, resource_name=str(OTHER), configuration_keys=None)
    found = ask(
        half.node,
        32,
        4,
        resources=[resource],
        include_synonyms=False,
        include_documentation=False,
    )
    assert one(found, "results", "error_code").value == 42  # INVALID_REQUEST
