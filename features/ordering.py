"""Order by key: while messages of a key are in flight, later ones of the key are not delivered.

A lock is held by the flights of messages themselves: it ends when the last of them is settled,
given back, or when its lease is over. So a lock cannot outlive what it is for, and nothing renews
it.
"""

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

Holder = TypeVar("Holder")
_NOBODY: Final = ()


class KeyLocks(Generic[Holder]):
    """Flights that hold each key; keys without a flight are not kept.

    The caller bounds the number of flights, and so of keys. One key has few flights.
    """

    __slots__ = ("_holders",)

    def __init__(self) -> None:
        self._holders: dict[bytes, list[Holder]] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def is_locked(self, key: bytes) -> bool:
        """Whether messages of the key are in flight."""
        return key in self._holders

    def holders(self, key: bytes) -> Sequence[Holder]:
        """Return the flights that hold a key."""
        return self._holders.get(key, _NOBODY)

    def lock(self, key: bytes, holder: Holder) -> None:
        """Lock a key by a flight that does not hold it yet."""
        self._holders.setdefault(key, []).append(holder)

    def unlock(self, key: bytes, holder: Holder) -> bool:
        """Unlock a key by a flight; return True when it was the key's last."""
        holders = self._holders[key]
        holders.remove(holder)
        if holders:
            return False
        del self._holders[key]
        return True

    def clear(self) -> None:
        """Forget all locks."""
        self._holders.clear()
