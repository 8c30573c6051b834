"""DescribeUserScramCredentials: API key 50, version 0 (KIP-554)."""

from collections import Counter
from typing import Final, TypeAlias

from kafka.protocol.admin import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

from adapters.kafka.access.authorization import check_cluster
from adapters.kafka.access.scram_credentials import MECHANISM_CODES, stored_users
from adapters.kafka.errors import ErrorCode, Refused, code_of
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.auth.users import StoredUsers
from gateway.errors import GatewayError, public_text

API_KEY: Final = 50
VERSIONS: Final = range(1)

_Result: TypeAlias = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
_Credential: TypeAlias = (
    DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult.CredentialInfo
)


def handle(
    request: DescribeUserScramCredentialsRequest, session: Session, version: int
) -> DescribeUserScramCredentialsResponse:
    """Return the SCRAM mechanisms of users; null and empty request all users."""
    try:
        check_cluster(session, Operation.DESCRIBE)
        users = stored_users(session)
    except GatewayError as error:
        return DescribeUserScramCredentialsResponse(
            version=version,
            error_code=code_of(error),
            error_message=public_text(error),
            results=[],
        )
    asked = Counter(user.name for user in request.users or ()) or Counter(users.names())
    return DescribeUserScramCredentialsResponse(
        version=version,
        error_code=ErrorCode.NONE,
        error_message=None,
        results=[_answer(name, users, repeated=n > 1) for name, n in asked.items()],
    )


def _answer(name: str, users: StoredUsers, *, repeated: bool) -> _Result:
    try:
        infos = _infos(name, users, repeated=repeated)
    except GatewayError as error:
        return _Result(
            user=name,
            error_code=code_of(error),
            error_message=public_text(error),
            credential_infos=[],
        )
    return _Result(
        user=name, error_code=ErrorCode.NONE, error_message=None, credential_infos=infos
    )


def _infos(name: str, users: StoredUsers, *, repeated: bool) -> list[_Credential]:
    if repeated:
        msg = f"Cannot describe SCRAM credentials for the same user twice: {name[:80]}"
        raise Refused(ErrorCode.DUPLICATE_RESOURCE, msg)
    credentials = users.credentials(name)
    if not credentials:
        msg = f"Attempt to describe a user credential that does not exist: {name[:80]}"
        raise Refused(ErrorCode.RESOURCE_NOT_FOUND, msg)
    return [
        _Credential(
            mechanism=MECHANISM_CODES[credential.mechanism], iterations=credential.iterations
        )
        for credential in credentials
    ]
