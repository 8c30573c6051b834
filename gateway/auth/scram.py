"""SCRAM-SHA-256 and SCRAM-SHA-512, the server's side (RFC 5802, RFC 7677), sans I/O.

    client-first   n,,n=user,r=clientnonce
    server-first   r=clientnonceservernonce,s=salt,i=iterations
    client-final   c=biws,r=clientnonceservernonce,p=proof
    server-final   v=signature

Channel binding is not offered, so a client may say ``n`` (it has none) or ``y`` (it has, and
believes that we have not), never ``p``. Every error is ``Unauthenticated``, whose text may be
shown.
"""

import base64
import binascii
import hashlib
import hmac
import re
import stringprep
from enum import Enum
from typing import Final, NamedTuple
from unicodedata import ucd_3_2_0 as unicode_3_2  # stringprep is of that version (RFC 3454)

from gateway.errors import Unauthenticated

ITERATIONS_MIN: Final = 4_096  # RFC 7677 section 4
ITERATIONS_MAX: Final = 1_000_000  # a login costs both sides that much work
MESSAGE_BYTES_MAX: Final = 8_192
SALT_BYTES: Final = 18

_CLIENT_FIRST: Final = re.compile(
    r"(?P<header>(?P<binding>[ny]|p=[^,]*),(?:a=(?P<authzid>[^,]*))?,)"
    r"(?P<bare>n=(?P<user>[^,]+),r=(?P<nonce>[!-+\--~]+)(?:,.*)?)",
    re.DOTALL,
)
_CLIENT_FINAL: Final = re.compile(
    r"(?P<unproven>c=(?P<binding>[^,]+),r=(?P<nonce>[^,]+)(?:,[^,]*)*),p=(?P<proof>[^,]+)",
    re.DOTALL,
)
_PROHIBITED: Final = (  # RFC 4013 section 2.3
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


class ScramMechanism(Enum):
    """SCRAM mechanisms by their SASL names."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"

    @property
    def digest(self) -> str:
        """Name of the hash in hashlib."""
        return "sha256" if self is ScramMechanism.SHA_256 else "sha512"


class ScramCredential(NamedTuple):
    """Stored form of a password (RFC 5802 section 3), from which it cannot be recovered."""

    mechanism: ScramMechanism
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


class ScramServer:
    """SCRAM exchange: ``receive_first``, ``first_message``, ``final_message``, in this order.

    ``nonce`` is this exchange's share of randomness: 18 bytes or more, as printable ASCII
    without a comma. Any error ends the exchange.
    """

    def __init__(self, mechanism: ScramMechanism, *, nonce: str) -> None:
        self.mechanism = mechanism
        self.username = ""
        self._nonce = nonce
        self._header = ""
        self._client_first_bare = ""
        self._server_first = ""
        self._credential: ScramCredential | None = None

    def receive_first(self, message: bytes) -> str:
        """Take the client's first message; return the prepared user name."""
        match = _CLIENT_FIRST.fullmatch(_text(message))
        if match is None:
            raise _malformed("first")
        if match["binding"].startswith("p"):
            msg = "channel binding was not offered"
            raise Unauthenticated(msg)
        self.username = saslprep(_unescape(match["user"]))
        if not self.username:
            raise _malformed("first")
        if match["authzid"] and saslprep(_unescape(match["authzid"])) != self.username:
            msg = "acting for another user is not supported"
            raise Unauthenticated(msg)
        self._header = match["header"]
        self._client_first_bare = match["bare"]
        self._nonce = match["nonce"] + self._nonce
        return self.username

    def first_message(self, credential: ScramCredential) -> bytes:
        """Return the server's first message; ``credential`` is the user's or a decoy."""
        assert self._client_first_bare, "the client's first message comes before ours"
        assert credential.mechanism is self.mechanism
        salt = base64.b64encode(credential.salt).decode("ascii")
        self._server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._credential = credential
        return self._server_first.encode()

    def final_message(self, message: bytes) -> bytes:
        """Check the client's proof and return the server's. Errors: ``Unauthenticated``."""
        assert self._credential is not None, "our first message comes before the client's final"
        match = _CLIENT_FINAL.fullmatch(_text(message))
        if match is None:
            raise _malformed("final")
        if _decode_base64(match["binding"]) != self._header.encode():
            msg = "the channel binding is not that of the first message"
            raise Unauthenticated(msg)
        if not hmac.compare_digest(match["nonce"].encode(), self._nonce.encode()):
            msg = "the nonce is not that of the first message"
            raise Unauthenticated(msg)
        signed = f"{self._client_first_bare},{self._server_first},{match['unproven']}".encode()
        if not _proves(self._credential, _decode_base64(match["proof"]), signed):
            msg = "wrong user name or password"
            raise Unauthenticated(msg)
        digest = self.mechanism.digest
        signature = hmac.digest(self._credential.server_key, signed, digest)
        return b"v=" + base64.b64encode(signature)


def make_credential(
    mechanism: ScramMechanism, password: str, *, salt: bytes, iterations: int
) -> ScramCredential:
    """Derive the credential of a password prepared by ``saslprep``. Takes milliseconds."""
    digest = mechanism.digest
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", digest)
    return ScramCredential(
        mechanism,
        salt,
        iterations,
        stored_key=hashlib.new(digest, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", digest),
    )


def make_decoy(
    mechanism: ScramMechanism, username: str, *, secret: bytes, iterations: int
) -> ScramCredential:
    """Return a credential that no password matches, stable for a name and a ``secret``."""
    digest = mechanism.digest
    salt = hmac.digest(secret, b"salt," + username.encode(), digest)[:SALT_BYTES]
    key = hmac.digest(secret, b"key," + username.encode(), digest)
    return ScramCredential(mechanism, salt, iterations, stored_key=key, server_key=key)


def fits(credential: ScramCredential, password: str) -> bool:
    """Say whether a prepared password matches; takes milliseconds, in constant time."""
    derived = make_credential(
        credential.mechanism,
        password,
        salt=credential.salt,
        iterations=credential.iterations,
    )
    return hmac.compare_digest(derived.stored_key, credential.stored_key)


def saslprep(text: str, *, stored: bool = False) -> str:
    """Return ``text`` as names and passwords are compared (SASLprep, RFC 4013).

    ``stored``: it is to be kept, so that characters that Unicode 3.2 does not know are refused.
    Errors: ``Unauthenticated`` for what no name or password may contain.

    >>> saslprep("I\u00adX"), saslprep("\u2168")
    ('IX', 'IX')
    """
    if text.isascii() and text.isprintable():
        return text
    mapped = "".join(
        " " if stringprep.in_table_c12(char) else char
        for char in text
        if not stringprep.in_table_b1(char)
    )
    prepared = unicode_3_2.normalize("NFKC", mapped)
    for char in prepared:
        if any(prohibited(char) for prohibited in _PROHIBITED) or (
            stored and stringprep.in_table_a1(char)
        ):
            msg = f"character U+{ord(char):04X} is not allowed in names and passwords"
            raise Unauthenticated(msg)
    _check_direction(prepared)
    return prepared


def _check_direction(text: str) -> None:
    """Refuse text that mixes directions (RFC 3454 section 6)."""
    right_to_left = [stringprep.in_table_d1(char) for char in text]
    if any(right_to_left) and (
        not (right_to_left[0] and right_to_left[-1])
        or any(stringprep.in_table_d2(char) for char in text)
    ):
        msg = "a name or password mixes left-to-right and right-to-left"
        raise Unauthenticated(msg)


def _proves(credential: ScramCredential, proof: bytes, signed: bytes) -> bool:
    """Check that H(proof XOR HMAC(StoredKey, AuthMessage)) is StoredKey (RFC 5802 section 3)."""
    digest = credential.mechanism.digest
    signature = hmac.digest(credential.stored_key, signed, digest)
    if len(proof) != len(signature):
        return False
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    return hmac.compare_digest(hashlib.new(digest, client_key).digest(), credential.stored_key)


def _text(message: bytes) -> str:
    if len(message) > MESSAGE_BYTES_MAX:
        msg = f"a SCRAM message of {len(message)} bytes is above {MESSAGE_BYTES_MAX}"
        raise Unauthenticated(msg)
    try:
        return message.decode()
    except UnicodeDecodeError as error:
        msg = "a SCRAM message is not UTF-8"
        raise Unauthenticated(msg) from error


def _unescape(name: str) -> str:
    """Undo ``=2C`` for a comma and ``=3D`` for an equals sign (RFC 5802 section 5.1)."""
    if re.search("=(?!2C|3D)", name):
        msg = "a user name with a bare '='"
        raise Unauthenticated(msg)
    return name.replace("=2C", ",").replace("=3D", "=")


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _malformed("final") from error


def _malformed(which: str) -> Unauthenticated:
    return Unauthenticated(f"the client's {which} SCRAM message is malformed")
