"""Verifiers of passwords as text: those of SCRAM in PostgreSQL's format, RabbitMQ's hashes.

    SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>   (the last three in base64)
    rabbit_password_hashing_sha256$<salt and hash>              (in base64)

A verifier is no password, but guessing is all that it takes to find one: keep it private.
"""

import base64
import binascii
import hashlib
import re
from typing import Final

from gateway.auth.password_hashes import Credential, PasswordHash, parse_password_hash
from gateway.auth.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
)
from gateway.errors import InvalidRequest

_HASH_PREFIX: Final = "rabbit_password_hashing_"
_FORM: Final = re.compile(r"(SCRAM-SHA-\d+)\$(\d{1,9}):([^$:]+)\$([^$:]+):([^$:]+)")


def format_verifier(credential: Credential) -> str:
    """Return a credential as text."""
    if isinstance(credential, PasswordHash):
        return f"{credential.algorithm.value}${credential.text}"
    salt, stored, server = (
        base64.b64encode(part).decode("ascii")
        for part in (credential.salt, credential.stored_key, credential.server_key)
    )
    return f"{credential.mechanism.value}${credential.iterations}:{salt}${stored}:{server}"


def parse_verifier(text: str) -> Credential:
    """Return the credential of a text. Errors: ``InvalidRequest``, without the text."""
    if text.startswith(_HASH_PREFIX):
        algorithm, _, encoded = text.partition("$")
        return parse_password_hash(encoded, algorithm)
    match = _FORM.fullmatch(text)
    if match is None:
        raise InvalidRequest("a SCRAM verifier is SCRAM-SHA-256$iterations:salt$key:key")
    try:
        mechanism = ScramMechanism(match[1])
        salt, stored, server = (
            base64.b64decode(match[number], validate=True) for number in (3, 4, 5)
        )
    except (ValueError, binascii.Error):
        raise InvalidRequest(
            "a SCRAM verifier has an unknown mechanism, or no base64"
        ) from None
    iterations = int(match[2])
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise InvalidRequest(
            f"a SCRAM verifier has {iterations} rounds, not {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        )
    size_bytes = hashlib.new(mechanism.digest).digest_size
    if {len(stored), len(server)} != {size_bytes}:
        raise InvalidRequest(
            f"the keys of a {mechanism.value} verifier have {size_bytes} bytes"
        )
    return ScramCredential(mechanism, salt, iterations, stored, server)
