"""Order by key: while messages of a key are in flight, nobody else gets more of it.

A lock is held by the messages themselves: it ends when the last of them is settled, given back,
or when its lease is over. So a lock cannot outlive what it is for, and nothing renews it.
"""


class KeyLocks:
    """How many messages of each key are in flight; a key with none is not kept.

    The caller bounds the messages, and so the keys.
    """

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def is_locked(self, key: bytes) -> bool:
        """Whether messages of the key are in flight."""
        return key in self._counts

    def lock(self, key: bytes, count: int) -> None:
        """Messages of a key go out."""
        self._counts[key] = self._counts.get(key, 0) + count

    def unlock(self, key: bytes, count: int) -> bool:
        """Messages of a key have come back or are done; True when those were the last."""
        left = self._counts[key] - count
        assert left >= 0, "more come back than went out"
        if left:
            self._counts[key] = left
            return False
        del self._counts[key]
        return True

    def clear(self) -> None:
        """Forget all locks."""
        self._counts.clear()
