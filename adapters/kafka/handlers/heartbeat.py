"""Heartbeat: API key 12, versions 0 to 4.

v1  throttle_time_ms
v3  group_instance_id (KIP-345)
v4  flexible encoding (KIP-482)
"""

from typing import Final

from adapters.kafka.codecs.group_codec import (
    HeartbeatRequest,
    decode_heartbeat_request,
    encode_heartbeat_response,
)
from adapters.kafka.errors import ErrorCode
from adapters.kafka.groups.coordinator import check_group, group_code_of, group_name
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.errors import GatewayError

API_KEY: Final = 12
VERSIONS: Final = range(5)

decode = decode_heartbeat_request


def handle(request: HeartbeatRequest, session: Session, version: int) -> bytes:
    """Keep a group member alive; the error code makes it rejoin when necessary."""
    group_id, generation, member_id, instance_id = request
    code = ErrorCode.NONE
    try:
        check_group(session, Operation.READ, group_id)
        session.node.groups.heartbeat(
            group_name(session, group_id), member_id, instance_id, generation
        )
    except GatewayError as error:
        code = group_code_of(error)
    return encode_heartbeat_response(version, code)
