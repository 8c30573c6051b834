"""JoinGroup: API key 11, versions 0 to 9.

v1  rebalance_timeout_ms; before, the session timeout (KIP-62)
v2  throttle_time_ms
v4  MEMBER_ID_REQUIRED: members join in two steps (KIP-394)
v5  group_instance_id (KIP-345)
v6  flexible encoding (KIP-482)
v7  protocol_type in the response (KIP-559)
v8  reason (KIP-800); ignored
v9  skip_assignment (KIP-814)
"""

import asyncio
from functools import partial
from typing import Final

from kafka.protocol.consumer import JoinGroupRequest, JoinGroupResponse

from adapters.kafka.errors import ErrorCode
from adapters.kafka.groups.coordinator import check_group, group_code_of, group_name
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.errors import InconsistentProtocol, Unauthorized, as_value
from gateway.futures import set_result_if_pending
from gateway.groups.model import JoinRequest, JoinResult

API_KEY: Final = 11
VERSIONS: Final = range(10)

REBALANCE_TIMEOUT_FROM: Final = 1
KNOWN_MEMBER_ID_FROM: Final = 4
NULLABLE_PROTOCOL_FROM: Final = 7
SKIP_ASSIGNMENT_FROM: Final = 9

PROTOCOLS_MAX: Final = 1_000  # of a member; clients send two or three
_SPAN_MS_MAX: Final = 0x7FFF_FFFF


async def handle(
    request: JoinGroupRequest, session: Session, version: int
) -> JoinGroupResponse:
    """Join a group; return when all members have joined or the rebalance timeout is over."""
    try:
        check_group(session, Operation.READ, request.group_id)
    except Unauthorized as error:
        return _to_response(JoinResult(request.member_id, error=as_value(error)), version)
    if len(request.protocols) > PROTOCOLS_MAX:
        refusal = InconsistentProtocol(f"a member has at most {PROTOCOLS_MAX} protocols")
        return _to_response(JoinResult(request.member_id, error=refusal), version)
    answer: asyncio.Future[JoinResult] = asyncio.get_running_loop().create_future()

    session.node.groups.join(
        group_name(session, request.group_id),
        _to_join(request, session, version),
        partial(set_result_if_pending, answer),
    )
    return _to_response(await answer, version)


def _to_join(request: JoinGroupRequest, session: Session, version: int) -> JoinRequest:
    rebalance_timeout_ms = request.session_timeout_ms
    if version >= REBALANCE_TIMEOUT_FROM:
        rebalance_timeout_ms = request.rebalance_timeout_ms
    lowest_ms = session.node.settings.groups.rebalance_timeout_ms_min
    return JoinRequest(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=session.client_id,
        client_host=f"/{session.peer_host}",  # as the JVM formats an address without a name
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=min(max(rebalance_timeout_ms, lowest_ms), _SPAN_MS_MAX),
        protocol_type=request.protocol_type,
        protocols=tuple((item.name, bytes(item.metadata)) for item in request.protocols),
        needs_known_member_id=version >= KNOWN_MEMBER_ID_FROM,
        can_skip_assignment=version >= SKIP_ASSIGNMENT_FROM,
    )


def _to_response(result: JoinResult, version: int) -> JoinGroupResponse:
    protocol_name = result.protocol_name
    if protocol_name is None and version < NULLABLE_PROTOCOL_FROM:
        protocol_name = ""
    return JoinGroupResponse(
        version=version,
        error_code=group_code_of(result.error) if result.error else ErrorCode.NONE,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=protocol_name,
        leader=result.leader_id,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata,
            )
            for member in result.members
        ],
    )
