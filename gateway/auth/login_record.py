"""The record beside the log that everybody must log in.

``headgate recover-metadata`` reads it when the metadata store is lost, so that a node with users
is not open to everybody after the recovery.
"""

from typing import TypeGuard

import structlog

from gateway.auth.users import StoredUsers
from gateway.errors import StorageUnavailable
from gateway.storage import LoginStorage, StorageAdapter

_log = structlog.get_logger()


def _keeps_login(storage: StorageAdapter) -> TypeGuard[LoginStorage]:
    return hasattr(storage, "keep_login_required")


class LoginRecord:
    """Writes the record when it has changed. Loop only."""

    def __init__(self, storage: StorageAdapter, users: StoredUsers) -> None:
        self._storage = storage
        self._users = users
        self._written: bool | None = None

    async def start(self) -> None:
        """Write what holds now, and from now on before a change of users is answered."""
        await self._write()
        self._users.after_change.append(self._write)

    async def _write(self) -> None:
        """Write what has changed; where that fails, with the next change or start."""
        required = self._users.required
        if required is self._written or not _keeps_login(self._storage):
            return
        try:
            await self._storage.keep_login_required(required=required)
        except StorageUnavailable as error:
            _log.warning("no record beside the log that login is required", error=str(error))
        else:
            self._written = required
