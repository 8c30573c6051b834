"""Catalog of a node's objects: the extents of each partition in them.

All of it is in memory: one extent for each partition and object, not one for each batch. A batch's
position within its object is in the object's rows (``rows``), which are looked up.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

from storage_adapters.formats.log_ranges import log_of
from storage_adapters.formats.segment import KIND_OBJECT, KIND_SETTLED

__all__ = ["KIND_LOG", "KIND_SETTLED"]  # the kinds of objects

KIND_LOG: Final = KIND_OBJECT  # an object of appends; the other kind is merged

KEY_DIGITS: Final = 16


class Extent(NamedTuple):
    """Offsets [``first``, ``end``) of a partition in one object, holes included.

    ``first_row`` and ``row_count`` count rows of the object (``formats.footer.Rows``).
    ``epochs``: (leader epoch, base offset of its first batch here), in order; empty without
    batches. ``max_timestamp_unix_ms`` is that of its batches, ``NO_TIMESTAMP`` without.
    """

    first: int
    end: int
    number: int
    first_row: int
    row_count: int
    size_bytes: int
    max_timestamp_unix_ms: int
    epochs: tuple[tuple[int, int], ...]


class StoredObject(NamedTuple):
    """A live object. ``partition_ids``: those with live extents in it."""

    number: int
    kind: int
    epoch: int
    first_sequence: int
    next_sequence: int
    size_bytes: int
    etag: str
    changed_unix_ms: int
    partition_ids: frozenset[int]

    @property
    def log(self) -> int:
        """The log whose appends it holds; the holder of the log alone changes the object."""
        return log_of(self.next_sequence)


class PartitionState:
    """One partition. ``end`` includes enqueued batches; extents are committed.

    ``below_bytes``: the size of the first extent's batches that end at or before ``start``.
    """

    __slots__ = ("below_bytes", "end", "extents", "is_deleted", "partition_id", "start")

    def __init__(self, partition_id: int) -> None:
        self.partition_id = partition_id
        self.start = 0
        self.end = 0
        self.below_bytes = 0
        self.is_deleted = False
        self.extents: list[Extent] = []

    def find(self, offset: int) -> int:
        """Return the index of the first extent that ends after ``offset``."""
        return bisect_right(self.extents, offset, key=_end_of)

    @property
    def committed_end(self) -> int:
        """One past the last offset that is committed."""
        return self.extents[-1].end if self.extents else self.start

    def size_bytes(self) -> int:
        """Return the size of the batches at or after the start."""
        return sum([extent.size_bytes for extent in self.extents]) - self.below_bytes

    def replace(self, old: Iterable[int], new: Iterable[Extent]) -> None:
        """Replace the extents in objects ``old`` by ``new``, in order of offset."""
        gone = frozenset(old)
        self.extents = sorted(
            [*[extent for extent in self.extents if extent.number not in gone], *new]
        )


class Catalog:
    """Partitions and live objects, by their numbers. Loop only.

    ``log``: the node's own. Of other logs the catalog has what ``OtherWriters.refresh`` last saw.
    """

    def __init__(self, log: int = 0) -> None:
        self.log = log
        self.partitions: dict[int, PartitionState] = {}
        self.objects: dict[int, StoredObject] = {}

    def partition(self, partition_id: int) -> PartitionState:
        """Return a partition, created if it is new."""
        state = self.partitions.get(partition_id)
        if state is None:
            state = self.partitions[partition_id] = PartitionState(partition_id)
        return state

    def own_objects(self) -> list[StoredObject]:
        """Return the objects of the node's own log. In any thread."""
        log = self.log
        return [stored for stored in list(self.objects.values()) if stored.log == log]


def object_key(prefix: str, number: int, epoch: int) -> str:
    """Return the key of an object, which is unique for ever.

    >>> object_key("gw/", 17, 3)
    'gw/objects/0000000000000017-3.seg'
    """
    return f"{prefix}objects/{number:0{KEY_DIGITS}}-{epoch}.seg"


def _end_of(extent: Extent) -> int:
    return extent.end
