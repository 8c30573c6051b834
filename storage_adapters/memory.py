"""Batches in memory: the reference implementation of the contract, for tests and throw-away nodes.

Nothing survives the process. ``on_done`` runs in the tick after ``enqueue``. All of it is
bounded by ``bytes_max``, of which ``reserve_bytes`` are kept back for internal streams. A batch for
several partitions is kept once. Beside a durable storage it holds the topics in memory: see
``gateway.split_storage``.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from pydantic import Field

from gateway.clock import Clock
from gateway.config.base import FrozenConfig
from gateway.errors import RunTooLarge, StorageFull, StorageUnavailable
from gateway.model import (
    HEADER_BYTES,
    Buffer,
    is_abort_marker,
    parse_batch_header,
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
from storage_adapters.memory_batches import (
    NOTHING,
    MemoryPartition,
    SharedBatch,
    StoredBatch,
    kept_of,
    next_piece,
    parse_stored,
    size_of,
)

_MIB: Final = 1024 * 1024
_UNKNOWN: Final = -1
BATCH_OVERHEAD_BYTES: Final = 256  # of memory beside the bytes of a batch, for each partition


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


class Append:
    """An append that is not done. One that is held waits, with all behind it, for a release."""

    __slots__ = ("_storage", "batches", "error", "headers", "is_held", "on_done", "size_bytes")

    def __init__(
        self, storage: "MemoryStorage", on_done: OnDone, *, is_held: bool = False
    ) -> None:
        self._storage = storage
        self.on_done = on_done
        self.error: StorageUnavailable | None = None
        self.is_held = is_held
        self.batches: list[tuple[MemoryPartition, StoredBatch]] = []
        self.headers: list[StoredHeader] = []
        self.size_bytes = 0

    def release(self, error: StorageUnavailable | None) -> None:
        """Complete a held append, and what waits behind it; not within a call of ``enqueue``.

        With an ``error`` nothing of it is kept, and its ``on_done`` gets the error.
        """
        self.is_held = False
        self.error = error
        self._storage.publish()

    def take_back(self) -> None:
        """Undo ``enqueue_held``, in the same turn of the loop, before any other call."""
        self._storage.take_back(self)


class MemoryStorage:
    """See ``gateway.storage.StorageAdapter``. Durability: none."""

    Config = MemoryConfig

    def __init__(self, config: MemoryConfig, *, data_dir: Path, clock: Clock) -> None:
        del data_dir, clock  # Nothing is written, nothing waits.
        self._config = config
        self._partitions: dict[int, MemoryPartition] = {}
        self._headers: deque[StoredHeader] = deque()
        self._first_sequence = 0  # of the headers that are kept
        self._waiting: deque[Append] = deque()
        self._is_scheduled = False
        self._is_open = False
        self._stored_bytes = 0
        self._batch_count = 0
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
        self._check_room(entries, reserved=reserved)
        self._schedule(self._take(entries, Append(self, on_done)))

    def enqueue_held(
        self, entries: Sequence[Entry], on_done: OnDone, *, reserved: bool = False
    ) -> Append:
        """Append what keeps its place, and becomes readable with ``Append.release`` only.

        ``on_done`` runs within ``release``, or later, when another one before it is held. Errors:
        as ``enqueue``.
        """
        self._check_open()
        self._check_room(entries, reserved=reserved)
        append = self._take(entries, Append(self, on_done, is_held=True))
        self.queued_bytes += append.size_bytes
        self._waiting.append(append)
        return append

    def take_back(self, append: Append) -> None:
        """See ``Append``."""
        assert self._waiting[-1] is append
        self._waiting.pop()
        self.queued_bytes -= append.size_bytes
        for partition, batch in reversed(append.batches):
            partition.end = batch.base_offset
            self._free(batch)

    def _check_room(self, entries: Sequence[Entry], *, reserved: bool) -> None:
        size_bytes = taken_bytes = 0
        for entry in entries:
            size_bytes += len(entry.batch)
            taken_bytes += len(entry.batch) + BATCH_OVERHEAD_BYTES * len(entry.targets)
        if size_bytes > self._config.append_bytes_max:
            raise RunTooLarge(f"an append of {size_bytes} bytes")
        kept_back = 0 if reserved else self._config.reserve_bytes
        if self.used_bytes + taken_bytes > self._config.bytes_max - kept_back:
            raise StorageFull(
                f"bytes_max, {self._config.bytes_max} bytes in memory, is reached"
            )

    @property
    def used_bytes(self) -> int:
        """Bytes of memory that are taken, of ``bytes_max``."""
        return self._stored_bytes + self._batch_count * BATCH_OVERHEAD_BYTES

    def _take(self, entries: Sequence[Entry], append: Append) -> Append:
        for entry in entries:
            leader_epoch = parse_batch_header(entry.batch).leader_epoch
            if self.next_sequence >= self._first_sequence:
                header = bytes(entry.batch[:HEADER_BYTES])
                is_abort = is_abort_marker(entry.batch)
                stored = StoredHeader(self.next_sequence, entry.targets, header, is_abort)
                append.headers.append(stored)
            self.next_sequence += 1
            data = bytes(entry.batch)
            count = len(entry.targets)
            shared = SharedBatch(count) if count > 1 else None
            timestamp = entry.max_timestamp_unix_ms
            for partition_id, base_offset in entry.targets:
                partition = self._partitions.get(partition_id)
                if partition is None:
                    partition = self._partitions[partition_id] = MemoryPartition()
                partition.end = end = base_offset + entry.record_count
                batch = StoredBatch(base_offset, end, timestamp, leader_epoch, data, shared)
                append.batches.append((partition, batch))
            append.size_bytes += len(data)
            self._stored_bytes += len(data)
            self._batch_count += count
        return append

    def _free(self, batch: StoredBatch) -> None:
        """Count a batch of a partition as gone."""
        self._batch_count -= 1
        shared = batch.shared
        if shared is not None:
            shared.count -= 1
            if shared.count:
                return
        self._stored_bytes -= len(batch.data)

    def _schedule(self, append: Append) -> None:
        self.queued_bytes += append.size_bytes
        self._waiting.append(append)
        self._publish_soon()

    def _publish_soon(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self.publish)

    def publish(self) -> None:
        """Complete what was there when this began, up to an append that is held."""
        self._is_scheduled = False
        waiting = self._waiting
        for _ in range(len(waiting)):
            if not waiting or waiting[0].is_held:
                return
            append = waiting.popleft()
            for partition, batch in append.batches:
                if partition.is_gone or append.error is not None:
                    self._free(batch)
                    continue
                partition.batches.append(batch)
                partition.size_bytes += len(batch.data)
            self._headers.extend(append.headers)
            self.queued_bytes -= append.size_bytes
            try:
                append.on_done(append.error)
            except BaseException:  # the others are told nevertheless
                self._publish_soon()
                raise

    def bounds(self, partition_id: int) -> Bounds:
        """See ``StorageAdapter``."""
        partition = self._partitions.get(partition_id)
        return Bounds(0, 0) if partition is None else Bounds(partition.start, partition.end)

    def read_cached(
        self, partition_id: int, start: int, end: int, *, bytes_max: int
    ) -> list[Buffer] | None:
        """See ``StorageAdapter``; never None."""
        partition = self._partitions.get(partition_id, NOTHING)
        found: list[Buffer] = []
        batches = partition.batches
        for index in range(partition.find(max(start, partition.start)), len(batches)):
            batch = batches[index]
            too_much = found and len(batch.data) > bytes_max
            if start >= end or batch.base_offset >= end or too_much:
                break
            found.append(batch.stamped())
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
        for batch in self._partitions.get(partition_id, NOTHING).batches:
            if batch.max_timestamp_unix_ms >= timestamp_unix_ms:
                return batch.base_offset
        return None

    def offset_for_size(self, partition_id: int, bytes_max: int) -> int:
        """See ``StorageAdapter``; costs as much as there is to go."""
        partition = self._partitions.get(partition_id, NOTHING)
        size_bytes = partition.size_bytes
        offset = partition.start
        for batch in partition.batches:
            if size_bytes <= bytes_max:
                return max(batch.base_offset, partition.start)
            size_bytes -= len(batch.data)
            offset = batch.end_offset
        return offset

    def end_offset_for_epoch(self, partition_id: int, leader_epoch: int) -> tuple[int, int]:
        """See ``StorageAdapter``."""
        partition = self._partitions.get(partition_id, NOTHING)
        known = _UNKNOWN
        for batch in partition.batches:
            if batch.leader_epoch > leader_epoch:
                end = max(partition.start, batch.base_offset)
                return (leader_epoch if known == _UNKNOWN else known), end
            known = batch.leader_epoch
        return (known, partition.end) if known != _UNKNOWN else (_UNKNOWN, _UNKNOWN)

    def size_bytes(self, partition_id: int) -> int:
        """See ``StorageAdapter``."""
        return self._partitions.get(partition_id, NOTHING).size_bytes

    def scan(self, from_sequence: int) -> Iterator[StoredHeader]:
        """See ``StorageAdapter``."""
        return iter([h for h in self._headers if h.sequence >= from_sequence])

    def truncate_before(self, partition_id: int, offset: int, on_done: OnDone) -> None:
        """See ``StorageAdapter``."""
        self._check_open()
        partition = self._partitions.get(partition_id)
        if partition is not None:
            partition.start = max(partition.start, min(offset, partition.end))
            passed = partition.find(partition.start)
            for batch in partition.batches[:passed]:
                partition.size_bytes -= len(batch.data)
                self._free(batch)
            del partition.batches[:passed]
            self._forget_headers()
        self._schedule(Append(self, on_done))

    def delete(self, partition_ids: Sequence[int], on_done: OnDone) -> None:
        """See ``StorageAdapter``."""
        self._check_open()
        for partition_id in partition_ids:
            partition = self._partitions.pop(partition_id, None)
            if partition is not None:
                partition.is_gone = True  # also for what is about to be appended
                for batch in partition.batches:
                    self._free(batch)
        self._forget_headers()
        self._schedule(Append(self, on_done))

    def _forget_headers(self) -> None:
        """Drop the oldest headers whose batches are gone in every partition."""
        while self._headers:
            for partition_id, base_offset in self._headers[0].targets:
                partition = self._partitions.get(partition_id, NOTHING)
                if partition.batches and partition.batches[0].base_offset <= base_offset:
                    return
            self._headers.popleft()

    def release_scans_before(self, sequence: int) -> None:
        """See ``StorageAdapter``."""
        self._first_sequence = sequence
        while self._headers and self._headers[0].sequence < sequence:
            self._headers.popleft()

    def settled_offset(self, partition_id: int) -> int:
        """See ``StorageAdapter``: every stored batch can be rewritten."""
        partition = self._partitions.get(partition_id, NOTHING)
        return partition.batches[-1].end_offset if partition.batches else partition.start

    async def rewrite(
        self, partition_id: int, upto_offset: int, keep: Keep, drops: Drops | None = None
    ) -> Rewritten:
        """See ``StorageAdapter``; ``keep`` runs on the loop, ``REWRITE_BYTES`` at a time."""
        self._check_open()
        partition = self._partitions.get(partition_id, NOTHING)
        upto = max(partition.start, min(upto_offset, self.settled_offset(partition_id)))
        done = Rewritten(upto, 0, 0)
        offset = partition.start
        while offset < upto and self._partitions.get(partition_id) is partition:
            first = partition.find(offset)
            old = next_piece(partition.batches, first, upto)
            if not old:
                break
            new = [
                parse_stored(kept) for b in old if (kept := kept_of(b, keep, drops)) is not None
            ]
            partition.batches[first : first + len(old)] = new
            before_bytes, after_bytes = size_of(old), size_of(new)
            partition.size_bytes += after_bytes - before_bytes
            for batch in old:
                self._free(batch)
            self._batch_count += len(new)
            self._stored_bytes += after_bytes
            done = Rewritten(
                upto, done.before_bytes + before_bytes, done.after_bytes + after_bytes
            )
            offset = old[-1].end_offset
            await asyncio.sleep(0)
            self._check_open()
        return done

    def disk_usage(self) -> DiskUsage:
        """See ``StorageAdapter``: all of it is in memory."""
        free_bytes = max(self._config.bytes_max - self.used_bytes, 0)
        return DiskUsage(self._stored_bytes, 0, free_bytes)

    async def close(self) -> None:
        """See ``StorageAdapter``."""
        while self._waiting and not self._waiting[0].is_held:
            self.publish()
        self._is_open = False

    def _check_open(self) -> None:
        if not self._is_open:
            raise StorageUnavailable("the storage is not open")
