"""Server side of a SCRAM login, for all protocols that carry its messages."""

import secrets
from typing import Final, NamedTuple

from gateway.auth.login_throttle import Attempt
from gateway.auth.ports import Authenticator
from gateway.auth.scram import ScramCredential, ScramMechanism, ScramServer
from gateway.errors import Unauthenticated

_NONCE_BYTES: Final = 18


class LoginStep(NamedTuple):
    """Message for the client, and the user's name once it is known.

    ``expires_unix_ms``: when what the client has shown ends; None for a password.
    """

    data: bytes
    username: str | None = None
    expires_unix_ms: int | None = None


class ScramLogin:
    """SCRAM exchange (RFC 5802) against a user's stored credential."""

    def __init__(self, mechanism: ScramMechanism, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        self._credential: ScramCredential | None = None
        self._scram = ScramServer(mechanism, nonce=secrets.token_urlsafe(_NONCE_BYTES))

    async def receive(self, data: bytes, attempt: Attempt) -> LoginStep:
        """Take the client's next message. Errors: ``Unauthenticated``, ``Overloaded``.

        The last one is refused when the user was changed or removed since the first.
        """
        scram, authenticator = self._scram, self._authenticator
        if scram.username:
            await attempt.turn(scram.username)
            final = scram.final_message(data)
            now = await authenticator.scram_credential(scram.username, scram.mechanism)
            if now is not self._credential:
                msg = "the user was changed or removed meanwhile"
                raise Unauthenticated(msg)
            attempt.passed()
            return LoginStep(final, scram.username)
        username = scram.receive_first(data)
        self._credential = await authenticator.scram_credential(username, scram.mechanism)
        return LoginStep(scram.first_message(self._credential))
