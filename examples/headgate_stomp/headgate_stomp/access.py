"""Logins and permissions of one connection."""

import asyncio

from gateway.auth.certificates import certificate_user
from gateway.auth.login_throttle import Peer
from gateway.auth.ports import ANONYMOUS, Operation, Principal, ResourceType
from gateway.errors import Unauthenticated, Unauthorized
from gateway.kernel import Kernel
from headgate_stomp.config import StompConfig
from headgate_stomp.destinations import Destination, Kind

PROTOCOL = "stomp"


async def log_in(
    headers: dict[str, str],
    kernel: Kernel,
    config: StompConfig,
    transport: asyncio.Transport | None,
    host: str,
) -> Principal:
    """Return the user of a CONNECT: by login and passcode, or by the client's certificate.

    Where login is not required, names that belong to no user are ignored. Errors:
    ``Unauthenticated``, ``Overloaded``.
    """
    authenticator = kernel.authenticator
    login = headers.get("login", "")
    if not login and (user := certificate_user(transport, config)) is not None:
        return Principal(user, PROTOCOL, host)
    if not authenticator.required and not authenticator.is_known(login):
        return Principal(ANONYMOUS, PROTOCOL, host)
    if not login:
        msg = "CONNECT needs login and passcode"
        raise Unauthenticated(msg)
    async with kernel.logins.attempt(Peer(PROTOCOL, host)) as attempt:
        await attempt.turn(login)
        name = await authenticator.authenticate_plain(login, headers.get("passcode", ""))
        attempt.passed()
    return Principal(name, PROTOCOL, host)


class Access:
    """Permissions of a user; answers are kept until the rules change."""

    def __init__(self, kernel: Kernel, principal: Principal) -> None:
        self._authorizer = kernel.authorizer
        self._principal = principal
        self._revision = -1
        self._allowed: set[tuple[Operation, str]] = set()

    def check(self, operation: Operation, destination: Destination) -> None:
        """Check an operation; an exchange is guarded as a topic of its name.

        Answers for a reply queue are free: its name cannot be guessed. Error: ``Unauthorized``.
        """
        if destination.kind is Kind.REPLY_QUEUE:
            return
        if self._revision != self._authorizer.revision:
            self._revision = self._authorizer.revision
            self._allowed.clear()
        asked = operation, destination.name
        if asked in self._allowed:
            return
        if not self._authorizer.allows(
            self._principal, operation, ResourceType.TOPIC, destination.name
        ):
            msg = (
                f"{self._principal.name} may not {operation.value} "
                f"{destination.kind.value}{destination.name}"
            )
            raise Unauthorized(msg)
        if len(self._allowed) >= _ALLOWED_MAX:
            self._allowed.clear()
        self._allowed.add(asked)


_ALLOWED_MAX = 1_000
