"""Callers of the HTTP API: login by HTTP Basic, tags, and what each tag opens.

Where login is not required, a name that belongs to no user is taken, as AMQP does, and may do what
the rules let anybody do. Such a node is told from a web page's server by the name it is called by.
A browser sends a password that it remembers with what any page sends, so pages of other hosts are
refused in any case.
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
from gateway.auth.ports import ANONYMOUS, CLUSTER, Operation, Principal, ResourceType
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
    if is_foreign_origin(request.headers.get("origin"), request.headers.get("host")):
        raise not_authorised("Login failed")
    user_name, password = _credentials(request.headers.get("authorization", ""))
    kernel = node.kernel
    authenticator = kernel.authenticator
    if not authenticator.required and not authenticator.is_known(user_name):
        _check_host(node, request)
        principal = Principal(ANONYMOUS, PROTOCOL, host)
        return Caller(principal, user_name, tags_of_anybody(node, principal))
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


def tags_of_anybody(node: AmqpNode, principal: Principal) -> frozenset[str]:
    """Return the tags of callers without a login: all, unless a rule for the cluster denies it."""
    allows = node.kernel.authorizer.allows
    if allows(principal, Operation.ALTER, ResourceType.CLUSTER, CLUSTER):
        return frozenset({ADMINISTRATOR})
    is_seen = allows(principal, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER)
    return frozenset({MONITORING if is_seen else MANAGEMENT})


def _check_host(node: AmqpNode, request: Request) -> None:
    """Refuse what was sent to a name that was made to point here, where nobody has to log in."""
    config = node.config.management
    hosts = () if config is None else config.hosts
    if not is_known_host(request.headers.get("host"), hosts):
        raise not_authorised("Login failed")
