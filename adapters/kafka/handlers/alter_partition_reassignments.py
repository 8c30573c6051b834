"""AlterPartitionReassignments: API key 45, versions 0 to 1 (KIP-455).

v1  allow_replication_factor_change (KIP-860); always false here

Every partition has one replica, on its owner: a reassignment to the owner is complete at once,
and there is never one to cancel.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

from kafka.protocol.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)

from adapters.kafka.access.authorization import check_cluster
from adapters.kafka.errors import ErrorCode, Refused, code_of
from adapters.kafka.metadata.topic_lookup import resolve_topic
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.errors import GatewayError, TopicNotFound, Unauthorized, public_text
from gateway.placement import shard_of

API_KEY: Final = 45
VERSIONS: Final = range(2)

_Topic: TypeAlias = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
_Partition: TypeAlias = (
    AlterPartitionReassignmentsResponse.ReassignableTopicResponse.ReassignablePartitionResponse
)


def handle(
    request: AlterPartitionReassignmentsRequest, session: Session, version: int
) -> AlterPartitionReassignmentsResponse:
    """Accept assignments to the owners, and refuse all others."""
    answer = AlterPartitionReassignmentsResponse(
        version=version,
        allow_replication_factor_change=False,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=[],
    )
    try:
        check_cluster(session, Operation.ALTER)
    except Unauthorized as error:
        answer.error_code, answer.error_message = code_of(error), public_text(error)
        return answer
    answer.responses = [
        _Topic(
            name=topic.name,
            partitions=[
                _answer(session, topic.name, asked.partition_index, asked.replicas)
                for asked in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return answer


def _answer(
    session: Session, name: str, number: int, replicas: Sequence[int] | None
) -> _Partition:
    code, message = ErrorCode.NONE, None
    try:
        _check(session, name, number, replicas)
    except GatewayError as error:
        code, message = code_of(error), public_text(error)
    return _Partition(partition_index=number, error_code=code, error_message=message)


def _check(session: Session, name: str, number: int, replicas: Sequence[int] | None) -> None:
    topic = resolve_topic(session, name)
    if not 0 <= number < len(topic.partition_ids):
        msg = f"topic {name[:80]} has no partition {number}"
        raise TopicNotFound(msg)
    if replicas is None:
        msg = "no reassignment is in progress"
        raise Refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, msg)
    placement = session.node.placement
    owner = placement.owner(shard_of(topic, number, placement))
    if owner is None or list(replicas) != [owner.node_id]:
        where = "no node" if owner is None else f"node {owner.node_id}"
        msg = f"a partition has one replica, on {where}"
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, msg)
