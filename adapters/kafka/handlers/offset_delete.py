"""OffsetDelete: API key 47, version 0 (KIP-496).

Offsets can be deleted if no member subscribes to their topic. The subscriptions of groups that
are not consumer groups are unknown, so these must be empty.
"""

from typing import Any, Final
from uuid import UUID

from kafka.protocol.consumer import OffsetDeleteRequest, OffsetDeleteResponse

from adapters.kafka.access.authorization import topic_for
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.groups.coordinator import check_group, group_code_of, group_name
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.errors import GatewayError
from gateway.futures import await_done

API_KEY: Final = 47
VERSIONS: Final = range(1)

_Topic = OffsetDeleteResponse.OffsetDeleteResponseTopic


async def handle(
    request: OffsetDeleteRequest, session: Session, version: int
) -> OffsetDeleteResponse:
    """Delete committed offsets of a group; return when that is durable."""
    name = group_name(session, request.group_id)
    gone: list[tuple[UUID, int]] = []
    try:
        check_group(session, Operation.DELETE, request.group_id)
        session.node.groups.check_offsets_removable(name)
        topics = [_take(session, request.group_id, topic, gone) for topic in request.topics]
        if gone:
            await await_done(lambda on_done: session.node.cursors.delete(name, gone, on_done))
    except GatewayError as error:
        return OffsetDeleteResponse(version=version, error_code=group_code_of(error), topics=[])
    return OffsetDeleteResponse(version=version, error_code=ErrorCode.NONE, topics=topics)


def _take(session: Session, group_id: str, asked: Any, gone: list[tuple[UUID, int]]) -> Any:  # noqa: ANN401 - generated
    """Add the deletable offsets to ``gone``; return the result for one topic."""
    code = ErrorCode.NONE
    partition_count = 0
    try:
        topic = topic_for(session, asked.name, Operation.READ)
        partition_count = len(topic.partition_ids)
        if session.node.groups.is_subscribed(group_name(session, group_id), asked.name):
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    except GatewayError as error:
        code = code_of(error)
    results = []
    for partition in asked.partitions:
        index = partition.partition_index
        own = code
        if code is ErrorCode.NONE and not 0 <= index < partition_count:
            own = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif code is ErrorCode.NONE:
            gone.append((topic.uuid, index))
        results.append(
            _Topic.OffsetDeleteResponsePartition(partition_index=index, error_code=own)
        )
    return _Topic(name=asked.name, partitions=results)
