"""Positions that a run of a job expects in its table."""

from collections.abc import Callable, Iterable, Mapping


class ExpectedPositions:
    """Positions of partitions, by name, as this run has read or written them.

    A table with another position was written by another run of the same job id. ``read`` returns
    the position of the table as last loaded, None without one.
    """

    def __init__(self, read: Callable[[str], int | None]) -> None:
        self._read = read
        self._positions: dict[str, int | None] = {}

    def read(self, name: str) -> int | None:
        """Return the table's position, which is the expected one from now on."""
        self._positions[name] = position = self._read(name)
        return position

    def add_missing(self, names: Iterable[str]) -> None:
        """Expect the table's positions under names that have no expected one yet."""
        for name in names:
            if name not in self._positions:
                self.read(name)

    def differ(self, names: Iterable[str]) -> bool:
        """Return whether the table has another position than the expected one, if any."""
        return any(
            name in self._positions and self._read(name) != self._positions[name]
            for name in names
        )

    def move(self, moved: Mapping[str, int]) -> None:
        """Expect positions that this run has written."""
        self._positions.update(moved)
