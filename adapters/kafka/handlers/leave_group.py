"""LeaveGroup: API key 13, versions 0 to 5.

v1  throttle_time_ms
v3  several members at once, by id or by instance (KIP-345)
v4  flexible encoding (KIP-482)
v5  reason (KIP-800); ignored
"""

from typing import Final

from kafka.protocol.consumer import LeaveGroupRequest, LeaveGroupResponse

from adapters.kafka.errors import ErrorCode
from adapters.kafka.groups.coordinator import check_group, group_code_of, group_name
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.errors import GatewayError, UnknownMember, as_value

API_KEY: Final = 13
VERSIONS: Final = range(6)

MEMBERS_FROM: Final = 3


def handle(request: LeaveGroupRequest, session: Session, version: int) -> LeaveGroupResponse:
    """Remove members; the others rebalance at once instead of after a session timeout."""
    if version >= MEMBERS_FROM:
        members = [(item.member_id, item.group_instance_id) for item in request.members]
    else:
        members = [(request.member_id, None)]
    code = ErrorCode.NONE
    outcomes: list[GatewayError | None] = []
    try:
        check_group(session, Operation.READ, request.group_id)
        outcomes = session.node.groups.leave(group_name(session, request.group_id), members)
    except UnknownMember as error:  # There is no such group.
        outcomes = [as_value(error)] * len(members)
    except GatewayError as error:
        code = group_code_of(error)
    if version < MEMBERS_FROM and outcomes:
        code = group_code_of(outcomes[0])
    return LeaveGroupResponse(
        version=version,
        error_code=code,
        members=[
            LeaveGroupResponse.MemberResponse(
                member_id=member_id,
                group_instance_id=instance_id,
                error_code=group_code_of(outcome),
            )
            for (member_id, instance_id), outcome in zip(members, outcomes, strict=False)
        ],
    )
