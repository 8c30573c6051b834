"""FindCoordinator: API key 10, versions 0 to 6.

v1  key_type: 0 group, 1 transaction; error_message
v3  flexible encoding (KIP-482)
v4  several keys at once (KIP-699)
v5  TRANSACTION_ABORTABLE (KIP-890); never returned
v6  key_type 2: share groups (KIP-932); refused

The coordinator of a group, or of a transactional id, is the node that owns its shard.
"""

from typing import Final

from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse

from adapters.kafka.codecs.metadata_codec import BrokerAddress
from adapters.kafka.errors import ErrorCode, Refused, code_of
from adapters.kafka.groups.coordinator import check_group, group_name
from adapters.kafka.metadata.broker_addresses import brokers
from adapters.kafka.node.large_requests import slices, yield_to_loop
from adapters.kafka.session import Session
from adapters.kafka.transactions.coordinator import check_transactional_id, transactional_id
from gateway.auth.ports import Operation
from gateway.errors import GatewayError
from gateway.placement import Node

API_KEY: Final = 10
VERSIONS: Final = range(7)

KEYS_FROM: Final = 4
GROUP: Final = 0
TRANSACTION: Final = 1
NOWHERE: Final = BrokerAddress(-1, "", -1, None)


def handle(
    request: FindCoordinatorRequest, session: Session, version: int
) -> FindCoordinatorResponse:
    """Return the coordinators of groups or transactional ids: the nodes that own their shards."""
    if version < KEYS_FROM:
        broker, code, message = _find(session, request.key_type, request.key)
        return FindCoordinatorResponse(
            version=version,
            error_code=code,
            error_message=message,
            node_id=broker.node_id,
            host=broker.host,
            port=broker.port,
        )
    return _respond(
        version, [_answer(session, request.key_type, key) for key in request.coordinator_keys]
    )


async def handle_large(
    request: FindCoordinatorRequest, session: Session, version: int
) -> FindCoordinatorResponse:
    """Do as ``handle``, in slices of keys."""
    answers = []
    for keys in slices(request.coordinator_keys or ()):
        answers += [_answer(session, request.key_type, key) for key in keys]
        await yield_to_loop()
    return _respond(version, answers)


def _respond(
    version: int, answers: list[FindCoordinatorResponse.Coordinator]
) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(version=version, coordinators=answers)


def _answer(session: Session, key_type: int, key: str) -> FindCoordinatorResponse.Coordinator:
    broker, code, message = _find(session, key_type, key)
    return FindCoordinatorResponse.Coordinator(
        key=key,
        node_id=broker.node_id,
        host=broker.host,
        port=broker.port,
        error_code=code,
        error_message=message,
    )


def _find(
    session: Session, key_type: int, key: str
) -> tuple[BrokerAddress, ErrorCode, str | None]:
    try:
        owner = _owner(session, key_type, key)
    except GatewayError as error:
        return NOWHERE, code_of(error), str(error)
    for broker in brokers(session):
        if owner is not None and broker.node_id == owner.node_id:
            return broker, ErrorCode.NONE, None
    return NOWHERE, ErrorCode.COORDINATOR_NOT_AVAILABLE, "No node coordinates it now"


def _owner(session: Session, key_type: int, key: str) -> Node | None:
    """Return the owner of a key. Errors: ``Unauthorized``, ``Refused``."""
    if key_type == GROUP:
        check_group(session, Operation.DESCRIBE, key)
        return session.node.groups.owners.owner(group_name(session, key))
    if key_type == TRANSACTION:
        check_transactional_id(session, Operation.DESCRIBE, key)
        return session.node.transactions.owners.owner(transactional_id(session, key))
    msg = f"Coordinators of type {key_type} are unknown"
    raise Refused(ErrorCode.INVALID_REQUEST, msg)
