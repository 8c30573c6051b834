"""AddOffsetsToTxn: API key 25, versions 0 to 4.

v2  PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588)
v3  flexible encoding (KIP-482)
v4  TRANSACTION_ABORTABLE (KIP-890); never returned

It adds a consumer group, whose offsets TxnOffsetCommit sends afterwards.
"""

from typing import Final

from kafka.protocol.producer import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

from adapters.kafka.errors import ErrorCode
from adapters.kafka.groups.coordinator import check_group, group_name
from adapters.kafka.session import Session
from adapters.kafka.transactions.coordinator import (
    check_transactional_id,
    transaction_code_of,
    transactional_id,
)
from features.transactions import GroupRef
from gateway.auth.ports import Operation
from gateway.errors import GatewayError
from gateway.groups.directory import check_name

API_KEY: Final = 25
VERSIONS: Final = range(5)
FENCED_CODE_FROM: Final = 2


def handle(
    request: AddOffsetsToTxnRequest, session: Session, version: int
) -> AddOffsetsToTxnResponse:
    """Add a group to a transaction."""
    code = ErrorCode.NONE
    try:
        check_transactional_id(session, Operation.WRITE, request.transactional_id)
        check_group(session, Operation.READ, request.group_id)
        check_name(group_name(session, request.group_id))
        session.node.transactions.add(
            transactional_id(session, request.transactional_id),
            request.producer_id,
            request.producer_epoch,
            groups=[GroupRef(session.namespace, request.group_id)],
        )
    except GatewayError as error:
        code = transaction_code_of(error, has_fenced_code=version >= FENCED_CODE_FROM)
    return AddOffsetsToTxnResponse(version=version, error_code=code)
