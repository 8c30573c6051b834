"""Login by SASL: PLAIN, AMQPLAIN, EXTERNAL and ANONYMOUS.

Where login is not required every client is accepted: a name that belongs to no user is ignored, as
``guest`` is, and the name of a user needs that user's password.
"""

import asyncio
from typing import Final

from adapters.amqp.config import AmqpConfig
from adapters.amqp.v091.errors import AmqpFault, FrameFault, ReplyCode
from adapters.amqp.v091.fields import decode_table, encode_longstr
from gateway.auth.certificates import certificate_user
from gateway.auth.login_throttle import Peer
from gateway.auth.ports import ANONYMOUS
from gateway.errors import Unauthenticated
from gateway.kernel import Kernel

PLAIN: Final = "PLAIN"
AMQPLAIN: Final = "AMQPLAIN"
EXTERNAL: Final = "EXTERNAL"
ANONYMOUS_MECHANISM: Final = "ANONYMOUS"
MECHANISMS: Final = (PLAIN, AMQPLAIN, EXTERNAL, ANONYMOUS_MECHANISM)
RESPONSE_BYTES_MAX: Final = 8_192
_PLAIN_PARTS: Final = 3


def mechanisms_offered(config: AmqpConfig) -> list[str]:
    """Return the mechanisms for connection.start.

    Some clients take EXTERNAL wherever it is offered, so it is where certificates are asked for.
    """
    has_certificates = config.tls_client_ca is not None
    return [name for name in MECHANISMS if name != EXTERNAL or has_certificates]


class Login:
    """Login of one connection by one mechanism. Error: ``AmqpFault`` 503 for an unknown one."""

    def __init__(
        self,
        mechanism: str,
        config: AmqpConfig,
        kernel: Kernel,
        transport: asyncio.Transport | None,
        peer_host: str,
    ) -> None:
        if mechanism not in MECHANISMS:
            raise AmqpFault(
                ReplyCode.COMMAND_INVALID, f"unknown authentication mechanism '{mechanism}'"
            )
        self.mechanism = mechanism
        self._config = config
        self._kernel = kernel
        self._transport = transport
        self._peer = Peer("amqp", peer_host)
        self.user_name = ""
        """The name that the client has given, or that its certificate has."""

    async def receive(self, response: bytes) -> str:
        """Return the user's name. Errors: ``Unauthenticated``, ``Overloaded``."""
        if len(response) > RESPONSE_BYTES_MAX:
            raise Unauthenticated(f"a response of {len(response)} bytes")
        if self.mechanism == EXTERNAL:
            return self._external()
        if self.mechanism == ANONYMOUS_MECHANISM:
            return self._anonymous()
        parse = parse_plain if self.mechanism == PLAIN else parse_amqplain
        return await self.check(*parse(response))

    async def check(self, username: str, password: str) -> str:
        """Return the user's name if the password is right."""
        self.user_name = username
        kernel = self._kernel
        authenticator = kernel.authenticator
        if not authenticator.required and not authenticator.is_known(username):
            return ANONYMOUS
        async with kernel.logins.attempt(self._peer) as attempt:
            await attempt.turn(username)
            name = await authenticator.authenticate_plain(username, password)
            attempt.passed()
        return name

    def _external(self) -> str:
        name = certificate_user(self._transport, self._config)
        if name is None:
            raise Unauthenticated("EXTERNAL without a client certificate")
        return name

    def _anonymous(self) -> str:
        if self._kernel.authenticator.required:
            raise Unauthenticated("everybody must log in")
        return ANONYMOUS


def parse_plain(response: bytes) -> tuple[str, str]:
    r"""Return user name and password; the first part is ignored, as RabbitMQ ignores it.

    Error: ``Unauthenticated``.

    >>> parse_plain(b"\0guest\0secret")
    ('guest', 'secret')
    """
    parts = response.split(b"\0")
    if len(parts) != _PLAIN_PARTS:
        raise Unauthenticated("a PLAIN response is not authzid, user name and password")
    return _text(parts[1]), _text(parts[2])


def parse_amqplain(response: bytes) -> tuple[str, str]:
    """Return user name and password of a table without its length. Error: ``Unauthenticated``."""
    try:
        table, _ = decode_table(encode_longstr(response))
    except FrameFault as error:
        raise Unauthenticated("an AMQPLAIN response is no table") from error
    login, password = table.value("LOGIN"), table.value("PASSWORD")
    if not isinstance(login, str) or not isinstance(password, str):
        raise Unauthenticated("an AMQPLAIN response has no LOGIN and PASSWORD")
    return login, password


def _text(part: bytes) -> str:
    try:
        return part.decode()
    except UnicodeDecodeError as error:
        raise Unauthenticated("user name or password is not UTF-8") from error
