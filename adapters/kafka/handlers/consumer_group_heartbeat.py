"""ConsumerGroupHeartbeat: API key 68, versions 0 to 1 (KIP-848).

v1  the member makes its own id; subscriptions by regular expression

An answer that changed what is stored of the group waits until that is durable.
"""

from collections.abc import Awaitable
from typing import Final
from uuid import uuid4

from adapters.kafka.codecs.consumer_group_codec import (
    ConsumerGroupHeartbeatRequest,
    decode_heartbeat,
)
from adapters.kafka.groups.coordinator import check_group, group_name
from adapters.kafka.groups.heartbeat_answers import answer_beat, encode_beat
from adapters.kafka.groups.subscribed_topics import check_topics
from adapters.kafka.session import Session
from gateway.auth.ports import Operation, ResourceType
from gateway.errors import GatewayError, InvalidRequest, as_value
from gateway.groups.consumer.model import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    Heartbeat,
)

API_KEY: Final = 68
VERSIONS: Final = range(2)

OWN_MEMBER_ID_FROM: Final = 1

decode = decode_heartbeat


def handle(
    request: ConsumerGroupHeartbeatRequest, session: Session, version: int
) -> bytes | Awaitable[bytes]:
    """Keep a group member alive, take its subscription, return its assignment if that changed."""
    try:
        check_group(session, Operation.READ, request.group_id)
        _check(request, version)
        check_topics(session, request.names)
    except GatewayError as error:
        return encode_beat(session, as_value(error))
    name, beat = group_name(session, request.group_id), _beat(request, session)
    return answer_beat(
        session, lambda answered: session.node.groups.consumer_heartbeat(name, beat, answered)
    )


def _check(request: ConsumerGroupHeartbeatRequest, version: int) -> None:
    """Raise ``InvalidRequest``, with Kafka's texts, for a request that contradicts itself."""
    if not request.group_id.strip():
        raise InvalidRequest("GroupId can't be empty.")
    if request.instance_id is not None and not request.instance_id.strip():
        raise InvalidRequest("InstanceId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise InvalidRequest("RackId can't be empty.")
    epoch = request.member_epoch
    if not request.member_id.strip() and (epoch != JOIN_EPOCH or version >= OWN_MEMBER_ID_FROM):
        raise InvalidRequest("MemberId can't be empty.")
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        raise InvalidRequest("InstanceId can't be null.")
    elif epoch < STATIC_LEAVE_EPOCH:
        raise InvalidRequest("MemberEpoch is invalid.")


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise InvalidRequest("RebalanceTimeoutMs must be provided in first request.")
    if request.owned is None or request.owned:
        raise InvalidRequest("TopicPartitions must be empty when (re-)joining.")
    if request.names is None and not request.regex:
        raise InvalidRequest(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining."
        )


def _beat(request: ConsumerGroupHeartbeatRequest, session: Session) -> Heartbeat:
    def can_see(name: str) -> bool:
        return session.allows(Operation.DESCRIBE, ResourceType.TOPIC, name)

    return Heartbeat(
        member_id=request.member_id or str(uuid4()),
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        client_id=session.client_id,
        client_host=f"/{session.peer_host}",  # as the JVM formats an address without a name
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        names=request.names,
        regex=request.regex,
        assignor=request.assignor,
        owned=request.owned,
        can_see=can_see,
    )
