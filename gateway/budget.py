"""Octets that many share for one purpose."""

from collections.abc import Callable


class Budget:
    """Octets that all connections share for one purpose; who finds no room waits in order."""

    def __init__(self, name: str, bytes_max: int) -> None:
        self.name = name
        self.bytes_max = bytes_max
        self.bytes_taken = 0
        self._waiting: dict[Callable[[], None], None] = {}
        self._is_waking = False

    @property
    def free_bytes(self) -> int:
        """What may still be taken; 0 or less: wait."""
        return self.bytes_max - self.bytes_taken

    @property
    def waiting_count(self) -> int:
        """How many wait for room."""
        return len(self._waiting)

    def has_room(self, size_bytes: int) -> bool:
        """Say whether so much fits; alone, one may be larger than the whole budget."""
        return size_bytes <= self.free_bytes or self.bytes_taken <= 0

    def take(self, size_bytes: int) -> None:
        """Count octets. One may exceed the budget, by what can be had in one piece only."""
        self.bytes_taken += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Octets are free again: those who wait try again, each once, while there is room.

        What they give back in turn is seen here, and not by calls within calls.
        """
        self.bytes_taken -= size_bytes
        if self._is_waking or not size_bytes:
            return
        self._is_waking = True
        try:
            for _ in range(len(self._waiting)):
                if self.free_bytes <= 0 or not self._waiting:
                    return
                retry = next(iter(self._waiting))
                del self._waiting[retry]
                retry()
        finally:
            self._is_waking = False

    def wait(self, retry: Callable[[], None]) -> None:
        """Call ``retry``, which must not raise, once there is room; waiting twice is once."""
        self._waiting[retry] = None

    def leave(self, retry: Callable[[], None]) -> None:
        """Wait no more."""
        self._waiting.pop(retry, None)
