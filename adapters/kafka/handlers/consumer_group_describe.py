"""ConsumerGroupDescribe: API key 69, versions 0 to 1 (KIP-848).

v1  the type of each member; classic members of such a group are none

A group that is asked for twice is described once. Groups with much to say are described one by
one, and the response is encoded in a thread.
"""

from collections.abc import Awaitable
from typing import Final
from uuid import UUID

from adapters.kafka.access.authorization import authorized_operations, to_bits
from adapters.kafka.codecs.consumer_group_codec import (
    DescribedGroup,
    DescribedMember,
    DescribeRequest,
    decode_describe,
    encode_describe_response,
)
from adapters.kafka.errors import ErrorCode
from adapters.kafka.groups.coordinator import check_group, group_code_of, group_name
from adapters.kafka.node.large_requests import SliceCounter, yield_to_loop
from adapters.kafka.session import Session
from gateway.auth.ports import Operation, ResourceType
from gateway.errors import GatewayError, public_text
from gateway.groups.consumer.group import ConsumerGroup
from gateway.groups.consumer.model import ConsumerMember

API_KEY: Final = 69
VERSIONS: Final = range(2)

decode = decode_describe


def handle(
    request: DescribeRequest, session: Session, version: int
) -> bytes | Awaitable[bytes]:
    """Return the state and the members of groups of the new protocol."""
    request = request._replace(group_ids=list(dict.fromkeys(request.group_ids)))
    slice_counter = SliceCounter()
    for group_id in request.group_ids:
        if slice_counter.is_over(_size(session, group_id)):
            return _answer_large(request, session, version)
    groups = [_describe(session, request, group_id) for group_id in request.group_ids]
    return encode_describe_response(version, groups)


async def _answer_large(request: DescribeRequest, session: Session, version: int) -> bytes:
    slice_counter = SliceCounter()
    groups = []
    for group_id in request.group_ids:
        groups.append(_describe(session, request, group_id))
        if slice_counter.is_over(_size(session, group_id)):
            await yield_to_loop()
    thread = session.node.large_request_thread
    return await thread.run(encode_describe_response, version, groups)


def _size(session: Session, group_id: str) -> int:
    """Return about how many elements the description of a group has."""
    group = session.node.groups.find(group_name(session, group_id))
    if not isinstance(group, ConsumerGroup):
        return 1
    members = group.members
    return 1 + sum(
        [1 + len(one.names) + len(one.assigned) + len(one.target) for one in members]
    )


def _describe(session: Session, request: DescribeRequest, group_id: str) -> DescribedGroup:
    name = group_name(session, group_id)
    try:
        check_group(session, Operation.DESCRIBE, group_id)
        is_there = session.node.groups.has(name)
    except GatewayError as error:
        return DescribedGroup(group_code_of(error), public_text(error), group_id)
    group = session.node.groups.find(name)
    if not isinstance(group, ConsumerGroup) or not group.protocol.is_exclusive:
        reason = "is not a consumer group" if is_there else "not found"
        message = f"Group {group_id} {reason}."
        return DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, message, group_id)
    described = DescribedGroup(
        ErrorCode.NONE,
        None,
        group_id,
        group.state.value,
        group.epoch,
        group.assignment_epoch,
        group.protocol_name,
        [_member(member) for member in group.members],
        _topic_names(session, group),
    )
    if request.includes_operations:
        operations = authorized_operations(session, ResourceType.GROUP, group_id)
        return described._replace(authorized_operations=to_bits(operations))
    return described


def _topic_names(session: Session, group: ConsumerGroup) -> dict[UUID, str]:
    """Return the names of the topics of all assignments, as far as they exist."""
    uuids = {topic for member in group.members for topic, _ in member.assigned | member.target}
    topics = filter(None, map(session.node.topics.by_uuid, uuids))
    return {topic.uuid: topic.name.name for topic in topics}


def _member(member: ConsumerMember) -> DescribedMember:
    return DescribedMember(
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.client_host,
        member.names,
        member.regex,
        member.assigned,
        member.target,
    )
