"""Authentication: by password or token, by certificate, or by enhanced authentication.

Where login is not required, every client is accepted. The name of a user still needs that user's
password, and a name that belongs to no user is ignored. A checked name is the client's principal,
and the value of ``%u``.
"""

from typing import Final

from adapters.mqtt.errors import MqttError, ReasonCode
from adapters.mqtt.wire import Connect
from gateway.auth.bearer_login import MECHANISM as OAUTHBEARER
from gateway.auth.bearer_login import BearerLogin, Tokens
from gateway.auth.login_throttle import LoginThrottle, Peer
from gateway.auth.ports import Authenticator
from gateway.auth.scram import ScramMechanism
from gateway.auth.scram_login import LoginStep, ScramLogin
from gateway.errors import Unauthenticated, Unauthorized

_DOTS: Final = 2  # of a token
_METHODS: Final = {mechanism.value: mechanism for mechanism in ScramMechanism}


class EnhancedExchange:
    """One exchange of AUTH packets (section 4.12); it is not begun anew after an error."""

    def __init__(
        self,
        method: str,
        authenticator: Authenticator,
        logins: LoginThrottle,
        peer: Peer,
        tokens: Tokens | None = None,
    ) -> None:
        """Error: 0x8C for a method that is not served (MQTT-4.12.0-1)."""
        self._login: ScramLogin | BearerLogin
        if method in _METHODS:
            self._login = ScramLogin(_METHODS[method], authenticator)
        elif method == OAUTHBEARER and tokens is not None:
            self._login = BearerLogin(tokens)
        else:
            methods = ", ".join(_METHODS if tokens is None else (*_METHODS, OAUTHBEARER))
            msg = f"authentication method {method[:80]!r}: there are {methods}"
            raise MqttError(ReasonCode.BAD_AUTHENTICATION_METHOD, msg)
        self.method = method
        self._logins = logins
        self._peer = peer

    async def receive(self, data: bytes) -> LoginStep:
        """Take the client's next message. Errors: ``Unauthenticated``."""
        async with self._logins.attempt(self._peer) as attempt:
            return await self._login.receive(data, attempt)


def has_token(connect: Connect) -> bool:
    """Return whether the password has the form of a token."""
    password = connect.password or b""
    return password.startswith(b"ey") and password.count(b".") == _DOTS


async def authenticate_token(
    connect: Connect, tokens: Tokens, logins: LoginThrottle, peer: Peer
) -> str:
    """Return the user's name, which the user name of CONNECT is, or an empty one.

    Errors: ``Unauthenticated``, ``Overloaded``.
    """
    async with logins.attempt(peer) as attempt:
        token = (connect.password or b"").decode(errors="replace")
        await attempt.turn(connect.username or tokens.claimed_user(token))
        user = await tokens.validate(token)
        if connect.username not in {None, "", user.name}:
            msg = "the token is another user's"
            raise Unauthenticated(msg)
        attempt.passed()
    return user.name


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
