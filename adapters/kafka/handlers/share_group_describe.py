"""ShareGroupDescribe: API key 77, version 1 (KIP-932).

A group that is asked for twice is described once. Groups with much to say are described one by
one, and the response is encoded in a thread.
"""

from collections.abc import Awaitable
from typing import Final
from uuid import UUID

from adapters.kafka.access.authorization import authorized_operations, to_bits
from adapters.kafka.codecs.share_group_codec import (
    DescribedShareGroup,
    DescribedShareMember,
    ShareGroupDescribeRequest,
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

API_KEY: Final = 77
VERSIONS: Final = range(1, 2)

_HIDDEN: Final = (
    "The group has described topic(s) that the client is not authorized to describe."
)

decode = decode_describe


def handle(
    request: ShareGroupDescribeRequest,
    session: Session,
    version: int,  # noqa: ARG001 - there is one
) -> bytes | Awaitable[bytes]:
    """Return the state and the members of share groups."""
    request = request._replace(group_ids=list(dict.fromkeys(request.group_ids)))
    slice_counter = SliceCounter()
    for group_id in request.group_ids:
        if slice_counter.is_over(_size(session, group_id)):
            return _answer_large(request, session)
    return encode_describe_response(
        [_describe(session, request, group_id) for group_id in request.group_ids]
    )


async def _answer_large(request: ShareGroupDescribeRequest, session: Session) -> bytes:
    slice_counter = SliceCounter()
    groups = []
    for group_id in request.group_ids:
        groups.append(_describe(session, request, group_id))
        if slice_counter.is_over(_size(session, group_id)):
            await yield_to_loop()
    return await session.node.large_request_thread.run(encode_describe_response, groups)


def _size(session: Session, group_id: str) -> int:
    """Return about how many elements the description of a group has."""
    share_groups = session.node.groups.share_groups
    group = share_groups.by_name.get(group_name(session, group_id))
    if group is None:
        return 1
    return 1 + sum([1 + len(one.names) + len(one.assigned) for one in group.members])


def _describe(
    session: Session, request: ShareGroupDescribeRequest, group_id: str
) -> DescribedShareGroup:
    try:
        check_group(session, Operation.DESCRIBE, group_id)
        group = session.node.shares.find(group_name(session, group_id))
    except GatewayError as error:
        return DescribedShareGroup(group_code_of(error), public_text(error), group_id)
    if group is None:
        message = f"Group {group_id} not found."
        return DescribedShareGroup(ErrorCode.GROUP_ID_NOT_FOUND, message, group_id)
    topic_names = _topic_names(session, group)
    named = {*topic_names.values(), *(name for one in group.members for name in one.names)}
    if not all(session.allows(Operation.DESCRIBE, ResourceType.TOPIC, one) for one in named):
        return DescribedShareGroup(ErrorCode.TOPIC_AUTHORIZATION_FAILED, _HIDDEN, group_id)
    described = DescribedShareGroup(
        ErrorCode.NONE,
        None,
        group_id,
        group.state.value,
        group.epoch,
        group.assignment_epoch,
        group.protocol_name,
        [
            DescribedShareMember(
                member.member_id,
                member.rack_id,
                member.epoch,
                member.client_id,
                member.client_host,
                member.names,
                member.assigned,
            )
            for member in group.members
        ],
        topic_names,
    )
    if request.includes_operations:
        operations = authorized_operations(session, ResourceType.GROUP, group_id)
        return described._replace(authorized_operations=to_bits(operations))
    return described


def _topic_names(session: Session, group: ConsumerGroup) -> dict[UUID, str]:
    """Return the names of the topics of all assignments, as far as they exist."""
    uuids = {topic for member in group.members for topic, _ in member.assigned}
    topics = filter(None, map(session.node.topics.by_uuid, uuids))
    return {topic.uuid: topic.name.name for topic in topics}
