"""Feed of metadata changes: what memory has not seen of the store is reloaded, by kind and key."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from gateway.metadata.change_model import ChangeKind, ChangesSince

KEYS_MAX: Final = 500  # changed since the last reload; above it all rows of the kind are read

Reload = Callable[[frozenset[str] | None], Awaitable[None]]
"""Reads the rows of these keys, or all for None, and makes memory equal to them.

It runs in the turn of the manager's own changes. Error: ``StorageUnavailable``.
"""


class ChangeFeed:
    """See the module. Loop only."""

    def __init__(self, changes_since: Callable[[int], Awaitable[ChangesSince]]) -> None:
        """``changes_since``: that of ``MetadataStore``."""
        self.seen = 0
        """Revision up to which memory has what is stored."""
        self.written = 0
        """Revision of this node's last write; 0 before the first."""
        self._changes_since = changes_since
        self._reloads: dict[ChangeKind, list[Reload]] = {kind: [] for kind in ChangeKind}
        self._turn = asyncio.Lock()
        self.wait_for_nodes: Callable[[int], Awaitable[None]] | None = None
        """Waits until the live nodes have seen a revision; None on a single node."""

    def register(self, kind: ChangeKind, reload: Reload) -> None:
        """Add memory that follows the store; it has loaded all rows of the kind."""
        self._reloads[kind].append(reload)

    async def catch_up(self) -> None:
        """Reload what has changed up to now. Errors: ``StorageUnavailable``, ``Overloaded``."""
        async with self._turn:
            found = await self._changes_since(self.seen)
            for kind, reloads in self._reloads.items():
                if found.keys is None or kind.value in found.keys:
                    for reload in reloads:
                        await reload(_keys_of(found, kind))
            self.seen = found.revision

    async def settled(self, revision: int) -> None:
        """Return when the live nodes have a change of this node, or after a bounded wait."""
        if self.wait_for_nodes is not None:
            await self.wait_for_nodes(revision)


def _keys_of(found: ChangesSince, kind: ChangeKind) -> frozenset[str] | None:
    if found.keys is None:
        return None
    keys = found.keys[kind.value]
    return None if len(keys) > KEYS_MAX or "" in keys else keys
