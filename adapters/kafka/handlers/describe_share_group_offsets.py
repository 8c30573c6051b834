"""DescribeShareGroupOffsets: API key 90, versions 0 to 1 (KIP-932).

v1  lag (KIP-1226)
"""

from typing import Final

from adapters.kafka.access.authorization import topic_for
from adapters.kafka.codecs.share_offsets_codec import (
    NO_TOPIC_ID,
    DescribeOffsetsRequest,
    GroupOffsets,
    GroupOffsetsRequest,
    StartOffset,
    TopicOffsets,
    decode_describe,
    encode_describe_response,
)
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.groups.coordinator import check_group, group_code_of, group_name
from adapters.kafka.node.large_requests import SliceCounter, yield_to_loop
from adapters.kafka.session import Session
from gateway.auth.ports import Operation, ResourceType
from gateway.errors import GatewayError, GroupNotFound, TopicNotFound, public_text
from gateway.groups.model import GroupName
from gateway.topics.manager import Topic

API_KEY: Final = 90
VERSIONS: Final = range(2)

_NONE: Final = -1

decode = decode_describe


async def handle(request: DescribeOffsetsRequest, session: Session, version: int) -> bytes:
    """Return where share groups begin in partitions: their lowest offset that is not done."""
    slice_counter = SliceCounter()
    groups = []
    for asked in request.groups:
        group = _describe(session, asked)
        groups.append(group)
        size = 1 + sum([1 + len(topic.partitions) for topic in group.topics])
        if slice_counter.is_over(size):
            await yield_to_loop()
    return encode_describe_response(version, groups)


def _describe(session: Session, asked: GroupOffsetsRequest) -> GroupOffsets:
    name = group_name(session, asked.group_id)
    shares = session.node.shares
    try:
        check_group(session, Operation.DESCRIBE, asked.group_id)
        if shares.find(name) is None:
            msg = f"Group {asked.group_id[:80]} not found."
            raise GroupNotFound(msg)
    except GatewayError as error:
        return GroupOffsets(asked.group_id, [], group_code_of(error), public_text(error))
    topics = asked.topics
    if topics is None:
        topics = [
            (queue.name.name, [lane.number for lane in queue.lanes])
            for queue in shares.queues_of(name)
            if session.allows(Operation.DESCRIBE, ResourceType.TOPIC, queue.name.name)
        ]
    described = [_describe_topic(session, name, topic, numbers) for topic, numbers in topics]
    return GroupOffsets(asked.group_id, described)


def _describe_topic(
    session: Session, name: GroupName, topic_name: str, numbers: list[int]
) -> TopicOffsets:
    try:
        topic = topic_for(session, topic_name, Operation.DESCRIBE)
    except GatewayError as error:
        code, message = code_of(error), public_text(error)
        failed = [StartOffset(one, _NONE, _NONE, _NONE, code, message) for one in numbers]
        return TopicOffsets(topic_name, NO_TOPIC_ID, failed)
    offsets = [_describe_partition(session, name, topic, number) for number in numbers]
    return TopicOffsets(topic_name, topic.uuid, offsets)


def _describe_partition(
    session: Session, name: GroupName, topic: Topic, number: int
) -> StartOffset:
    node = session.node
    try:
        partition = node.broker.partition(topic, number)
        found = node.shares.partition(name, topic, number)
    except TopicNotFound as error:
        if number < len(topic.partition_ids):  # The group has no position there yet.
            return StartOffset(number, _NONE, _NONE, _NONE, ErrorCode.NONE)
        return StartOffset(number, _NONE, _NONE, _NONE, code_of(error), public_text(error))
    except GatewayError as error:
        return StartOffset(number, _NONE, _NONE, _NONE, code_of(error), public_text(error))
    return StartOffset(number, found.start_offset, partition.leader_epoch, found.lag)
