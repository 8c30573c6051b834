"""DescribeTransactions: API key 65, version 0 (KIP-664).

Transactions are not served, so no transactional id is known.
"""

from typing import Final, TypeAlias

from kafka.protocol.admin import DescribeTransactionsRequest, DescribeTransactionsResponse

from adapters.kafka.errors import ErrorCode
from adapters.kafka.session import Session
from gateway.auth.ports import Operation, ResourceType

API_KEY: Final = 65
VERSIONS: Final = range(1)

_State: TypeAlias = DescribeTransactionsResponse.TransactionState


def handle(
    request: DescribeTransactionsRequest, session: Session, version: int
) -> DescribeTransactionsResponse:
    """Return an error for each transactional id: not found, or not authorized."""
    return DescribeTransactionsResponse(
        version=version,
        transaction_states=[_answer(session, name) for name in request.transactional_ids],
    )


def _answer(session: Session, name: str) -> _State:
    code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    if not session.allows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return _State(error_code=code, transactional_id=name, transaction_state="", topics=[])
