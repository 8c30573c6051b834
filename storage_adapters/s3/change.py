"""Changes of the index that one transaction makes as a whole."""

from typing import NamedTuple

from storage_adapters.s3.state import Extent, StoredObject


class ObjectPart(NamedTuple):
    """One partition's extent in an object."""

    partition_id: int
    extent: Extent


class NewObject(NamedTuple):
    """An object of the bucket to become live. ``rows``: ``formats.object_index.pack_rows``."""

    stored: StoredObject
    parts: list[ObjectPart]
    rows: bytes


class ObjectId(NamedTuple):
    """Number of an object, and epoch of the owner that put it: its key."""

    number: int
    epoch: int


class BoundsRow(NamedTuple):
    """New log start of a partition, or its deletion."""

    partition_id: int
    start: int
    below_bytes: int
    is_deleted: bool


class Change(NamedTuple):
    """One change. ``next_sequence``: -1 keeps it. ``gone``: live objects that become dead.

    ``shrunk``: live objects that lose parts, with the partitions of these. ``reserve``: the number
    of object numbers to reserve in the same transaction.
    """

    added: tuple[NewObject, ...] = ()
    gone: tuple[int, ...] = ()
    shrunk: tuple[tuple[int, frozenset[int]], ...] = ()
    bounds: tuple[BoundsRow, ...] = ()
    next_sequence: int = -1
    reserve: int = 0
