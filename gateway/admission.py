"""What all listeners of a node share: room for connections beside files."""

from typing import Final

from gateway import descriptors
from gateway.config.settings import ListenersConfig

_RESERVE_SHARE: Final = 2  # with few descriptors the reserve is this part of them, and no more


class Admission:
    """Counts of all listeners. ``connections_max``: what descriptors allow in all."""

    def __init__(self, config: ListenersConfig | None = None) -> None:
        self.config = config = config or ListenersConfig()
        self.descriptors_max = descriptors.limit()
        reserve = min(config.descriptors_reserve, self.descriptors_max // _RESERVE_SHARE)
        self.connections_max = self.descriptors_max - reserve
        self.connections_count = 0

    def enter(self) -> bool:
        """Count one more connection; False when descriptors would not suffice."""
        if self.connections_count >= self.connections_max:
            return False
        self.connections_count += 1
        return True

    def leave(self) -> None:
        """Count one connection less."""
        self.connections_count -= 1
