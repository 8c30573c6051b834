"""Names, authorization and error codes, shared by the handlers of the transaction APIs."""

from collections.abc import Mapping
from typing import Final

from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.session import Session
from gateway import errors
from gateway.auth.ports import Operation, ResourceType
from gateway.errors import GatewayError, ProducerFenced, Unauthorized
from gateway.transactions.journal import TransactionalId

VERSION_WITHOUT_EPOCHS: Final = 1
VERSION_WITH_EPOCHS: Final = 2
"""Versions of the transaction protocol: KIP-98, and KIP-890 with an epoch for each transaction."""

# Codes on which a client searches for the coordinator again and repeats its request.
_CODES: Final[Mapping[type[GatewayError], ErrorCode]] = {
    errors.StorageUnavailable: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.Overloaded: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.NotLeader: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.ShuttingDown: ErrorCode.NOT_COORDINATOR,
}


def transactional_id(session: Session, name: str) -> TransactionalId:
    """Return a transactional id in the session's namespace."""
    return TransactionalId(session.namespace, name)


def check_transactional_id(session: Session, operation: Operation, name: str) -> None:
    """Raise ``Unauthorized`` unless the session may do ``operation`` on the transactional id."""
    if not session.allows(operation, ResourceType.TRANSACTIONAL_ID, name):
        msg = f"{operation.value} on transactional id {name[:80]} is not allowed"
        raise Unauthorized(msg, resource="transactional_id")


def transaction_code_of(
    error: GatewayError | None, *, has_fenced_code: bool = True
) -> ErrorCode:
    """Return the coordinator's error code for an error; NONE for None.

    ``has_fenced_code``: the version of the request knows PRODUCER_FENCED (KIP-588).

    >>> transaction_code_of(errors.StorageFull()).name
    'COORDINATOR_NOT_AVAILABLE'
    >>> transaction_code_of(ProducerFenced(), has_fenced_code=False).name
    'INVALID_PRODUCER_EPOCH'
    """
    if error is None:
        return ErrorCode.NONE
    if isinstance(error, ProducerFenced) and has_fenced_code:
        return ErrorCode.PRODUCER_FENCED
    for base, code in _CODES.items():
        if isinstance(error, base):
            return code
    return code_of(error)
