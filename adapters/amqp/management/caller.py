"""Callers of the HTTP API: login by HTTP Basic, tags, and what each tag opens.

Where login is not required, a name that belongs to no user is taken, as AMQP does, and may do
everything. Such a node is told from a web page's server by the name it is called by.
"""

import base64
import binascii
from enum import Enum
from typing import Final, NamedTuple

from starlette.requests import Request

from adapters.amqp.management.errors import not_authorised
from adapters.amqp.node import AmqpNode
from adapters.amqp.user_tags import ADMINISTRATOR, MANAGEMENT, MONITORING, POLICYMAKER
from gateway.auth.login_throttle import Peer
from gateway.auth.ports import ANONYMOUS, Principal
from gateway.errors import Unauthenticated
from gateway.http_origin import is_foreign_origin, is_known_host

PROTOCOL: Final = "amqp"


class Need(Enum):
    """Tags of which a call needs one; its value is RabbitMQ's text for callers without."""

    MANAGEMENT = "Not management user"
    MONITORING = "Not monitor user"
    POLICIES = "Not policymaker user"
    ADMINISTRATOR = "Not administrator user"


_TAGS: Final = {
    Need.MANAGEMENT: frozenset({MANAGEMENT, MONITORING, POLICYMAKER, ADMINISTRATOR}),
    Need.MONITORING: frozenset({MONITORING, ADMINISTRATOR}),
    Need.POLICIES: frozenset({POLICYMAKER, ADMINISTRATOR}),
    Need.ADMINISTRATOR: frozenset({ADMINISTRATOR}),
}


class Caller(NamedTuple):
    """Caller of one request. ``user_name`` is as it was given, also where no login is required."""

    principal: Principal
    user_name: str
    tags: frozenset[str]

    def has(self, need: Need) -> bool:
        """Say whether a tag opens what a call needs."""
        return not self.tags.isdisjoint(_TAGS[need])


async def log_in(node: AmqpNode, request: Request) -> Caller:
    """Return the caller. Errors: ``ApiFault`` 401, ``Overloaded``."""
    host = request.client.host if request.client else ""
    user_name, password = _credentials(request.headers.get("authorization", ""))
    kernel = node.kernel
    authenticator = kernel.authenticator
    if not authenticator.required and not authenticator.is_known(user_name):
        _check_origin(node, request)
        tags = frozenset({ADMINISTRATOR})
        return Caller(Principal(ANONYMOUS, PROTOCOL, host), user_name, tags)
    try:
        async with kernel.logins.attempt(Peer(PROTOCOL, host)) as attempt:
            await attempt.turn(user_name)
            name = await authenticator.authenticate_plain(user_name, password)
            attempt.passed()
    except Unauthenticated as error:
        raise not_authorised("Login failed") from error
    caller = Caller(Principal(name, PROTOCOL, host), name, node.tags.of(name, host))
    if not caller.has(Need.MANAGEMENT):
        raise not_authorised(Need.MANAGEMENT.value)
    return caller


def _credentials(header: str) -> tuple[str, str]:
    scheme, _, text = header.partition(" ")
    if scheme.lower() != "basic":
        raise not_authorised("Login failed")
    try:
        name, colon, password = base64.b64decode(text, validate=True).decode().partition(":")
    except (binascii.Error, ValueError) as error:
        raise not_authorised("Login failed") from error
    if not colon:
        raise not_authorised("Login failed")
    return name, password


def _check_origin(node: AmqpNode, request: Request) -> None:
    """Refuse what a web page of another host has sent, where nobody has to log in."""
    config = node.config.management
    hosts = () if config is None else config.hosts
    called = request.headers.get("host")
    if not is_known_host(called, hosts) or is_foreign_origin(
        request.headers.get("origin"), called
    ):
        raise not_authorised("Login failed")
