"""SyncGroup: API key 14, versions 0 to 5.

v1  throttle_time_ms
v3  group_instance_id (KIP-345)
v4  flexible encoding (KIP-482)
v5  protocol_type and protocol_name, checked and returned (KIP-559)
"""

import asyncio
from functools import partial
from typing import Final

from kafka.protocol.consumer import SyncGroupRequest, SyncGroupResponse

from adapters.kafka.groups.coordinator import check_group, group_code_of, group_name
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.errors import GatewayError, as_value
from gateway.futures import set_result_if_pending
from gateway.groups.model import SyncResult

API_KEY: Final = 14
VERSIONS: Final = range(6)


async def handle(
    request: SyncGroupRequest, session: Session, version: int
) -> SyncGroupResponse:
    """Return the member's assignment; the leader's request has those of all members."""
    groups = session.node.groups
    name = group_name(session, request.group_id)
    answer: asyncio.Future[SyncResult] = asyncio.get_running_loop().create_future()

    try:
        check_group(session, Operation.READ, request.group_id)
        groups.check_protocol(name, request.protocol_type, request.protocol_name)
    except GatewayError as error:
        return _to_response(SyncResult(error=as_value(error)), version)
    groups.sync(
        name,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        {item.member_id: bytes(item.assignment) for item in request.assignments},
        partial(set_result_if_pending, answer),
    )
    return _to_response(await answer, version)


def _to_response(result: SyncResult, version: int) -> SyncGroupResponse:
    return SyncGroupResponse(
        version=version,
        error_code=group_code_of(result.error),
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
