"""Server side of SASL: PLAIN (RFC 4616) and SCRAM (RFC 5802), one exchange per connection.

An exchange ends with a user name or with ``Unauthenticated``. A connection cannot start a second
one, so every guess of a password needs a new connection. Sessions do not expire: the lifetime in
the response is 0 (KIP-368).
"""

from typing import Final

from gateway.auth.login_throttle import Attempt, LoginThrottle, Peer
from gateway.auth.ports import Authenticator
from gateway.auth.scram import ScramMechanism, saslprep
from gateway.auth.scram_login import LoginStep, ScramLogin
from gateway.errors import Unauthenticated

PLAIN: Final = "PLAIN"
MECHANISMS: Final = (PLAIN, *(mechanism.value for mechanism in ScramMechanism))
PLAIN_BYTES_MAX: Final = 8_192
_PLAIN_PARTS: Final = 3


class SaslExchange:
    """One exchange by one mechanism. It ``is_over`` after an error or a user name."""

    def __init__(
        self, mechanism: str, authenticator: Authenticator, logins: LoginThrottle, peer: Peer
    ) -> None:
        self.is_over = False
        self._logins = logins
        self._peer = peer
        self._authenticator = authenticator
        self._scram = (
            None if mechanism == PLAIN else ScramLogin(ScramMechanism(mechanism), authenticator)
        )

    async def receive(self, data: bytes) -> LoginStep:
        """Process the client's next message. Errors: ``Unauthenticated``, ``Overloaded``."""
        if self.is_over:
            msg = "the exchange is over"
            raise Unauthenticated(msg)
        self.is_over = True  # reset below if another step follows; stays set after an error
        async with self._logins.attempt(self._peer) as attempt:
            if self._scram is None:
                return await self._receive_plain(data, attempt)
            step = await self._scram.receive(data, attempt)
            self.is_over = step.username is not None
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
