"""Login policy: whether login is required, and the super users. Stored as metadata.

Login is required from the moment when the config says so (``auth.required``) or the first user
is added by an administrator's means, until the config says otherwise: removing users or keys
changes nothing.
"""

from collections.abc import Collection
from typing import NamedTuple, Self

from gateway.config.settings import Settings
from gateway.metadata.store import MetadataStore


class FirstUser(NamedTuple):
    """Effects of adding a first user: it becomes administrator, and login is required."""

    is_administrator: bool
    requires_login: bool


class LoginPolicy:
    """Login policy, answered from memory. Loop only.

    ``required`` is the config's ``auth.required``; None: what is stored holds. ``super_users``:
    those of the config, beside the administrators that are stored.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        *,
        required: bool | None = None,
        super_users: Collection[str] = (),
    ) -> None:
        self.required = bool(required)
        self.administrators: frozenset[str] = frozenset()
        self._metadata = metadata
        self._configured = required
        self._super_users = frozenset(super_users)

    @classmethod
    def of(cls, metadata: MetadataStore, settings: Settings) -> Self:
        """Return the policy of a node's settings: login is required where users are declared."""
        required = settings.auth.required
        if required is None and settings.users:
            required = True
        return cls(metadata, required=required, super_users=settings.auth.super_users)

    async def load(self) -> None:
        """Load the stored policy and store the config's; once, before any other call."""
        stored = await self._metadata.access_settings()
        self.administrators = stored.administrators
        if self._configured is None:
            self.required = stored.required
        elif self._configured is not stored.required:
            await self._metadata.set_required(required=self._configured)

    async def reload(self) -> tuple[bool, bool]:
        """Take what other nodes have stored. Error: ``StorageUnavailable``.

        Return whether anything has changed, and whether login is required from now on.
        """
        stored = await self._metadata.access_settings()
        begins = self._configured is None and stored.required and not self.required
        is_changed = begins or stored.administrators != self.administrators
        self.administrators = stored.administrators
        self.required = self.required or begins
        return is_changed, begins

    def name_super_users(self, names: Collection[str]) -> None:
        """Replace the super users of the config."""
        self._super_users = frozenset(names)

    def is_super_user(self, name: str) -> bool:
        """Say whether a user may do everything, whatever rules say."""
        return name in self._super_users or name in self.administrators

    def of_new_user(self, *, has_users: bool) -> FirstUser:
        """Return the consequences of adding a user by an administrator's means.

        The first one administers, unless the config names super users, and login is required
        from then on, unless the config says otherwise.
        """
        is_first = not has_users or not self.required
        return FirstUser(
            is_first and not (self._super_users or self.administrators),
            self._configured is None and not self.required,
        )

    def adopt(self, name: str, *, administers: bool | None, requires_login: bool) -> None:
        """Apply a stored change of a user; ``administers`` None leaves it as it was."""
        if administers is not None:
            others = self.administrators - {name}
            self.administrators = others | {name} if administers else others
        self.required = self.required or requires_login
