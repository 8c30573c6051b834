"""Batches of a partition in memory, and the pieces that a rewrite goes through."""

import struct
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from gateway.model import BASE_OFFSET_AT, Buffer, parse_batch_header, stamp
from gateway.storage import Drops, Keep

REWRITE_BYTES: Final = 65_536  # rewritten before the loop runs other tasks
_OFFSET: Final = struct.Struct(">q")


class SharedBatch:
    """Number of partitions that a batch is kept for, once."""

    __slots__ = ("count",)

    def __init__(self, count: int) -> None:
        self.count = count


class StoredBatch(NamedTuple):
    """Batch of a partition. ``shared``: None for a batch of one partition."""

    base_offset: int
    end_offset: int
    max_timestamp_unix_ms: int
    leader_epoch: int
    data: bytes
    shared: SharedBatch | None = None

    def stamped(self) -> bytes:
        """Return the batch with the base offset of this partition."""
        if self.shared is None or _OFFSET.unpack_from(self.data, BASE_OFFSET_AT) == (
            self.base_offset,
        ):
            return self.data
        data = bytearray(self.data)
        stamp(data, self.base_offset, self.leader_epoch)
        return bytes(data)


class MemoryPartition:
    """Batches in order, none of which ends before ``start``; the first may begin there.

    ``end`` covers what is enqueued, the list what is done. ``size_bytes``: of the list.
    """

    __slots__ = ("batches", "end", "is_gone", "size_bytes", "start")

    def __init__(self) -> None:
        self.batches: list[StoredBatch] = []
        self.is_gone = False
        self.start = 0
        self.end = 0
        self.size_bytes = 0

    def find(self, offset: int) -> int:
        """Return the index of the first batch whose last offset is at or after ``offset``."""
        return bisect_right(self.batches, offset, key=lambda batch: batch.end_offset)


def parse_stored(data: Buffer) -> StoredBatch:
    """Return a batch of one partition, as a rewrite leaves it."""
    header = parse_batch_header(data)
    return StoredBatch(
        header.base_offset,
        header.last_offset + 1,
        header.max_timestamp_unix_ms,
        header.leader_epoch,
        bytes(data),
    )


def next_piece(batches: Sequence[StoredBatch], first: int, upto: int) -> list[StoredBatch]:
    """Return the next batches that end at or before ``upto``: at least one, few bytes."""
    found: list[StoredBatch] = []
    size_bytes = 0
    for index in range(first, len(batches)):
        batch = batches[index]
        size_bytes += len(batch.data)
        if batch.end_offset > upto or (found and size_bytes > REWRITE_BYTES):
            break
        found.append(batch)
    return found


def kept_of(batch: StoredBatch, keep: Keep, drops: Drops | None) -> Buffer | None:
    """Return what a rewrite keeps of a batch, None for nothing."""
    if drops is not None and drops(batch.base_offset, len(batch.data)):
        return None
    return keep(batch.stamped())


def size_of(batches: Sequence[StoredBatch]) -> int:
    """Return the bytes of batches."""
    return sum(len(batch.data) for batch in batches)


NOTHING: Final = MemoryPartition()
