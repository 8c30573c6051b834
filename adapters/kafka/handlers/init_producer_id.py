"""InitProducerId: API key 22, versions 0 to 5.

v2  flexible encoding (KIP-482)
v3  the producer's current id and epoch (KIP-360), for transactional producers only
v4  PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588)
v5  TRANSACTION_ABORTABLE (KIP-890)

Ids are taken from blocks that the metadata store allocates, so that no id is assigned twice.
Transactions are not served. A producer with a transactional id receives
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the only code that all clients treat as final and report at
once; on others librdkafka retries forever.
"""

from typing import Final

from kafka.protocol.producer import InitProducerIdRequest, InitProducerIdResponse

from adapters.kafka.access.authorization import check_cluster
from adapters.kafka.errors import ErrorCode, Refused, code_of
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.errors import GatewayError, Unauthorized

API_KEY: Final = 22
VERSIONS: Final = range(6)

NO_ID: Final = -1
NO_EPOCH: Final = -1
FIRST_EPOCH: Final = 0


async def handle(
    request: InitProducerIdRequest, session: Session, version: int
) -> InitProducerIdResponse:
    """Assign a new producer id, with epoch 0."""
    code, producer_id, epoch = ErrorCode.NONE, NO_ID, NO_EPOCH
    try:
        _check(request, session)
        producer_id = await session.node.producer_ids.next()
        epoch = FIRST_EPOCH
    except GatewayError as error:
        code = code_of(error)
    return InitProducerIdResponse(
        version=version, error_code=code, producer_id=producer_id, producer_epoch=epoch
    )


def _check(request: InitProducerIdRequest, session: Session) -> None:
    if request.transactional_id is not None:
        msg = "transactions are not served"
        raise Unauthorized(msg, resource="transactional_id")
    if (request.producer_id == NO_ID) != (request.producer_epoch == NO_EPOCH):
        msg = "a producer id without an epoch, or an epoch without an id"
        raise Refused(ErrorCode.INVALID_REQUEST, msg)
    # A principal that may write to some topic may do so idempotently (KIP-679), by the rules.
    check_cluster(session, Operation.IDEMPOTENT_WRITE)
