"""DescribeQuorum: API key 55, versions 0 to 2 (KIP-595).

v1  the time of a replica's last fetch, and of its last catch-up (KIP-836)
v2  error messages, directory ids, the listeners of nodes (KIP-853)

Topics, users and rules are stored in SQL, not in a replicated log: this node is the only voter,
and the offsets are the revision of the topics.
"""

from typing import Any, Final, TypeAlias

from kafka.protocol.admin import DescribeQuorumRequest, DescribeQuorumResponse

from adapters.kafka.access.authorization import check_cluster
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.errors import Unauthorized, public_text

API_KEY: Final = 55
VERSIONS: Final = range(3)

CLUSTER_METADATA: Final = "__cluster_metadata"
LEADER_EPOCH: Final = 1
_NODES_FROM: Final = 2

_Topic: TypeAlias = DescribeQuorumResponse.TopicData
_Partition: TypeAlias = DescribeQuorumResponse.TopicData.PartitionData
_Node: TypeAlias = DescribeQuorumResponse.Node


def handle(
    request: DescribeQuorumRequest, session: Session, version: int
) -> DescribeQuorumResponse:
    """Return this node as leader and only voter of the cluster's metadata."""
    try:
        check_cluster(session, Operation.DESCRIBE)
    except Unauthorized as error:
        return DescribeQuorumResponse(
            version=version,
            error_code=code_of(error),
            error_message=public_text(error),
            topics=[],
            nodes=[],
        )
    topics = [
        _Topic(
            topic_name=topic.topic_name,
            partitions=[
                _answer(session, topic.topic_name, asked.partition_index)
                for asked in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return DescribeQuorumResponse(
        version=version,
        error_code=ErrorCode.NONE,
        error_message=None,
        topics=topics,
        nodes=[_node(session)] if version >= _NODES_FROM else [],
    )


def _answer(session: Session, name: str, number: int) -> _Partition:
    if (name, number) != (CLUSTER_METADATA, 0):
        return _Partition(
            partition_index=number,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=None,
            leader_id=-1,
            leader_epoch=-1,
            high_watermark=-1,
            current_voters=[],
            observers=[],
        )
    node = session.node
    return _Partition(
        partition_index=number,
        error_code=ErrorCode.NONE,
        error_message=None,
        leader_id=node.placement.node_id,
        leader_epoch=LEADER_EPOCH,
        high_watermark=node.topics.revision,
        current_voters=[_voter(session)],
        observers=[],
    )


def _voter(session: Session) -> Any:  # noqa: ANN401 - generated
    node = session.node
    now_unix_ms = node.clock.unix_ms()
    return _Partition.ReplicaState(
        replica_id=node.placement.node_id,
        replica_directory_id=None,
        log_end_offset=node.topics.revision,
        last_fetch_timestamp=now_unix_ms,
        last_caught_up_timestamp=now_unix_ms,
    )


def _node(session: Session) -> _Node:
    host, port = session.advertised
    return _Node(
        node_id=session.node.placement.node_id,
        listeners=[_Node.Listener(name="PLAINTEXT", host=host, port=port)],
    )
