"""ShareGroupHeartbeat: API key 76, version 1 (KIP-932).

An answer that changed what is stored of the group waits until that is durable, and the queues of
the member's partitions are there.
"""

from collections.abc import Awaitable
from typing import Final

from adapters.kafka.codecs.share_group_codec import (
    ShareGroupHeartbeatRequest,
    decode_heartbeat,
)
from adapters.kafka.groups.coordinator import check_group, group_name
from adapters.kafka.groups.heartbeat_answers import answer_beat, encode_beat
from adapters.kafka.groups.subscribed_topics import check_topics
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.errors import GatewayError, InvalidRequest, as_value
from gateway.groups.consumer.model import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NO_PARTITIONS,
    Heartbeat,
)

API_KEY: Final = 76
VERSIONS: Final = range(1, 2)

_NO_REVOCATION_MS: Final = 0  # members of share groups give nothing up in steps

decode = decode_heartbeat


def handle(
    request: ShareGroupHeartbeatRequest,
    session: Session,
    version: int,  # noqa: ARG001 - there is one
) -> bytes | Awaitable[bytes]:
    """Keep a group member alive, take its subscription, return its assignment if that changed."""
    try:
        check_group(session, Operation.READ, request.group_id)
        _check(request)
        check_topics(session, request.names)
    except GatewayError as error:
        return encode_beat(session, as_value(error))
    name, beat = group_name(session, request.group_id), _beat(request, session)
    return answer_beat(
        session, lambda answered: session.node.shares.heartbeat(name, beat, answered)
    )


def _check(request: ShareGroupHeartbeatRequest) -> None:
    """Raise ``InvalidRequest``, with Kafka's texts, for a request that contradicts itself."""
    if not request.group_id.strip():
        raise InvalidRequest("GroupId can't be empty.")
    if not request.member_id.strip():
        raise InvalidRequest("MemberId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise InvalidRequest("RackId can't be empty.")
    if request.member_epoch == JOIN_EPOCH and not request.names:
        raise InvalidRequest("SubscribedTopicNames must be set in first request.")
    if request.member_epoch < LEAVE_EPOCH:
        raise InvalidRequest("MemberEpoch is invalid.")


def _beat(request: ShareGroupHeartbeatRequest, session: Session) -> Heartbeat:
    return Heartbeat(
        member_id=request.member_id,
        epoch=request.member_epoch,
        rack_id=request.rack_id,
        client_id=session.client_id,
        client_host=f"/{session.peer_host}",  # as the JVM formats an address without a name
        rebalance_timeout_ms=-1 if request.names is None else _NO_REVOCATION_MS,
        names=request.names,
        owned=NO_PARTITIONS,
    )
