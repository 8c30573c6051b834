"""Server side of a login by OAUTHBEARER (RFC 7628), for all protocols that carry its message."""

from typing import Final, Protocol

from gateway.auth.login_throttle import Attempt
from gateway.auth.scram_login import LoginStep
from gateway.errors import Unauthenticated

MECHANISM: Final = "OAUTHBEARER"
_SEPARATOR: Final = "\x01"
_BEARER: Final = "bearer "
_AROUND_BYTES_MAX: Final = 8_192  # of the message, beside the token: extensions of clients


class ValidToken(Protocol):
    """User of a valid token."""

    @property
    def name(self) -> str:
        """The user's name."""
        ...

    @property
    def expires_unix_ms(self) -> int:
        """End of the token's validity."""
        ...


class TokenConfig(Protocol):
    """Bounds of a token."""

    @property
    def token_bytes_max(self) -> int:
        """Bytes of a token."""
        ...


class Tokens(Protocol):
    """Port to the validation of tokens; ``gateway.auth.tokens`` implements it.

    It is a port since the library behind it is an extra.
    """

    @property
    def config(self) -> TokenConfig:
        """The bounds."""
        ...

    def claimed_user(self, token: str) -> str:
        """Return the name that a token claims, unchecked; empty for none."""
        ...

    async def validate(self, token: str) -> ValidToken:
        """Return the user of a token. Error: ``Unauthenticated``."""
        ...


class BearerLogin:
    """A login of one message."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    async def receive(self, data: bytes, attempt: Attempt) -> LoginStep:
        """Take the client's message. Errors: ``Unauthenticated``, ``Overloaded``."""
        if len(data) > self._tokens.config.token_bytes_max + _AROUND_BYTES_MAX:
            msg = f"an {MECHANISM} message of {len(data)} bytes"
            raise Unauthenticated(msg)
        authzid, token = parse_message(data)
        await attempt.turn(self._tokens.claimed_user(token))
        user = await self._tokens.validate(token)
        if authzid and authzid != user.name:
            msg = "acting for another user is not supported"
            raise Unauthenticated(msg)
        attempt.passed()
        return LoginStep(b"", user.name, user.expires_unix_ms)


def parse_message(data: bytes) -> tuple[str, str]:
    r"""Return authzid and token of a client's message (RFC 7628 section 3.1).

    Error: ``Unauthenticated``. Extensions are ignored.

    >>> parse_message(b"n,a=ada,\x01auth=Bearer a.b.c\x01\x01")
    ('ada', 'a.b.c')
    """
    try:
        head, *pairs = data.decode().split(_SEPARATOR)
    except UnicodeDecodeError as error:
        msg = f"an {MECHANISM} message is not UTF-8"
        raise Unauthenticated(msg) from error
    binding, _, rest = head.partition(",")
    authzid, _, end = rest.partition(",")
    values = dict(pair.partition("=")[::2] for pair in pairs if pair)
    auth = values.get("auth", "")
    is_whole = data.endswith(b"\x01\x01") and not end and rest.endswith(",")
    if binding not in {"n", "y"} or not is_whole or auth[: len(_BEARER)].lower() != _BEARER:
        msg = f"an {MECHANISM} message is not as in RFC 7628"
        raise Unauthenticated(msg)
    if authzid and not authzid.startswith("a="):
        msg = f"an {MECHANISM} message with an authzid without a="
        raise Unauthenticated(msg)
    name = authzid.removeprefix("a=").replace("=2C", ",").replace("=3D", "=")
    return name, auth[len(_BEARER) :].strip()
