"""ListTransactions: API key 66, versions 0 to 2 (KIP-664).

v1  a filter by duration (KIP-994)
v2  a filter by name (KIP-1152)

Transactions are not served, so the list is always empty.
"""

from typing import Final

from kafka.protocol.admin import ListTransactionsRequest, ListTransactionsResponse

from adapters.kafka.errors import ErrorCode
from adapters.kafka.session import Session

API_KEY: Final = 66
VERSIONS: Final = range(3)
_STATES: Final = frozenset(
    {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    }
)


def handle(
    request: ListTransactionsRequest,
    session: Session,  # noqa: ARG001 - no authorization: always empty
    version: int,
) -> ListTransactionsResponse:
    """Return no transactions, and the unknown states of the filter."""
    return ListTransactionsResponse(
        version=version,
        error_code=ErrorCode.NONE,
        unknown_state_filters=[s for s in request.state_filters if s not in _STATES],
        transaction_states=[],
    )
