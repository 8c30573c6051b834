"""ListPartitionReassignments: API key 46, version 0 (KIP-455). The list is always empty."""

from typing import Final

from kafka.protocol.admin import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

from adapters.kafka.access.authorization import check_cluster
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.errors import Unauthorized, public_text

API_KEY: Final = 46
VERSIONS: Final = range(1)


def handle(
    request: ListPartitionReassignmentsRequest,  # noqa: ARG001 - the answer is always the same
    session: Session,
    version: int,
) -> ListPartitionReassignmentsResponse:
    """Return no reassignments: each partition has one replica."""
    code, message = ErrorCode.NONE, None
    try:
        check_cluster(session, Operation.DESCRIBE)
    except Unauthorized as error:
        code, message = code_of(error), public_text(error)
    return ListPartitionReassignmentsResponse(
        version=version, error_code=code, error_message=message, topics=[]
    )
