"""AlterPartitionReassignments: every partition has one replica, on this node."""

from typing import TypeAlias

import pytest
from kafka.protocol.admin import AlterPartitionReassignmentsRequest

from adapters.kafka.errors import ErrorCode
from gateway.auth.ports import Operation
from gateway.model import TopicName
from tests.adapters.kafka.handlers.handler_fixture import NODE_ID, Rig

Topic: TypeAlias = AlterPartitionReassignmentsRequest.ReassignableTopic


@pytest.mark.parametrize("version", range(2))
async def test_only_where_a_partition_is_can_it_go(rig: Rig, version: int) -> None:
    await rig.node.topics.create(TopicName("default", "orders"), partitions=2)
    partition = Topic.ReassignablePartition
    asked: dict[str, list[tuple[int, list[int] | None]]] = {
        "orders": [(0, [NODE_ID]), (1, [NODE_ID + 1]), (1, [NODE_ID, NODE_ID + 1]), (0, None)],
        "nosuch": [(0, [NODE_ID])],
    }
    answer = await rig.ask(
        "alter_partition_reassignments",
        version,
        timeout_ms=1000,
        topics=[
            Topic(
                name=name,
                partitions=[partition(partition_index=n, replicas=on) for n, on in parts],
            )
            for name, parts in asked.items()
        ],
    )

    orders, nosuch = answer.responses
    assert answer.error_code.value == ErrorCode.NONE
    assert [int(p.error_code) for p in orders.partitions] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    ]
    assert [int(p.error_code) for p in nosuch.partitions] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]


async def test_a_right_is_needed(rig: Rig) -> None:
    await rig.allow("ada", Operation.DESCRIBE, "cluster", "")
    answer = await rig.ask(
        "alter_partition_reassignments", 0, session=rig.login("ada"), topics=[]
    )
    assert answer.error_code.value == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
