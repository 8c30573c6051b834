"""Snapshot of a log for readers outside the node: partitions and their extents."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, Protocol

from gateway.errors import OffsetOutOfRange
from gateway.model import PartitionIdentity

UNKNOWN_TIME: Final = (1 << 63) - 1


class Extent(NamedTuple):
    """Offsets [``first``, ``end``) of a partition in one file or object, ``path``.

    ``size_bytes``: of its batches; an estimate once an extent was cut. ``rows``: of a segment
    that is being written, where its batches are, as its footer will say. ``file_bytes``: of the
    whole object in a bucket, 0 of a file. ``max_timestamp_unix_ms``: no record has a higher one.
    ``aborted``: the aborted transactions among its batches: producer id, first and last offset.
    """

    path: str
    partition_id: int
    first: int
    end: int
    size_bytes: int
    rows: bytes | None = None
    file_bytes: int = 0
    max_timestamp_unix_ms: int = UNKNOWN_TIME
    aborted: tuple[tuple[int, int, int], ...] = ()


class PartitionView(NamedTuple):
    """Snapshot of a partition: its bounds and extents, lowest offset first.

    ``end`` is below the first offset of a transaction that is open.
    """

    identity: PartitionIdentity
    start: int
    end: int
    extents: list[Extent]


class FileGone(Exception):
    """A file or object of a view was removed."""


class ExtentReader(Protocol):
    """Reader of the batches of extents in one file or object."""

    def batches(self, extent: Extent) -> Iterator[tuple[int, memoryview]]:
        """Yield (base offset, bytes) of each batch with offsets of the extent, in order.

        Use this base offset: a batch that was appended to several partitions has that of the first
        one in its bytes.
        """
        ...


def found_again(views: Mapping[int, PartitionView], extent: Extent) -> list[Extent]:
    """Return the extents of the same offsets in a later view. Error: ``OffsetOutOfRange``."""
    view = views.get(extent.partition_id)
    if view is None:
        raise OffsetOutOfRange(f"partition {extent.partition_id} was deleted meanwhile")
    if view.start > extent.first:
        raise OffsetOutOfRange(
            f"{view.identity.topic.name}-{view.identity.number}: offsets {extent.first} to "
            f"{min(view.start, extent.end) - 1} were removed while they were to be read"
        )
    return [
        one._replace(first=max(one.first, extent.first), end=min(one.end, extent.end))
        for one in view.extents
        if one.first < extent.end and extent.first < one.end
    ]
