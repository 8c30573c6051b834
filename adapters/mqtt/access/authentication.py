"""Authentication: by password, by certificate, or by enhanced authentication (SCRAM).

Where login is not required, every client is accepted. The name of a user still needs that user's
password, and a name that belongs to no user is ignored. A checked name is the client's principal,
and the value of ``%u``.
"""

from typing import Final

from adapters.mqtt.errors import MqttError, ReasonCode
from adapters.mqtt.wire import Connect
from gateway.auth.login_throttle import LoginThrottle, Peer
from gateway.auth.ports import Authenticator
from gateway.auth.scram import ScramMechanism
from gateway.auth.scram_login import LoginStep, ScramLogin
from gateway.errors import Unauthenticated, Unauthorized

_METHODS: Final = {mechanism.value: mechanism for mechanism in ScramMechanism}


class ScramExchange:
    """One exchange of AUTH packets (section 4.12); it is not begun anew after an error."""

    def __init__(
        self, method: str, authenticator: Authenticator, logins: LoginThrottle, peer: Peer
    ) -> None:
        """Error: 0x8C for a method that is not served (MQTT-4.12.0-1)."""
        mechanism = _METHODS.get(method)
        if mechanism is None:
            msg = f"authentication method {method[:80]!r}: there are {', '.join(_METHODS)}"
            raise MqttError(ReasonCode.BAD_AUTHENTICATION_METHOD, msg)
        self.method = method
        self._logins = logins
        self._peer = peer
        self._login = ScramLogin(mechanism, authenticator)

    async def receive(self, data: bytes) -> LoginStep:
        """Take the client's next message. Errors: ``Unauthenticated``."""
        async with self._logins.attempt(self._peer) as attempt:
            return await self._login.receive(data, attempt)


async def authenticate_password(
    connect: Connect, authenticator: Authenticator, logins: LoginThrottle, peer: Peer
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
    """Refuse anonymous clients where login is required. Error: ``Unauthorized``."""
    if authenticator.required:
        msg = "everybody must log in, and no user name was given"
        raise Unauthorized(msg)
