"""Roles of the console's users, and the role that each REST call needs.

The token of the data directory may call everything. A browser's session may call what its role
allows; a path that is not listed here needs the administrator's role.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from gateway.auth.ports import (
    CLUSTER,
    Authenticator,
    Authorizer,
    Operation,
    Principal,
    ResourceType,
)


class Role(IntEnum):
    """Role of a session; a higher one may do all that a lower one may."""

    NONE = 0
    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3

    @property
    def title(self) -> str:
        """The role's name in small letters."""
        return self.name.lower()


class Caller(NamedTuple):
    """Caller of the REST interface: its principal and its role."""

    principal: Principal
    role: Role


PROTOCOL: Final = "console"
"""Protocol of console users, for rules and audit lines."""
_NEEDED: Final[Mapping[Role, Operation]] = {
    Role.OPERATOR: Operation.ALTER,
    Role.VIEWER: Operation.DESCRIBE,
}
_SAFE: Final = frozenset({"GET", "HEAD"})
_OPERATED: Final = frozenset({"adapters", "dlq", "exchanges", "groups", "queues", "topics"})
_VIEWED: Final = frozenset({"clients", "live", "node", "overview", "report", *_OPERATED})
_SEARCHES: Final = {"topics": frozenset({"find", "follow"}), "exchanges": frozenset({"route"})}
"""Last parts of paths of POST requests that only read."""
_NEVER: Final = frozenset({"backup"})
"""Calls that write files to a path of the caller's choice: for the token only."""


def role_of(user: str, host: str, users: Authenticator, rules: Authorizer) -> Role:
    """Return a user's role: an administrator, or what the rules for the cluster allow.

    ``alter`` makes an operator, ``describe`` a viewer.
    """
    if users.is_super_user(user):
        return Role.ADMIN
    principal = Principal(user, PROTOCOL, host)
    for role, operation in _NEEDED.items():
        if rules.allows(principal, operation, ResourceType.CLUSTER, CLUSTER):
            return role
    return Role.NONE


def needed_role(method: str, path: str) -> Role | None:
    """Return the role that a call below ``/v1/`` needs; None: no session may make it.

    >>> needed_role("GET", "topics/orders").title, needed_role("DELETE", "topics/orders").title
    ('viewer', 'operator')
    >>> needed_role("POST", "topics/orders/find").title, needed_role("GET", "users").title
    ('viewer', 'admin')
    >>> needed_role("POST", "exchanges/events/route").title
    'viewer'
    """
    first, *others = path.split("/")
    if first in _NEVER:
        return None
    if method in _SAFE:
        return Role.VIEWER if first in _VIEWED else Role.ADMIN
    if method == "POST" and others[1:] and others[-1] in _SEARCHES.get(first, ()):
        return Role.VIEWER
    return Role.OPERATOR if first in _OPERATED else Role.ADMIN
