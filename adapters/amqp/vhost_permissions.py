"""Permissions of users in vhosts: the rules of ``rule_types``, a row for each user and vhost."""

from typing import Final, NamedTuple

from adapters.amqp.rule_types import (
    PERMISSION,
    REGEX,
    permission_name,
    split_permission,
)
from gateway.auth.ports import Operation, Principal, Rule
from gateway.auth.rules import RuleBook
from gateway.errors import InvalidRequest
from gateway.kernel import Kernel

_FIELDS: Final = {
    "configure": Operation.CREATE,
    "write": Operation.WRITE,
    "read": Operation.READ,
}


class VhostPermission(NamedTuple):
    """Expressions for the names that a user may configure, write and read in a vhost."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str


class VhostPermissions:
    """All permissions, from the stored rules. Loop only."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._revision = -1
        self._rows: dict[tuple[str, str], VhostPermission] = {}
        self._vhosts: dict[str, set[str]] = {}

    def rows(self) -> list[VhostPermission]:
        """Return all permissions, sorted by vhost and user."""
        self._renew()
        return sorted(self._rows.values(), key=lambda row: (row.vhost, row.user))

    def find(self, user: str, vhost: str) -> VhostPermission | None:
        """Return the permission of a user in a vhost."""
        self._renew()
        return self._rows.get((user, vhost))

    def may_open(self, principal: Principal, vhost: str) -> bool:
        """Say whether a user may open a vhost.

        A user with permissions in some vhosts may open these; one without any is a matter of
        other rules, for topics.
        """
        authorizer = self._kernel.authorizer
        if not self._kernel.authenticator.required or authorizer.is_super_user(principal):
            return True
        self._renew()
        vhosts = self._vhosts.get(principal.name)
        return vhosts is None or vhost in vhosts

    async def put(self, row: VhostPermission) -> bool:
        """Set the permission of a user in a vhost; say whether it is new.

        Errors: ``InvalidRequest``, ``Overloaded``, ``StorageUnavailable``.
        """
        book = self._book()
        known = self.find(row.user, row.vhost)
        rules = _rules_of(row)
        await book.add_rules(rules)
        if known is not None:
            await book.delete_rules([one for one in _rules_of(known) if one not in rules])
        return known is None

    async def clear(self, user: str, vhost: str) -> bool:
        """Remove the permission of a user in a vhost; say whether there was one."""
        known = self.find(user, vhost)
        if known is not None:
            await self._book().delete_rules(_rules_of(known))
        return known is not None

    def _book(self) -> RuleBook:
        authorizer = self._kernel.authorizer
        if not isinstance(authorizer, RuleBook):
            msg = "this node's rules are kept elsewhere"
            raise InvalidRequest(msg)
        return authorizer

    def _renew(self) -> None:
        authorizer = self._kernel.authorizer
        if self._revision == authorizer.revision:
            return
        self._revision = authorizer.revision
        stored = authorizer.stored_rules() if isinstance(authorizer, RuleBook) else ()
        words: dict[tuple[str, str], dict[str, str]] = {}
        for rule in stored:
            if rule.resource_type == PERMISSION and rule.allow:
                vhost, expression = split_permission(rule.pattern)
                fields = words.setdefault((rule.principal, vhost), {})
                for field, operation in _FIELDS.items():
                    if rule.operation in {operation, Operation.ALL}:
                        fields[field] = expression
        self._rows = {
            (user, vhost): VhostPermission(
                user, vhost, *(fields.get(field, "") for field in _FIELDS)
            )
            for (user, vhost), fields in words.items()
        }
        self._vhosts = {}
        for user, vhost in self._rows:
            self._vhosts.setdefault(user, set()).add(vhost)


def _rules_of(row: VhostPermission) -> list[Rule]:
    return [
        Rule(
            row.user,
            operation,
            PERMISSION,
            REGEX,
            permission_name(row.vhost, getattr(row, name)),
        )
        for name, operation in _FIELDS.items()
    ]
