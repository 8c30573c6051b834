"""InitProducerId: API key 22, versions 0 to 5.

v2  flexible encoding (KIP-482)
v3  the producer's current id and epoch (KIP-360), for transactional producers only
v4  PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588)
v5  TRANSACTION_ABORTABLE (KIP-890); never returned

Without a transactional id each request gets a new producer id, from blocks that the metadata store
allocates. With one, the id stays and the epoch grows; an open transaction of the producer before
is aborted in the same append, so the response never is CONCURRENT_TRANSACTIONS.
"""

from typing import Final

from kafka.protocol.producer import InitProducerIdRequest, InitProducerIdResponse

from adapters.kafka.access.authorization import check_cluster
from adapters.kafka.errors import ErrorCode, Refused
from adapters.kafka.session import Session
from adapters.kafka.transactions.coordinator import (
    check_transactional_id,
    transaction_code_of,
    transactional_id,
)
from features.transactions import NO_EPOCH, NO_PRODUCER_ID, InitRequest
from gateway.auth.ports import Operation
from gateway.errors import GatewayError

API_KEY: Final = 22
VERSIONS: Final = range(6)
PRODUCER_FROM: Final = 3
FENCED_CODE_FROM: Final = 4

FIRST_EPOCH: Final = 0


async def handle(
    request: InitProducerIdRequest, session: Session, version: int
) -> InitProducerIdResponse:
    """Assign a producer id and an epoch."""
    code, producer_id, epoch = ErrorCode.NONE, NO_PRODUCER_ID, NO_EPOCH
    try:
        producer_id, epoch = await _assign(request, session, version)
    except GatewayError as error:
        code = transaction_code_of(error, has_fenced_code=version >= FENCED_CODE_FROM)
    return InitProducerIdResponse(
        version=version, error_code=code, producer_id=producer_id, producer_epoch=epoch
    )


async def _assign(
    request: InitProducerIdRequest, session: Session, version: int
) -> tuple[int, int]:
    if version >= PRODUCER_FROM:
        _check_producer(request)
    name = request.transactional_id
    if name is None:
        # A principal that may write to some topic may do so idempotently (KIP-679), by the rules.
        check_cluster(session, Operation.IDEMPOTENT_WRITE)
        return await session.node.producer_ids.next(), FIRST_EPOCH
    if not name:
        raise Refused(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    check_transactional_id(session, Operation.WRITE, name)
    asked = InitRequest(request.transaction_timeout_ms)
    if version >= PRODUCER_FROM:
        asked = InitRequest(
            request.transaction_timeout_ms, request.producer_id, request.producer_epoch
        )
    value = await session.node.transactions.init(transactional_id(session, name), asked)
    return value.producer_id, value.epoch


def _check_producer(request: InitProducerIdRequest) -> None:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        msg = "a producer id without an epoch, or an epoch without an id"
        raise Refused(ErrorCode.INVALID_REQUEST, msg)
