"""EndTxn: API key 26, versions 0 to 5.

v2  PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588)
v3  flexible encoding (KIP-482)
v4  TRANSACTION_ABORTABLE (KIP-890); never returned
v5  the second version of the protocol: the response has the id and epoch to go on with (KIP-890)

The outcome of a transaction is one append: its markers, the offsets that it commits and the state
of its transactional id. The response is sent when it is durable; a request that is sent again gets
the same response.
"""

from typing import Final

from kafka.protocol.producer import EndTxnRequest, EndTxnResponse

from adapters.kafka.errors import ErrorCode
from adapters.kafka.session import Session
from adapters.kafka.transactions.coordinator import (
    VERSION_WITH_EPOCHS,
    VERSION_WITHOUT_EPOCHS,
    check_transactional_id,
    transaction_code_of,
    transactional_id,
)
from features.transactions import NO_EPOCH, NO_PRODUCER_ID
from gateway.auth.ports import Operation
from gateway.errors import GatewayError

API_KEY: Final = 26
VERSIONS: Final = range(6)
FENCED_CODE_FROM: Final = 2
EPOCHS_FROM: Final = 5


async def handle(request: EndTxnRequest, session: Session, version: int) -> EndTxnResponse:
    """Commit or abort a transaction."""
    code, producer_id, epoch = ErrorCode.NONE, NO_PRODUCER_ID, NO_EPOCH
    has_epochs = version >= EPOCHS_FROM
    try:
        check_transactional_id(session, Operation.WRITE, request.transactional_id)
        value = await session.node.transactions.end(
            transactional_id(session, request.transactional_id),
            request.producer_id,
            request.producer_epoch,
            is_commit=request.committed,
            version=VERSION_WITH_EPOCHS if has_epochs else VERSION_WITHOUT_EPOCHS,
        )
        producer_id, epoch = value.producer_id, value.epoch
    except GatewayError as error:
        code = transaction_code_of(error, has_fenced_code=version >= FENCED_CODE_FROM)
    if not has_epochs:
        return EndTxnResponse(version=version, error_code=code)
    return EndTxnResponse(
        version=version, error_code=code, producer_id=producer_id, producer_epoch=epoch
    )
