"""AlterUserScramCredentials: API key 51, version 0 (KIP-554).

All changes of one user are one transaction; each user has a result of its own. Users do not
determine whether login is required: neither the first nor the last user changes that.
"""

from collections import Counter
from typing import Any, Final, TypeAlias

from kafka.protocol.admin import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)

from adapters.kafka.access.authorization import check_cluster
from adapters.kafka.access.scram_credentials import (
    credential_from_salted,
    mechanism_of,
    stored_users,
)
from adapters.kafka.errors import ErrorCode, Refused, code_of
from adapters.kafka.session import Session
from gateway.auth.ports import ANONYMOUS, EVERYBODY, NAME_CHARS_MAX, Operation
from gateway.auth.scram import ScramCredential, ScramMechanism, saslprep
from gateway.auth.users import StoredUsers
from gateway.errors import GatewayError, Unauthenticated, Unauthorized, as_value, public_text

API_KEY: Final = 51
VERSIONS: Final = range(1)

_Result: TypeAlias = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


async def handle(
    request: AlterUserScramCredentialsRequest, session: Session, version: int
) -> AlterUserScramCredentialsResponse:
    """Delete and set credentials, user by user."""
    changes: dict[str, tuple[list[Any], list[Any]]] = {}
    for deletion in request.deletions:
        changes.setdefault(deletion.name, ([], []))[0].append(deletion)
    for upsertion in request.upsertions:
        changes.setdefault(upsertion.name, ([], []))[1].append(upsertion)
    refusal = _refusal(session)
    results = []
    for name, (deletions, upsertions) in changes.items():
        code, message = ErrorCode.NONE, None
        try:
            with session.changes("user.alter", name):
                if refusal is not None:
                    raise refusal
                await _alter(stored_users(session), _check_name(name), deletions, upsertions)
        except GatewayError as error:
            code, message = code_of(error), public_text(error)
        results.append(_Result(user=name, error_code=code, error_message=message))
    return AlterUserScramCredentialsResponse(version=version, results=results)


def _refusal(session: Session) -> Unauthorized | None:
    """Return the authorization error of the request, None if it is allowed."""
    try:
        check_cluster(session, Operation.ALTER)
    except Unauthorized as error:
        return as_value(error)
    return None


def _check_name(name: str) -> str:
    """Return the normalized user name. Error: ``Refused``, UNACCEPTABLE_CREDENTIAL."""
    try:
        prepared = saslprep(name, stored=True)
    except Unauthenticated as error:
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, str(error)) from error
    if not 1 <= len(prepared) <= NAME_CHARS_MAX or prepared in {ANONYMOUS, EVERYBODY}:
        msg = "Username must not be empty, too long, ANONYMOUS or *"
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, msg)
    return prepared


async def _alter(
    users: StoredUsers, name: str, deletions: list[Any], upsertions: list[Any]
) -> None:
    counts = Counter(mechanism_of(change.mechanism) for change in [*deletions, *upsertions])
    if max(counts.values()) > 1:
        msg = "A user credential cannot be altered twice in the same request"
        raise Refused(ErrorCode.DUPLICATE_RESOURCE, msg)
    present = {credential.mechanism: credential for credential in users.credentials(name)}
    wanted = _changed(present, deletions, upsertions)
    if wanted:
        await users.put_credentials(name, list(wanted.values()))
        return
    await users.remove_user(name)


def _changed(
    present: dict[ScramMechanism, ScramCredential],
    deletions: list[Any],
    upsertions: list[Any],
) -> dict[ScramMechanism, ScramCredential]:
    wanted = dict(present)
    for deletion in deletions:
        if wanted.pop(mechanism_of(deletion.mechanism), None) is None:
            msg = "Attempt to delete a user credential that does not exist"
            raise Refused(ErrorCode.RESOURCE_NOT_FOUND, msg)
    for upsertion in upsertions:
        mechanism = mechanism_of(upsertion.mechanism)
        wanted[mechanism] = credential_from_salted(
            mechanism,
            salt=upsertion.salt,
            iterations=upsertion.iterations,
            salted_password=upsertion.salted_password,
        )
    return wanted
