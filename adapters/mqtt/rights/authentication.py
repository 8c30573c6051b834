"""Who a client is: by password, by its certificate, or by enhanced authentication (SCRAM).

Where login is not required anybody is let in: a user's name needs its password all the same, and
a name that is no user's counts for nothing. A name that was checked is the principal's, and what
``%u`` stands for.
"""

import secrets
from typing import Final, NamedTuple

from adapters.mqtt.errors import MqttError, ReasonCode
from adapters.mqtt.wire import Connect
from gateway.auth.logins import Attempt, Logins, Peer
from gateway.auth.ports import Authenticator
from gateway.auth.scram import ScramCredential, ScramMechanism, ScramServer
from gateway.errors import Unauthenticated, Unauthorized

_NONCE_BYTES: Final = 18
_METHODS: Final = {mechanism.value: mechanism for mechanism in ScramMechanism}


class Step(NamedTuple):
    """What to send to the client, and who it is once that is known."""

    data: bytes
    username: str | None = None


class ScramExchange:
    """One exchange of AUTH packets (section 4.12); it is not begun anew after an error."""

    def __init__(
        self, method: str, authenticator: Authenticator, logins: Logins, peer: Peer
    ) -> None:
        """Error: 0x8C for a method that is not served (MQTT-4.12.0-1)."""
        mechanism = _METHODS.get(method)
        if mechanism is None:
            msg = f"authentication method {method[:80]!r}: there are {', '.join(_METHODS)}"
            raise MqttError(ReasonCode.BAD_AUTHENTICATION_METHOD, msg)
        self.method = method
        self._credential: ScramCredential | None = None
        self._authenticator = authenticator
        self._logins = logins
        self._peer = peer
        self._scram = ScramServer(mechanism, nonce=secrets.token_urlsafe(_NONCE_BYTES))

    async def receive(self, data: bytes) -> Step:
        """Take the client's next message. Errors: ``Unauthenticated``."""
        async with self._logins.attempt(self._peer) as attempt:
            return await self._receive(data, attempt)

    async def _receive(self, data: bytes, attempt: Attempt) -> Step:
        scram, authenticator = self._scram, self._authenticator
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


async def authenticate_password(
    connect: Connect, authenticator: Authenticator, logins: Logins, peer: Peer
) -> str:
    """Return the user's name. Errors: ``Unauthenticated``, ``Overloaded``."""
    assert connect.username is not None
    async with logins.attempt(peer) as attempt:
        await attempt.turn(connect.username)
        try:
            password = (connect.password or b"").decode()
        except UnicodeDecodeError as error:
            msg = "a password is not UTF-8"
            raise Unauthenticated(msg) from error
        name = await authenticator.authenticate_plain(connect.username, password)
        attempt.passed()
    return name


def check_anonymous(authenticator: Authenticator) -> None:
    """Let nobody in unnamed where login is required. Error: ``Unauthorized``."""
    if authenticator.required:
        msg = "everybody must log in, and no user name was given"
        raise Unauthorized(msg)
