"""Batches in memory: the reference implementation of the contract, for tests and throw-away nodes.

Nothing survives the process. ``on_done`` runs in the tick after ``enqueue``. All of it is
bounded by ``bytes_max``, of which ``reserve_bytes`` are kept back for internal streams.
"""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import Field

from gateway.clock import Clock
from gateway.config.base import FrozenConfig
from gateway.errors import RunTooLarge, StorageFull, StorageUnavailable
from gateway.model import (
    HEADER_BYTES,
    Buffer,
    is_abort_marker,
    parse_batch_header,
    stamp,
)
from gateway.storage import (
    Bounds,
    DiskUsage,
    Drops,
    Entry,
    Keep,
    OnDone,
    Rewritten,
    StorageHost,
    StoredHeader,
)

_MIB: Final = 1024 * 1024
_UNKNOWN: Final = -1
REWRITE_BYTES: Final = 65_536  # rewritten before the loop runs other tasks


class MemoryConfig(FrozenConfig):
    """Bounds of the memory used."""

    bytes_max: int = Field(
        default=1024 * _MIB, ge=_MIB, description="Bound of all batches; above it, disk full."
    )
    reserve_bytes: int = Field(
        default=16 * _MIB, ge=0, description="Reserved for acknowledgements and commits."
    )
    append_bytes_max: int = Field(
        default=128 * _MIB, ge=64 * 1024, description="Bound of one atomic append."
    )


class _Batch(NamedTuple):
    base_offset: int
    end_offset: int
    max_timestamp_unix_ms: int
    leader_epoch: int
    data: bytes


class _Partition:
    """Batches in order; ``end`` covers what is enqueued, the list what is done."""

    __slots__ = ("batches", "end", "start")

    def __init__(self) -> None:
        self.batches: list[_Batch] = []
        self.start = 0
        self.end = 0

    def kept(self) -> list[_Batch]:
        """Return the batches that end after the log start; the first may begin before it."""
        return self.batches[self.find(self.start) :]

    def find(self, offset: int) -> int:
        """Return the index of the first batch whose last offset is at or after ``offset``."""
        return bisect_right(self.batches, offset, key=lambda batch: batch.end_offset)


class _Append(NamedTuple):
    batches: list[tuple[_Partition, _Batch]]
    headers: list[StoredHeader]
    size_bytes: int
    on_done: OnDone


