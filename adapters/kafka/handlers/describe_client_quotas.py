"""DescribeClientQuotas: API key 48, versions 0 to 1 (KIP-546). No client has a quota.

v1  flexible encoding (KIP-482)
"""

from typing import Final

from kafka.protocol.admin import DescribeClientQuotasRequest, DescribeClientQuotasResponse

from adapters.kafka.access.authorization import check_cluster
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.errors import Unauthorized, public_text

API_KEY: Final = 48
VERSIONS: Final = range(2)


def handle(
    request: DescribeClientQuotasRequest,  # noqa: ARG001 - the answer is always the same
    session: Session,
    version: int,
) -> DescribeClientQuotasResponse:
    """Return no quotas."""
    try:
        check_cluster(session, Operation.DESCRIBE_CONFIGS)
    except Unauthorized as error:
        return DescribeClientQuotasResponse(
            version=version,
            error_code=code_of(error),
            error_message=public_text(error),
            entries=None,
        )
    return DescribeClientQuotasResponse(
        version=version, error_code=ErrorCode.NONE, error_message=None, entries=[]
    )
