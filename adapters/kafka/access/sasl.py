"""Server side of SASL: PLAIN (RFC 4616), SCRAM (RFC 5802) and OAUTHBEARER (RFC 7628).

An exchange ends with a user name or with ``Unauthenticated``. A connection cannot start a second
one, so every guess of a password needs a new connection; where logins end (KIP-368), it may start
one more to log in again.
"""

from collections.abc import Sequence
from typing import Final

from adapters.kafka.node.node import Node
from gateway.auth.bearer_login import MECHANISM as OAUTHBEARER
from gateway.auth.bearer_login import BearerLogin
from gateway.auth.login_throttle import Attempt, Peer
from gateway.auth.scram import ScramMechanism, saslprep
from gateway.auth.scram_login import LoginStep, ScramLogin
from gateway.errors import Unauthenticated, as_value

PLAIN: Final = "PLAIN"
MECHANISMS: Final = (PLAIN, *(mechanism.value for mechanism in ScramMechanism))
PLAIN_BYTES_MAX: Final = 8_192
_PLAIN_PARTS: Final = 3
_INVALID_TOKEN: Final = b'{"status":"invalid_token"}'


def mechanisms_of(node: Node) -> Sequence[str]:
    """Return the mechanisms that the node serves."""
    return MECHANISMS if node.tokens is None else (*MECHANISMS, OAUTHBEARER)


class SaslExchange:
    """One exchange by one mechanism. It ``is_over`` after an error or a user name."""

    def __init__(self, mechanism: str, node: Node, peer: Peer) -> None:
        self.mechanism = mechanism
        self.is_over = False
        self._logins = node.logins
        self._peer = peer
        self._authenticator = node.authenticator
        self._login: ScramLogin | BearerLogin | None = None
        self._refusal: Unauthenticated | None = None  # of a token, to be answered
        if mechanism == OAUTHBEARER:
            assert node.tokens is not None
            self._login = BearerLogin(node.tokens)
        elif mechanism != PLAIN:
            self._login = ScramLogin(ScramMechanism(mechanism), node.authenticator)

    async def receive(self, data: bytes) -> LoginStep:
        """Process the client's next message. Errors: ``Unauthenticated``, ``Overloaded``."""
        if self.is_over:
            msg = "the exchange is over"
            raise Unauthenticated(msg)
        self.is_over = True  # reset below if another step follows; stays set after an error
        if self._refusal is not None:
            raise self._refusal
        try:
            async with self._logins.attempt(self._peer) as attempt:
                if self._login is None:
                    return await self._receive_plain(data, attempt)
                step = await self._login.receive(data, attempt)
                self.is_over = step.username is not None
        except Unauthenticated as error:
            if self.mechanism != OAUTHBEARER:
                raise
            # RFC 7628 section 3.2.3: the client learns why, answers, and then it is refused.
            self.is_over, self._refusal = False, as_value(error)
            return LoginStep(_INVALID_TOKEN)
        return step

    async def _receive_plain(self, data: bytes, attempt: Attempt) -> LoginStep:
        username, password = parse_plain(data)
        await attempt.turn(username)
        name = await self._authenticator.authenticate_plain(username, password)
        attempt.passed()
        return LoginStep(b"", name)


def parse_plain(data: bytes) -> tuple[str, str]:
    r"""Return user name and password of a PLAIN message: authzid NUL authcid NUL passwd.

    Errors: ``Unauthenticated``, also for a client that asks to act as another user.

    >>> parse_plain(b"\0ada\0secret")
    ('ada', 'secret')
    """
    if len(data) > PLAIN_BYTES_MAX:
        msg = f"a PLAIN message of {len(data)} bytes is above {PLAIN_BYTES_MAX}"
        raise Unauthenticated(msg)
    try:
        parts = data.decode().split("\0")
    except UnicodeDecodeError as error:
        msg = "a PLAIN message is not UTF-8"
        raise Unauthenticated(msg) from error
    if len(parts) != _PLAIN_PARTS or not parts[1] or not parts[2]:
        msg = "a PLAIN message is not authzid, user name and password"
        raise Unauthenticated(msg)
    authzid, username, password = parts
    if authzid and saslprep(authzid) != saslprep(username):
        msg = "acting for another user is not supported"
        raise Unauthenticated(msg)
    return username, password
