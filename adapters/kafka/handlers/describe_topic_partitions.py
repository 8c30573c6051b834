"""DescribeTopicPartitions: API key 75, version 0 (KIP-966).

Topics are sorted by name. A response has a bounded number of partitions, and a cursor for the
next request.
"""

from collections.abc import Iterator
from typing import Final, TypeAlias

from kafka.protocol.admin import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)

from adapters.kafka.access.authorization import (
    authorized_operations,
    is_visible,
    to_bits,
    topic_for,
)
from adapters.kafka.codecs.metadata_codec import NO_LEADER
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.node.metadata_cache import leaders_of
from adapters.kafka.session import Session
from gateway.auth.ports import Operation, ResourceType
from gateway.errors import GatewayError, as_value
from gateway.model import check_topic_name
from gateway.topics.manager import Topic

API_KEY: Final = 75
VERSIONS: Final = range(1)
PARTITIONS_MAX: Final = 2_000  # in one answer, as Kafka's max.request.partition.size.limit

_Topic: TypeAlias = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_Partition: TypeAlias = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic.DescribeTopicPartitionsResponsePartition  # noqa: E501
_Cursor: TypeAlias = DescribeTopicPartitionsResponse.Cursor


def handle(
    request: DescribeTopicPartitionsRequest, session: Session, version: int
) -> DescribeTopicPartitionsResponse:
    """Return topics from the cursor on, up to the limit of partitions."""
    left = min(max(request.response_partition_limit, 1), PARTITIONS_MAX)
    first_name = request.cursor.topic_name if request.cursor is not None else ""
    response = DescribeTopicPartitionsResponse(version=version, topics=[], next_cursor=None)
    for name, topic in _topics(request, session, first_name):
        if left == 0:
            response.next_cursor = _Cursor(topic_name=name, partition_index=0)
            break
        if isinstance(topic, GatewayError):
            response.topics.append(_failure(name, topic))
            continue
        start = request.cursor.partition_index if name == first_name and request.cursor else 0
        end = min(len(topic.partition_ids), max(start, 0) + left)
        response.topics.append(_describe(topic, session, range(max(start, 0), end)))
        left -= max(end - max(start, 0), 0)
        if end < len(topic.partition_ids):
            response.next_cursor = _Cursor(topic_name=name, partition_index=end)
            break
    return response


def _topics(
    request: DescribeTopicPartitionsRequest, session: Session, first_name: str
) -> Iterator[tuple[str, Topic | GatewayError]]:
    """Yield the requested topics, or all visible ones, by name; an error for a refused one."""
    if not request.topics:
        for topic in session.node.topics.topics(session.namespace):
            if topic.name.name >= first_name and is_visible(session, topic):
                yield topic.name.name, topic
        return
    for name in sorted({asked.name for asked in request.topics}):
        if name < first_name:
            continue
        try:
            yield name, topic_for(session, check_topic_name(name), Operation.DESCRIBE)
        except GatewayError as error:
            yield name, as_value(error)


def _failure(name: str, error: GatewayError) -> _Topic:
    return _Topic(error_code=code_of(error), name=name, topic_id=None, partitions=[])


def _describe(topic: Topic, session: Session, numbers: range) -> _Topic:
    leaders = leaders_of(topic, session.node.placement, numbers)
    operations = authorized_operations(session, ResourceType.TOPIC, topic.name.name)
    return _Topic(
        error_code=ErrorCode.NONE,
        name=topic.name.name,
        topic_id=topic.uuid,
        is_internal=topic.is_internal,
        partitions=[
            _partition(number, leader, epoch)
            for number, (leader, epoch) in zip(numbers, leaders, strict=True)
        ],
        topic_authorized_operations=to_bits(operations),
    )


def _partition(number: int, leader: int, epoch: int) -> _Partition:
    has_leader = leader != NO_LEADER
    replicas = [leader] if has_leader else []
    return _Partition(
        error_code=ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=number,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=replicas,
        isr_nodes=replicas,
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=[],
    )
