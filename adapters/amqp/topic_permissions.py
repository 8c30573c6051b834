"""Permissions for routing keys of topic exchanges: of a user, in a vhost, for an exchange.

Where a user has none for an exchange, all routing keys are allowed. ``{username}`` and ``{vhost}``
in an expression stand for the user's own. https://www.rabbitmq.com/docs/access-control
"""

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from adapters.amqp.rule_types import matches
from gateway.metadata.documents import Documents

TOPIC_PERMISSION: Final = "amqp.topic_permission"  # kind of documents


class TopicPermission(NamedTuple):
    """Expressions for the routing keys that a user may write and read at an exchange."""

    user: str
    vhost: str
    exchange: str
    write: str
    read: str


class TopicPermissions:
    """All of them; a document for each user and vhost. Loop only.

    ``on_change`` is called after a change, so that answers that were kept are dropped.
    """

    def __init__(self, documents: Documents, on_change: Callable[[], None]) -> None:
        self._documents = documents
        self._on_change = on_change

    def rows(self) -> list[TopicPermission]:
        """Return all of them, sorted by vhost, user and exchange."""
        return [
            TopicPermission(key.name, key.namespace, exchange, one["write"], one["read"])
            for key, exchanges in sorted(self._documents.of_kind(TOPIC_PERMISSION).items())
            for exchange, one in sorted(exchanges.items())
        ]

    def allows(self, user: str, vhost: str, exchange: str, field: str, key: str) -> bool:
        """Say whether a user may ``write`` or ``read`` a routing key at a topic exchange."""
        found = self._of(user, vhost).get(exchange)
        if found is None:
            return True
        # Names are quoted, or a user's name would be part of the expression.
        expression = str(found[field]).replace("{username}", re.escape(user))
        return matches(expression.replace("{vhost}", re.escape(vhost)), key)

    async def put(self, row: TopicPermission) -> bool:
        """Set a permission; say whether it is the first of the user in the vhost."""
        value = {**self._of(row.user, row.vhost)}
        value[row.exchange] = {"write": row.write, "read": row.read}
        is_new = await self._documents.put(TOPIC_PERMISSION, row.vhost, row.user, value)
        self._on_change()
        return is_new

    async def clear(self, user: str, vhost: str) -> bool:
        """Remove the permissions of a user in a vhost; say whether there were any."""
        removed = await self._documents.delete(TOPIC_PERMISSION, vhost, user)
        self._on_change()
        return removed

    def _of(self, user: str, vhost: str) -> dict[str, Any]:
        found: dict[str, Any] = self._documents.find(TOPIC_PERMISSION, vhost, user) or {}
        return found
