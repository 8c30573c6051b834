"""The server's side of SASL, one exchange per connection: PLAIN (RFC 4616), SCRAM (RFC 5802).

An exchange ends with a user's name or with ``Unauthenticated``, and is not begun anew on the
same connection: who guesses passwords needs a connection for each guess. Sessions do not expire
(KIP-368): the lifetime that is answered is 0.
"""

import secrets
from typing import Final, NamedTuple

from gateway.auth.logins import Attempt, Logins, Peer
from gateway.auth.ports import Authenticator
from gateway.auth.scram import ScramCredential, ScramMechanism, ScramServer, saslprep
from gateway.errors import Unauthenticated

PLAIN: Final = "PLAIN"
MECHANISMS: Final = (PLAIN, *(mechanism.value for mechanism in ScramMechanism))
PLAIN_BYTES_MAX: Final = 8_192
_NONCE_BYTES: Final = 18
_PLAIN_PARTS: Final = 3


class Step(NamedTuple):
    """What to send to the client, and who it is once that is known."""

    data: bytes
    username: str | None = None


class SaslExchange:
    """One exchange by one mechanism. After any error, or a user's name, it ``is_over``."""

    def __init__(
        self, mechanism: str, authenticator: Authenticator, logins: Logins, peer: Peer
    ) -> None:
        self.is_over = False
        self._logins = logins
        self._peer = peer
        self._authenticator = authenticator
        self._credential: ScramCredential | None = None
        self._scram = (
            None
            if mechanism == PLAIN
            else ScramServer(
                ScramMechanism(mechanism), nonce=secrets.token_urlsafe(_NONCE_BYTES)
            )
        )

    async def receive(self, data: bytes) -> Step:
        """Take the client's next message. Errors: ``Unauthenticated``, ``Overloaded``."""
        if self.is_over:
            msg = "the exchange is over"
            raise Unauthenticated(msg)
        self.is_over = True  # unless there is a step to come; an error leaves it so
        async with self._logins.attempt(self._peer) as attempt:
            if self._scram is None:
                return await self._receive_plain(data, attempt)
            step = await self._receive_scram(self._scram, data, attempt)
            self.is_over = step.username is not None
        return step

    async def _receive_plain(self, data: bytes, attempt: Attempt) -> Step:
        username, password = parse_plain(data)
        await attempt.turn(username)
        name = await self._authenticator.authenticate_plain(username, password)
        attempt.passed()
        return Step(b"", name)

    async def _receive_scram(self, scram: ScramServer, data: bytes, attempt: Attempt) -> Step:
        authenticator = self._authenticator
        if scram.username:
            await attempt.turn(scram.username)
            final = scram.final_message(data)
            now = await authenticator.scram_credential(scram.username, scram.mechanism)
            if now is not self._credential:
                msg = "the user was changed or removed meanwhile"
                raise Unauthenticated(msg)
            attempt.passed()
            return Step(final, scram.username)
        username = scram.receive_first(data)
        self._credential = await authenticator.scram_credential(username, scram.mechanism)
        return Step(scram.first_message(self._credential))


def parse_plain(data: bytes) -> tuple[str, str]:
    r"""Return user name and password of a PLAIN message: authzid NUL authcid NUL passwd.

    Errors: ``Unauthenticated``, also for a client that wants to act for somebody else.

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
