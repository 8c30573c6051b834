"""Snapshot of a lake table for readers: its files and positions."""

from collections.abc import Callable
from typing import NamedTuple

from gateway.model import PartitionIdentity

Position = Callable[[PartitionIdentity], int | None]


class TableFile(NamedTuple):
    """A file of a table. ``path`` is below the table. ``topic`` empty: it is a column."""

    path: str
    topic: str


class LakeTable(NamedTuple):
    """Snapshot of a table. ``position``: the next offset to archive, None before the first."""

    url: str
    files: list[TableFile]
    position: Position
