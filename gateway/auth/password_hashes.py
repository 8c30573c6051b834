"""Salted hashes of passwords as RabbitMQ keeps them, accepted as they are.

    base64(salt of 4 bytes + hash(salt + password))

https://www.rabbitmq.com/docs/passwords. A user with such a hash logs in with the password itself,
by PLAIN and the like: no SCRAM credential can be made of it. It is quickly guessed; a password that
is set here gets SCRAM credentials instead.
"""

import base64
import binascii
import hashlib
import hmac
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from gateway.auth.scram import ScramCredential
from gateway.errors import InvalidRequest

SALT_BYTES: Final = 4


class HashingAlgorithm(Enum):
    """Algorithms by RabbitMQ's names."""

    MD5 = "rabbit_password_hashing_md5"
    SHA_256 = "rabbit_password_hashing_sha256"
    SHA_512 = "rabbit_password_hashing_sha512"

    @property
    def digest(self) -> str:
        """Name of the hash in hashlib."""
        return self.value.rpartition("_")[2]


class PasswordHash(NamedTuple):
    """Hash of a password. An empty one fits no password."""

    algorithm: HashingAlgorithm
    salt: bytes
    digest: bytes

    def fits(self, password: str) -> bool:
        """Say whether a password has this hash."""
        salted = self.salt + password.encode(errors="surrogatepass")
        made = hashlib.new(self.algorithm.digest, salted, usedforsecurity=False).digest()
        return hmac.compare_digest(made, self.digest)

    @property
    def text(self) -> str:
        """The text that RabbitMQ shows."""
        return base64.b64encode(self.salt + self.digest).decode("ascii")


Credential: TypeAlias = ScramCredential | PasswordHash
"""Stored form of a password."""


def mechanism_of(credential: Credential) -> str:
    """Return the name of a credential's mechanism, or of its hashing algorithm."""
    if isinstance(credential, PasswordHash):
        return credential.algorithm.value
    return credential.mechanism.value


def parse_password_hash(text: str, algorithm: str) -> PasswordHash:
    """Return the hash of RabbitMQ's text; an empty one for a user who cannot log in.

    Error: ``InvalidRequest``, without the text.

    >>> text = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
    >>> parse_password_hash(text, "rabbit_password_hashing_sha256").fits("test12")
    True
    """
    try:
        kind = HashingAlgorithm(algorithm)
    except ValueError:
        raise InvalidRequest(f"hashing algorithm {algorithm[:80]!r} is not known") from None
    if not text:
        return PasswordHash(kind, b"", b"")
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest("a password hash is not base64") from None
    if len(data) != SALT_BYTES + hashlib.new(kind.digest, usedforsecurity=False).digest_size:
        raise InvalidRequest(f"a password hash of {len(data)} bytes is none of {kind.value}")
    return PasswordHash(kind, data[:SALT_BYTES], data[SALT_BYTES:])
