"""DescribeGroups: API key 15, versions 0 to 6.

v1  throttle_time_ms
v3  authorized_operations (KIP-430)
v4  group_instance_id (KIP-345)
v5  flexible encoding (KIP-482)
v6  GROUP_ID_NOT_FOUND and a message, where older versions show a dead group (KIP-1043)

A group of the new protocol (KIP-848) is none here: admin clients ask ConsumerGroupDescribe first.
"""

from typing import Any, Final

from kafka.protocol.admin import DescribeGroupsRequest, DescribeGroupsResponse

from adapters.kafka.access.authorization import authorized_operations
from adapters.kafka.errors import ErrorCode
from adapters.kafka.groups.coordinator import check_group, group_code_of, group_name
from adapters.kafka.session import Session
from gateway.auth.ports import Operation, ResourceType
from gateway.errors import GatewayError
from gateway.groups.consumer.group import ConsumerGroup
from gateway.groups.group import Group
from gateway.groups.model import GroupState

API_KEY: Final = 15
VERSIONS: Final = range(7)

NOT_FOUND_FROM: Final = 6

_Described = DescribeGroupsResponse.DescribedGroup


def handle(
    request: DescribeGroupsRequest, session: Session, version: int
) -> DescribeGroupsResponse:
    """Return the state and the members of groups."""
    groups = []
    for group_id in request.groups:
        described = _describe(session, group_id, version)
        if request.include_authorized_operations and described.error_code == ErrorCode.NONE:
            described.authorized_operations = authorized_operations(
                session, ResourceType.GROUP, group_id
            )
        groups.append(described)
    return DescribeGroupsResponse(version=version, groups=groups)


def _describe(session: Session, group_id: str, version: int) -> Any:  # noqa: ANN401 - generated
    name = group_name(session, group_id)
    try:
        check_group(session, Operation.DESCRIBE, group_id)
        is_there = session.node.groups.has(name)
    except GatewayError as error:
        return _answer(group_id, group_code_of(error), state="")
    if not is_there and version >= NOT_FOUND_FROM:
        return _answer(
            group_id,
            ErrorCode.GROUP_ID_NOT_FOUND,
            state=GroupState.DEAD.value,
            error_message=f"Group {group_id} not found.",
        )
    if not is_there:
        return _answer(group_id, state=GroupState.DEAD.value)
    group = session.node.groups.find(name)
    if isinstance(group, ConsumerGroup):
        return _answer(
            group_id,
            ErrorCode.GROUP_ID_NOT_FOUND if version >= NOT_FOUND_FROM else ErrorCode.NONE,
            state=GroupState.DEAD.value,
            error_message=f"Group {group_id} is not a classic group.",
        )
    if group is None:  # It has committed offsets only.
        return _answer(group_id, state=GroupState.EMPTY.value)
    is_stable = group.state is GroupState.STABLE
    return _answer(
        group_id,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=_members(group, is_stable=is_stable),
    )


def _answer(
    group_id: str,
    code: ErrorCode = ErrorCode.NONE,
    *,
    state: str,
    **fields: Any,  # noqa: ANN401 - those of the schema
) -> Any:  # noqa: ANN401 - generated
    defaults: dict[str, Any] = {"protocol_type": "", "protocol_data": "", "members": []}
    return _Described(
        error_code=code, group_id=group_id, group_state=state, **(defaults | fields)
    )


def _members(group: Group, *, is_stable: bool) -> list[Any]:
    """Return the members; metadata and assignments only while the group is stable."""
    return [
        _Described.DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(group.protocol_name) if is_stable else b"",
            member_assignment=member.assignment if is_stable else b"",
        )
        for member in group.members
    ]
