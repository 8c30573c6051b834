"""Durable storage, and memory storage beside it for the partitions of some topics.

Memory storage is another log. An append for partitions of both is appended to the durable storage
first, and to memory when it is durable there: then all of it becomes readable at once. Until then
it keeps its place in memory, and later appends to memory wait behind it. What is in memory ends
with the process, so that a crash leaves no part of such an append behind that could be read.

Offsets of a partition in memory are not used again: its first is the number of earlier starts times
``OFFSETS_PER_START``. Positions of an earlier start are below the log start, as if retention had
removed what they are about.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol
from uuid import UUID

from gateway.errors import Overloaded, StorageUnavailable
from gateway.key_index import spans_with_keys
from gateway.metrics import Metrics
from gateway.model import Buffer, parse_batch_header, stamp
from gateway.storage import (
    Bounds,
    DiskUsage,
    Entry,
    KeySpans,
    OnDone,
    StorageAdapter,
    StorageHost,
    StoredHeader,
    Target,
    WantedKeys,
)

OFFSETS_PER_START: Final = 1 << 42
ROOM_BYTES: Final = 1024 * 1024  # left for what is about to be appended; at most an eighth
GROWN_BYTES: Final = 256 * 1024  # of a partition, until its bounds are looked at


class HeldAppend(Protocol):
    """Append to memory that waits until it is released."""

    def release(self, error: StorageUnavailable | None) -> None:
        """Complete it, and what waits behind it."""
        ...

    def take_back(self) -> None:
        """Undo it, in the same turn of the loop."""
        ...


class MemoryLog(StorageAdapter, Protocol):
    """Storage in memory, as far as it goes beside another: ``storage_adapters.memory``."""

    @property
    def used_bytes(self) -> int:
        """Bytes of memory that are taken."""
        ...

    def disk_usage(self) -> DiskUsage:
        """See ``StorageAdapter``; what is free is free memory."""
        ...

    def enqueue_held(
        self, entries: Sequence[Entry], on_done: OnDone, *, reserved: bool = False
    ) -> HeldAppend:
        """Append what becomes readable with ``release`` only. Errors: as ``enqueue``."""
        ...


class SplitStorage:
    """See the module, and ``gateway.storage.StorageAdapter``. Optional methods: the durable's."""

    def __init__(self, durable: StorageAdapter, memory: MemoryLog) -> None:
        """Both are open. ``memory`` has nothing stored."""
        self._durable = durable
        self._memory = memory
        self._in_memory: set[int] = set()
        self._grown: dict[int, int] = {}
        self._first_offset = (durable.incarnation - 1) * OFFSETS_PER_START
        self.on_grown: Callable[[int], None] = _nothing
        """Called with a partition in memory for each ``GROWN_BYTES`` that are appended."""
        self.memory_refusals = 0
        """Appends that were refused for want of memory."""
        memory.release_scans_before(1 << 62)  # no state is rebuilt from it
        if hasattr(durable, "spans_with_keys"):
            self.spans_with_keys = self._spans_with_keys

    def __getattr__(self, name: str) -> object:
        return getattr(self._durable, name)

    # --- partitions in memory

    def keep_in_memory(self, partition_ids: Iterable[int]) -> None:
        """Store partitions in memory; before anything of them is appended."""
        self._in_memory.update(partition_ids)

    @property
    def memory_used_bytes(self) -> int:
        """Bytes of memory that are taken by partitions in memory."""
        return self._memory.used_bytes

    def check_memory(self, size_bytes: int) -> None:
        """Raise ``Overloaded`` when memory has no room, before others share the append.

        ``enqueue`` refuses an append as a whole, with what goes to the durable storage.
        """
        usage = self._memory.disk_usage()
        used_bytes = self._memory.used_bytes
        bytes_max = used_bytes + usage.free_bytes
        if used_bytes + size_bytes > bytes_max - min(ROOM_BYTES, bytes_max // 8):
            self.memory_refusals += 1
            raise Overloaded(
                f"memory.bytes_max, {bytes_max} bytes in memory, is nearly reached"
            )

    def register_metrics(self, metrics: Metrics) -> None:
        """Register the metrics of memory, and those of the durable storage."""
        metrics.gauge(
            "headgate_memory_bytes",
            "Bytes that topics in memory take, of [memory] bytes_max.",
            lambda: self._memory.used_bytes,
        )
        metrics.gauge(
            "headgate_memory_partitions",
            "Partitions in memory.",
            lambda: len(self._in_memory),
        )
        metrics.counter_fn(
            "headgate_memory_refusals",
            "Appends refused because [memory] bytes_max was reached.",
            lambda: self.memory_refusals,
        )
        register_durable = getattr(self._durable, "register_metrics", None)
        if register_durable is not None:
            register_durable(metrics)

    # --- the durable storage's

    @property
    def incarnation(self) -> int:
        """See ``StorageAdapter``."""
        return self._durable.incarnation

    @property
    def data_uuid(self) -> UUID | None:
        """See ``StorageAdapter``."""
        return self._durable.data_uuid

    @property
    def is_empty(self) -> bool:
        """See ``StorageAdapter``."""
        return self._durable.is_empty

    @property
    def next_sequence(self) -> int:
        """See ``StorageAdapter``."""
        return self._durable.next_sequence

    async def open(self, host: StorageHost) -> None:
        """See ``StorageAdapter``: the parts are open."""

    def scan(self, from_sequence: int) -> Iterator[StoredHeader]:
        """See ``StorageAdapter``; nothing in memory is scanned."""
        return self._durable.scan(from_sequence)

    def release_scans_before(self, sequence: int) -> None:
        """See ``StorageAdapter``."""
        self._durable.release_scans_before(sequence)

    # --- appends

    @property
    def queued_bytes(self) -> int:
        """See ``StorageAdapter``."""
        return self._durable.queued_bytes + self._memory.queued_bytes

    def enqueue(
        self, entries: Sequence[Entry], on_done: OnDone, *, reserved: bool = False
    ) -> None:
        """See ``StorageAdapter``; appends to one storage only complete in order among themselves.

        Further error: ``StorageFull`` when there is no more room in memory.
        """
        if not self._in_memory:
            self._durable.enqueue(entries, on_done, reserved=reserved)
            return
        durable, memory = self._split(entries)
        if not memory:
            self._durable.enqueue(entries, on_done, reserved=reserved)
            return
        held: HeldAppend | None = None
        try:
            if durable:
                held = self._memory.enqueue_held(memory, on_done, reserved=reserved)
            else:
                self._memory.enqueue(memory, on_done, reserved=reserved)
        except StorageUnavailable:
            self.memory_refusals += 1
            raise
        if held is not None:
            try:
                self._durable.enqueue(durable, held.release, reserved=reserved)
            except BaseException:
                held.take_back()
                raise
        self._note_grown(memory)

    def _split(self, entries: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
        """Return the entries of the durable storage, and those of memory."""
        in_memory = self._in_memory
        durable: list[Entry] = []
        memory: list[Entry] = []
        for entry in entries:
            targets = entry.targets
            if len(targets) == 1:
                (memory if targets[0].partition_id in in_memory else durable).append(entry)
                continue
            there = tuple(one for one in targets if one.partition_id not in in_memory)
            if len(there) == len(targets):
                durable.append(entry)
            elif not there:
                memory.append(entry)
            else:
                here = tuple(one for one in targets if one.partition_id in in_memory)
                durable.append(_for_targets(entry, there))
                memory.append(_for_targets(entry, here))
        return durable, memory

    def _note_grown(self, entries: Sequence[Entry]) -> None:
        grown = self._grown
        for entry in entries:
            size_bytes = len(entry.batch)
            for partition_id, _ in entry.targets:
                grown_bytes = grown.get(partition_id, 0) + size_bytes
                if grown_bytes >= GROWN_BYTES:
                    grown_bytes = 0
                    self.on_grown(partition_id)
                grown[partition_id] = grown_bytes

    # --- reads

    def _storage_of(self, partition_id: int) -> StorageAdapter:
        return self._memory if partition_id in self._in_memory else self._durable

    def bounds(self, partition_id: int) -> Bounds:
        """See ``StorageAdapter``."""
        if partition_id not in self._in_memory:
            return self._durable.bounds(partition_id)
        start, end = self._memory.bounds(partition_id)
        return Bounds(max(start, self._first_offset), max(end, self._first_offset))

    def read_cached(
        self, partition_id: int, start: int, end: int, *, bytes_max: int
    ) -> list[Buffer] | None:
        """See ``StorageAdapter``."""
        storage = self._storage_of(partition_id)
        return storage.read_cached(partition_id, start, end, bytes_max=bytes_max)

    async def read(
        self, partition_id: int, start: int, end: int, *, bytes_max: int
    ) -> list[Buffer]:
        """See ``StorageAdapter``."""
        storage = self._storage_of(partition_id)
        return await storage.read(partition_id, start, end, bytes_max=bytes_max)

    async def base_offset_for_time(
        self, partition_id: int, timestamp_unix_ms: int
    ) -> int | None:
        """See ``StorageAdapter``."""
        storage = self._storage_of(partition_id)
        return await storage.base_offset_for_time(partition_id, timestamp_unix_ms)

    def offset_for_size(self, partition_id: int, bytes_max: int) -> int:
        """See ``StorageAdapter``."""
        if partition_id not in self._in_memory:
            return self._durable.offset_for_size(partition_id, bytes_max)
        return max(self._memory.offset_for_size(partition_id, bytes_max), self._first_offset)

    def end_offset_for_epoch(self, partition_id: int, leader_epoch: int) -> tuple[int, int]:
        """See ``StorageAdapter``."""
        return self._storage_of(partition_id).end_offset_for_epoch(partition_id, leader_epoch)

    def size_bytes(self, partition_id: int) -> int:
        """See ``StorageAdapter``."""
        return self._storage_of(partition_id).size_bytes(partition_id)

    async def _spans_with_keys(
        self, partition_id: int, keys: WantedKeys, start: int, end: int
    ) -> KeySpans:
        """See ``IndexedStorage``."""
        storage = self._storage_of(partition_id)
        return await spans_with_keys(storage, partition_id, keys, start, end)

    # --- removing

    def truncate_before(self, partition_id: int, offset: int, on_done: OnDone) -> None:
        """See ``StorageAdapter``."""
        self._storage_of(partition_id).truncate_before(partition_id, offset, on_done)

    def delete(self, partition_ids: Sequence[int], on_done: OnDone) -> None:
        """See ``StorageAdapter``; the partitions are those of one topic."""
        if not self._in_memory.intersection(partition_ids):
            self._durable.delete(partition_ids, on_done)
            return
        self._memory.delete(partition_ids, on_done)
        for partition_id in partition_ids:
            self._in_memory.discard(partition_id)
            self._grown.pop(partition_id, None)

    async def close(self) -> None:
        """See ``StorageAdapter``."""
        await self._durable.close()
        await self._memory.close()


def _for_targets(entry: Entry, targets: tuple[Target, ...]) -> Entry:
    """Return an entry for some of its targets; the batch has the base offset of the first."""
    batch = entry.batch
    if targets[0] is not entry.targets[0]:
        stamped = bytearray(batch)
        stamp(stamped, targets[0].base_offset, parse_batch_header(batch).leader_epoch)
        batch = stamped
    return entry._replace(targets=targets, batch=batch)


def _nothing(_partition_id: int) -> None:
    """Leave a partition as it is."""
