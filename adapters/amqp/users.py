"""Users as RabbitMQ's tools see them: the gateway's users, with their tags and permissions.

The tag ``administrator`` makes a user one of the gateway. A password that is given becomes SCRAM
credentials, so that it works with every protocol; a hash of RabbitMQ is kept as it is. What is
shown of SCRAM credentials is no hash of RabbitMQ's, and its algorithm's name says so.
"""

from typing import Any, Final, NamedTuple

from adapters.amqp.user_tags import ADMINISTRATOR, UserTags
from adapters.amqp.vhost_permissions import VhostPermissions
from gateway.auth.password_hashes import (
    Credential,
    HashingAlgorithm,
    PasswordHash,
    parse_password_hash,
)
from gateway.auth.users import StoredUsers
from gateway.auth.verifiers import format_verifier, parse_verifier
from gateway.errors import InvalidRequest
from gateway.kernel import Kernel

SCRAM_ALGORITHM: Final = "headgate_scram"
DEFAULT_ALGORITHM: Final = HashingAlgorithm.SHA_256.value


class Password(NamedTuple):
    """Password of a user: text, or a hash of it."""

    text: str
    is_hash: bool = False
    algorithm: str = ""


class AmqpUsers:
    """Users of the node. Loop only."""

    def __init__(self, kernel: Kernel, tags: UserTags, permissions: VhostPermissions) -> None:
        self._kernel = kernel
        self._tags = tags
        self._permissions = permissions

    def names(self) -> list[str]:
        """Return the names of all users, sorted."""
        authenticator = self._kernel.authenticator
        return authenticator.names() if isinstance(authenticator, StoredUsers) else []

    def view(self, name: str) -> dict[str, Any]:
        """Return a user as JSON."""
        text, algorithm = "", DEFAULT_ALGORITHM
        credentials = self._store().stored(name)
        if credentials and isinstance(credentials[0], PasswordHash):
            text, algorithm = credentials[0].text, credentials[0].algorithm.value
        elif credentials:
            text = ",".join(map(format_verifier, credentials))
            algorithm = SCRAM_ALGORITHM
        return {
            "name": name,
            "password_hash": text,
            "hashing_algorithm": algorithm,
            "tags": self._tags.stored(name),
            "limits": self._tags.limits(name),
        }

    async def put(self, name: str, password: Password, tags: list[str]) -> None:
        """Add a user, or change one.

        Login is required from the first user on, who has to be an administrator, or nobody could
        log in to change anything. Errors: ``InvalidRequest``, ``PolicyViolation`` for a user of
        the config file, ``Overloaded``, ``StorageUnavailable``.
        """
        store = self._store()
        administers = ADMINISTRATOR in tags
        first = store.policy.of_new_user(has_users=bool(store.names()))
        if first.is_administrator and not administers:
            raise InvalidRequest(
                "login is required from the first user on, who needs the tag administrator"
            )
        credentials: list[Credential]
        if not password.is_hash:
            credentials = [*await store.derive(name, password.text)]
        elif password.algorithm == SCRAM_ALGORITHM:
            credentials = [parse_verifier(text) for text in password.text.split(",")]
        else:
            algorithm = password.algorithm or DEFAULT_ALGORITHM
            credentials = [parse_password_hash(password.text, algorithm)]
        await store.restore_user(name, credentials, administers=administers)
        await self._tags.put(name, [tag for tag in tags if tag != ADMINISTRATOR])

    async def remove(self, name: str) -> None:
        """Remove a user with tags and permissions. Errors: as ``put``."""
        await self._store().remove_user(name)
        for row in self._permissions.rows():
            if row.user == name:
                await self._permissions.clear(name, row.vhost)
        await self._tags.forget(name)

    def _store(self) -> StoredUsers:
        authenticator = self._kernel.authenticator
        if not isinstance(authenticator, StoredUsers):
            msg = "this node's users are kept elsewhere"
            raise InvalidRequest(msg)
        return authenticator
