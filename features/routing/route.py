"""Results of routing: the queues that a message goes to, and where it waits."""

from collections.abc import Iterator
from typing import NamedTuple


class TargetSet:
    """Set of queue names. Equal sets are one object while anybody holds it."""

    __slots__ = ("__weakref__", "names")

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        """The names, sorted."""

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __repr__(self) -> str:
        return f"<TargetSet {' '.join(self.names)}>"


class Route(NamedTuple):
    """Result of routing a message.

    ``targets``: the queues that get it. ``delayed``: names of delayed exchanges at which it waits
    for ``delay_ms``. ``remembered``: names of recent-history exchanges that it came by.
    """

    targets: TargetSet
    delayed: tuple[str, ...] = ()
    delay_ms: int = 0
    remembered: tuple[str, ...] = ()
