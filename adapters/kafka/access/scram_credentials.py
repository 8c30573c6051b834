"""SCRAM credentials in the format of Kafka's admin APIs (KIP-554)."""

import hashlib
import hmac
from typing import Final

from adapters.kafka.errors import ErrorCode, Refused
from adapters.kafka.session import Session
from gateway.auth.scram import ITERATIONS_MAX, ITERATIONS_MIN, ScramCredential, ScramMechanism
from gateway.auth.users import StoredUsers

MECHANISM_CODES: Final = {ScramMechanism.SHA_256: 1, ScramMechanism.SHA_512: 2}
_MECHANISMS: Final = {code: mechanism for mechanism, code in MECHANISM_CODES.items()}
SALT_BYTES_MAX: Final = 1_024


def stored_users(session: Session) -> StoredUsers:
    """Return the store of users. Error: ``Refused`` when the gateway does not store them."""
    users = session.node.authenticator
    if not isinstance(users, StoredUsers):
        msg = "the users of this node are not kept by the gateway"
        raise Refused(ErrorCode.SECURITY_DISABLED, msg)
    return users


def mechanism_of(code: int) -> ScramMechanism:
    """Return the mechanism of a number. Error: ``Refused``, UNSUPPORTED_SASL_MECHANISM."""
    mechanism = _MECHANISMS.get(code)
    if mechanism is None:
        raise Refused(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return mechanism


def credential_from_salted(
    mechanism: ScramMechanism, *, salt: bytes, iterations: int, salted_password: bytes
) -> ScramCredential:
    """Return the credential to store for a password salted by the client (RFC 5802 section 3).

    Error: ``Refused``, UNACCEPTABLE_CREDENTIAL.
    """
    if iterations < ITERATIONS_MIN:
        raise _unacceptable("Too few iterations")
    if iterations > ITERATIONS_MAX:
        raise _unacceptable("Too many iterations")
    digest = mechanism.digest
    if not 1 <= len(salt) <= SALT_BYTES_MAX:
        raise _unacceptable("The salt is empty or too long")
    if len(salted_password) != hashlib.new(digest).digest_size:
        raise _unacceptable("The salted password is not as long as the mechanism's hash")
    client_key = hmac.digest(salted_password, b"Client Key", digest)
    return ScramCredential(
        mechanism,
        salt,
        iterations,
        stored_key=hashlib.new(digest, client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", digest),
    )


def _unacceptable(message: str) -> Refused:
    return Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
