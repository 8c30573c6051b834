"""Order by key: while messages of a key are in flight, nobody else gets what comes after them.

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
        """Messages of a key go out, in a flight that does not hold it yet."""
        self._holders.setdefault(key, []).append(holder)

    def unlock(self, key: bytes, holder: Holder) -> bool:
        """All of a flight have come back or are done; True when that was the last of its key."""
        holders = self._holders[key]
        holders.remove(holder)
        if holders:
            return False
        del self._holders[key]
        return True

    def clear(self) -> None:
        """Forget all locks."""
        self._holders.clear()
