"""What one transaction changes in the index: all of it happens, or nothing."""

from typing import NamedTuple

from storage_adapters.s3.state import Extent, StoredObject


class ObjectPart(NamedTuple):
    """What an object holds of one partition."""

    partition_id: int
    extent: Extent


class NewObject(NamedTuple):
    """An object that was put and is to be live. ``rows``: ``formats.object_index.pack_rows``."""

    stored: StoredObject
    parts: list[ObjectPart]
    rows: bytes


class BoundsRow(NamedTuple):
    """A log start that moved, or a partition that is no more."""

    partition_id: int
    start: int
    below_bytes: int
    is_deleted: bool


class Change(NamedTuple):
    """``next_sequence``: the node's, -1 to leave it. ``gone``: live objects that are dead then.

    ``shrunk``: live objects that lose parts, with those that stay. ``reserve``: how many numbers
    of objects to be put later are to be reserved in the same transaction.
    """

    added: tuple[NewObject, ...] = ()
    gone: tuple[int, ...] = ()
    shrunk: tuple[tuple[int, list[ObjectPart]], ...] = ()
    bounds: tuple[BoundsRow, ...] = ()
    next_sequence: int = -1
    reserve: int = 0