class MemoryStorage:
    """See ``gateway.storage.StorageAdapter``. Durability: none."""

    Config = MemoryConfig

    def __init__(self, config: MemoryConfig, *, data_dir: Path, clock: Clock) -> None:
        del data_dir, clock  # Nothing is written, nothing waits.
        self._config = config
        self._partitions: dict[int, _Partition] = {}
        self._headers: deque[StoredHeader] = deque()
        self._waiting: list[_Append] = []
        self._is_open = False
        self._stored_bytes = 0
        self.data_uuid = None
        self.is_empty = True
        self.incarnation = 0
        self.next_sequence = 1
        self.queued_bytes = 0

    async def open(self, host: StorageHost) -> None:
        """See ``StorageAdapter``; opening again after a ``close`` keeps the data."""
        del host
        self.incarnation += 1
        self._is_open = True

    def enqueue(
        self, entries: Sequence[Entry], on_done: OnDone, *, reserved: bool = False
    ) -> None:
        """See ``StorageAdapter``."""
        self._check_open()
        size_bytes = sum(len(entry.batch) * len(entry.targets) for entry in entries)
        if size_bytes > self._config.append_bytes_max:
            raise RunTooLarge(f"an append of {size_bytes} bytes")
        kept_back = 0 if reserved else self._config.reserve_bytes
        if self._stored_bytes + size_bytes > self._config.bytes_max - kept_back:
            raise StorageFull("bytes_max of [storage] is reached")
        self._stored_bytes += size_bytes
        append = _Append([], [], size_bytes, on_done)
        for entry in entries:
            self._take(entry, append)
        self._schedule(append)

    def _take(self, entry: Entry, append: _Append) -> None:
        leader_epoch = parse_batch_header(entry.batch).leader_epoch
        header = bytes(entry.batch[:HEADER_BYTES])
        is_abort = is_abort_marker(entry.batch)
        append.headers.append(StoredHeader(self.next_sequence, entry.targets, header, is_abort))
        self.next_sequence += 1
        for partition_id, base_offset in entry.targets:
            data = bytearray(entry.batch)
            stamp(data, base_offset, leader_epoch)
            partition = self._partitions.setdefault(partition_id, _Partition())
            partition.end = base_offset + entry.record_count
            timestamp = entry.max_timestamp_unix_ms
            batch = _Batch(base_offset, partition.end, timestamp, leader_epoch, bytes(data))
            append.batches.append((partition, batch))

    def _schedule(self, append: _Append) -> None:
        self.queued_bytes += append.size_bytes
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._publish)
        self._waiting.append(append)

    def _publish(self) -> None:
        waiting, self._waiting = self._waiting, []
        for append in waiting:
            for partition, batch in append.batches:
                partition.batches.append(batch)
            self._headers.extend(append.headers)
            self.queued_bytes -= append.size_bytes
        for append in waiting:
            append.on_done(None)

    def bounds(self, partition_id: int) -> Bounds:
        """See ``StorageAdapter``."""
        partition = self._partitions.get(partition_id)
        return Bounds(0, 0) if partition is None else Bounds(partition.start, partition.end)

    def read_cached(
        self, partition_id: int, start: int, end: int, *, bytes_max: int
    ) -> list[Buffer] | None:
        """See ``StorageAdapter``; never None."""
        partition = self._partitions.get(partition_id, _NOTHING)
        found: list[Buffer] = []
        for batch in partition.batches[partition.find(max(start, partition.start)) :]:
            too_much = found and len(batch.data) > bytes_max
            if start >= end or batch.base_offset >= end or too_much:
                break
            found.append(batch.data)
            bytes_max -= len(batch.data)
        return found

    async def read(
        self, partition_id: int, start: int, end: int, *, bytes_max: int
    ) -> list[Buffer]:
        """See ``StorageAdapter``."""
        return self.read_cached(partition_id, start, end, bytes_max=bytes_max) or []

    async def base_offset_for_time(
        self, partition_id: int, timestamp_unix_ms: int
    ) -> int | None:
        """See ``StorageAdapter``."""
        for batch in self._partitions.get(partition_id, _NOTHING).kept():
            if batch.max_timestamp_unix_ms >= timestamp_unix_ms:
                return batch.base_offset
        return None

    def offset_for_size(self, partition_id: int, bytes_max: int) -> int:
        """See ``StorageAdapter``."""
        partition = self._partitions.get(partition_id, _NOTHING)
        offset = partition.batches[-1].end_offset if partition.batches else partition.start
        for batch in reversed(partition.kept()):
            bytes_max -= len(batch.data)
            if bytes_max < 0:
                break
            offset = batch.base_offset
        return max(offset, partition.start)

    def end_offset_for_epoch(self, partition_id: int, leader_epoch: int) -> tuple[int, int]:
        """See ``StorageAdapter``."""
        partition = self._partitions.get(partition_id, _NOTHING)
        known = _UNKNOWN
        for batch in partition.kept():
            if batch.leader_epoch > leader_epoch:
                end = max(partition.start, batch.base_offset)
                return (leader_epoch if known == _UNKNOWN else known), end
            known = batch.leader_epoch
        return (known, partition.end) if known != _UNKNOWN else (_UNKNOWN, _UNKNOWN)

    def size_bytes(self, partition_id: int) -> int:
        """See ``StorageAdapter``."""
        partition = self._partitions.get(partition_id, _NOTHING)
        return sum(len(batch.data) for batch in partition.kept())

    def scan(self, from_sequence: int) -> Iterator[StoredHeader]:
        """See ``StorageAdapter``."""
        return iter([h for h in self._headers if h.sequence >= from_sequence])

    def truncate_before(self, partition_id: int, offset: int, on_done: OnDone) -> None:
        """See ``StorageAdapter``."""
        self._check_open()
        partition = self._partitions.get(partition_id, _NOTHING)
        partition.start = max(partition.start, min(offset, partition.end))
        passed = partition.find(partition.start)
        self._stored_bytes -= sum(len(batch.data) for batch in partition.batches[:passed])
        del partition.batches[:passed]
        self._forget_headers()
        self._schedule(_Append([], [], 0, on_done))

    def delete(self, partition_ids: Sequence[int], on_done: OnDone) -> None:
        """See ``StorageAdapter``."""
        self._check_open()
        for partition_id in partition_ids:
            partition = self._partitions.pop(partition_id, _NOTHING)
            self._stored_bytes -= sum(len(batch.data) for batch in partition.batches)
        self._forget_headers()
        self._schedule(_Append([], [], 0, on_done))

    def _forget_headers(self) -> None:
        """Drop the oldest headers whose batches are gone in every partition."""
        while self._headers:
            for partition_id, base_offset in self._headers[0].targets:
                partition = self._partitions.get(partition_id, _NOTHING)
                if partition.batches and partition.batches[0].base_offset <= base_offset:
                    return
            self._headers.popleft()

    def release_scans_before(self, sequence: int) -> None:
        """See ``StorageAdapter``."""
        while self._headers and self._headers[0].sequence < sequence:
            self._headers.popleft()

    def settled_offset(self, partition_id: int) -> int:
        """See ``StorageAdapter``: every stored batch can be rewritten."""
        partition = self._partitions.get(partition_id, _NOTHING)
        return partition.batches[-1].end_offset if partition.batches else partition.start

    async def rewrite(
        self, partition_id: int, upto_offset: int, keep: Keep, drops: Drops | None = None
    ) -> Rewritten:
        """See ``StorageAdapter``; ``keep`` runs on the loop, ``REWRITE_BYTES`` at a time."""
        self._check_open()
        partition = self._partitions.get(partition_id, _NOTHING)
        upto = max(partition.start, min(upto_offset, self.settled_offset(partition_id)))
        done = Rewritten(upto, 0, 0)
        offset = partition.start
        while offset < upto and self._partitions.get(partition_id) is partition:
            first = partition.find(offset)
            old = _piece(partition.batches, first, upto)
            if not old:
                break
            new = [_parse(kept) for b in old if (kept := _kept(b, keep, drops)) is not None]
            partition.batches[first : first + len(old)] = new
            before_bytes, after_bytes = _size_of(old), _size_of(new)
            self._stored_bytes += after_bytes - before_bytes
            done = Rewritten(
                upto, done.before_bytes + before_bytes, done.after_bytes + after_bytes
            )
            offset = old[-1].end_offset
            await asyncio.sleep(0)
            self._check_open()
        return done

    def disk_usage(self) -> DiskUsage:
        """See ``StorageAdapter``: all of it is in memory."""
        return DiskUsage(self._stored_bytes, 0, self._config.bytes_max - self._stored_bytes)

    async def close(self) -> None:
        """See ``StorageAdapter``."""
        if self._waiting:
            self._publish()
        self._is_open = False

    def _check_open(self) -> None:
        if not self._is_open:
            raise StorageUnavailable("the storage is not open")


def _parse(data: Buffer) -> _Batch:
    header = parse_batch_header(data)
    return _Batch(
        header.base_offset,
        header.last_offset + 1,
        header.max_timestamp_unix_ms,
        header.leader_epoch,
        bytes(data),
    )


def _piece(batches: Sequence[_Batch], first: int, upto: int) -> list[_Batch]:
    """Return the next batches that end at or before ``upto``: at least one, few bytes."""
    found: list[_Batch] = []
    size_bytes = 0
    for index in range(first, len(batches)):
        batch = batches[index]
        size_bytes += len(batch.data)
        if batch.end_offset > upto or (found and size_bytes > REWRITE_BYTES):
            break
        found.append(batch)
    return found


def _kept(batch: _Batch, keep: Keep, drops: Drops | None) -> Buffer | None:
    if drops is not None and drops(batch.base_offset, len(batch.data)):
        return None
    return keep(batch.data)


def _size_of(batches: Sequence[_Batch]) -> int:
    return sum(len(batch.data) for batch in batches)


_NOTHING: Final = _Partition()
