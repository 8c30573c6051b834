"""OffsetForLeaderEpoch: API key 23, versions 2 to 4.

v2  the client's current leader epoch is checked (KIP-320)
v3  replica_id; every client is treated as a consumer
v4  flexible encoding (KIP-482)
"""

from typing import Final, TypeAlias

from kafka.protocol.consumer import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

from adapters.kafka.access.authorization import topic_for
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.metadata.leader_epochs import NO_EPOCH, NO_OFFSET, check_current, end_offset
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.errors import GatewayError

API_KEY: Final = 23
VERSIONS: Final = range(2, 5)

_Topic: TypeAlias = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
_EndOffset: TypeAlias = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult.EpochEndOffset


def handle(
    request: OffsetForLeaderEpochRequest, session: Session, version: int
) -> OffsetForLeaderEpochResponse:
    """Return the end offset of each leader epoch, by which consumers detect log truncation."""
    topics = [
        _Topic(
            topic=topic.topic,
            partitions=[_answer(session, topic.topic, asked) for asked in topic.partitions],
        )
        for topic in request.topics
    ]
    return OffsetForLeaderEpochResponse(version=version, topics=topics)


def _answer(
    session: Session,
    topic_name: str,
    asked: OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition,
) -> _EndOffset:
    code, epoch, offset = ErrorCode.NONE, NO_EPOCH, NO_OFFSET
    try:
        topic = topic_for(session, topic_name, Operation.DESCRIBE)
        partition = session.node.broker.partition(topic, asked.partition)
        check_current(partition, asked.current_leader_epoch)
        epoch, offset = end_offset(session.node.broker, partition, asked.leader_epoch)
    except GatewayError as error:
        code = code_of(error)
    return _EndOffset(
        error_code=code, partition=asked.partition, leader_epoch=epoch, end_offset=offset
    )
