"""Broker: appends, reads, waits and tails for the adapters. No protocol, no disk.

A write takes four steps: ``partition`` (``LivePartitions.find``) returns the partition's state,
``prepare`` checks the batch, ``append`` assigns offsets and passes the batch to the storage. When
it is durable, the batch becomes readable and the adapter's ``on_done`` acknowledges it. Everything
here runs on the event loop; there is no task per message.
"""

import asyncio
from collections.abc import Callable, Sequence
from uuid import UUID

from gateway.append_queue import AppendQueue
from gateway.broker_metrics import register_metrics
from gateway.clock import Clock
from gateway.config.settings import BrokerConfig
from gateway.errors import OffsetOutOfRange
from gateway.key_index import has_key_spans, spans_with_keys
from gateway.live_partitions import LivePartitions
from gateway.long_poll import Waiter
from gateway.metrics import Metrics
from gateway.model import Buffer
from gateway.monitoring.topic_traffic import TopicTraffic
from gateway.partition import Partition
from gateway.placement import Placement, owner_id_of
from gateway.reader import MAX_INT64, Reader
from gateway.records.markers import Marker
from gateway.retention_holds import Hold, HolderKind, RetentionHolds
from gateway.shard_lifecycle import ShardLifecycle
from gateway.shards.calls import ShardCalls
from gateway.storage import Bounds, KeySpans, OnDone, StorageAdapter, WantedKeys
from gateway.tail import Receiver, Tail
from gateway.topics.manager import Topic
from gateway.transactional_writes import NO_TRANSACTIONS
from gateway.write_steps import WriteStep, split_batch
from gateway.writer import Duplicate, Write, Writer


class Broker:
    """Appends to, reads from and waits for partitions."""

    def __init__(
        self,
        storage: StorageAdapter,
        placement: Placement,
        clock: Clock,
        config: BrokerConfig,
        traffic: TopicTraffic | None = None,
    ) -> None:
        self.storage = storage
        self.clock = clock
        self.config = config
        self.holders = RetentionHolds(storage)
        self.memory = self.holders.memory
        self.writer = Writer(storage, clock, config, self.holders)
        self.append_queue: AppendQueue = self.writer
        """Appends that are not durable yet; who appends waits while it is saturated."""
        self.transactional = self.writer.transactional
        """Partitions with open transactions."""
        self.reader = Reader(storage)
        self.stored = self.reader.stored
        self.traffic = traffic or TopicTraffic()
        # As they are stored: for readers that care for transactions themselves.
        self.read_stored = self.reader.read_stored
        self.read_stored_disk = self.reader.read_stored_disk
        self.read_uncommitted = self.reader.read_uncommitted
        self.write_steps: list[WriteStep] = []
        """Steps between the checks of records and their append, in order."""
        self.append_limits = self.writer.append_limits  # of full queues, by partition id
        self.before_delete: list[Callable[[Topic], None]] = []
        """Called with a topic that is about to be deleted, while it can still be written."""
        self.placement = placement
        self.shards = ShardLifecycle(placement, self.after_pending)
        self._partitions = LivePartitions(storage, placement, self.shards, self.traffic)
        self.partition = self._partitions.find
        self.loaded_partition = self._partitions.loaded
        self.loaded_partitions = self._partitions.all_loaded
        self.owns = self._partitions.owns
        self.shard_calls = ShardCalls(placement)
        """Way to the services of any shard, whichever node serves it."""
        self._loop = asyncio.get_running_loop()

    @property
    def incarnation(self) -> int:
        """Number of this start of the storage; it grows with each."""
        return self.storage.incarnation

    @property
    def data_uuid(self) -> UUID | None:
        """Identity of the stored data; None where the storage has none."""
        return self.storage.data_uuid

    @property
    def undurable_bytes(self) -> int:
        """Bytes appended that are not durable yet."""
        return self.storage.queued_bytes

    @property
    def log_copier(self) -> object | None:
        """The storage's means to copy its files for a backup; None where it has none."""
        return getattr(self.storage, "copier", None)

    def register_metrics(self, metrics: Metrics) -> None:
        """Register the metrics of appends, reads and the storage."""
        register_metrics(metrics, self.writer, self.reader, self.storage)

    # --- partitions

    def follow_owner(self, partition: Partition) -> None:
        """Take over a new epoch, or stop serving a partition whose shard went to another node.

        Those who wait for it are woken, and refused; what is on its way into the log completes.
        """
        placement, shard = self.placement, partition.shard
        epoch = placement.epoch(shard)
        if placement.owns(shard):
            partition.leader_epoch = epoch
            return
        partition.moved_to = (owner_id_of(shard, placement), epoch)
        self._partitions.leave(partition)
        self.writer.producers_changed.discard(partition)
        for waiter in tuple(partition.waiters):
            if not waiter.takes_pending:
                waiter.on_gone()
        if partition.waiters:
            self.after_pending(lambda _error: partition.end_waiters())

    # --- writing

    def prepare(
        self,
        partition: Partition,
        batch: bytearray | memoryview,
        *,
        transaction_version: int = NO_TRANSACTIONS,
    ) -> Write | Duplicate:
        """Check a client's batch, and ask the steps of the write path; see ``Writer.prepare``.

        Where a step holds records back, the base offset of the write stays -1. Further errors:
        those of the steps.
        """
        write = self.writer.prepare(partition, batch, transaction_version=transaction_version)
        if partition.topic.settings.has_write_steps and not isinstance(write, Duplicate):
            return split_batch(self.write_steps, write)
        return write

    def prepare_marker(
        self, partition: Partition, marker: Marker, *, transaction_version: int
    ) -> Write | None:
        """Return the write that ends a transaction in a partition; ``Writer.prepare_marker``."""
        return self.writer.prepare_marker(
            partition, marker, transaction_version=transaction_version
        )

    def append(
        self, writes: Sequence[Write], on_done: OnDone, *, reserved: bool = False
    ) -> None:
        """Append writes to many partitions as one; see ``Writer.append``."""
        self.writer.append(writes, on_done, reserved=reserved)

    def after_pending(self, on_done: OnDone) -> None:
        """Run ``on_done`` when all appends so far are done, in a later turn of the loop."""
        if not self.writer.after_pending(on_done):
            self._loop.call_soon(on_done, None)

    # --- reading

    def read(
        self, partition: Partition, offset: int, *, bytes_max: int, end: int = MAX_INT64
    ) -> Sequence[Buffer] | None:
        """Return batches from memory or the page cache, or None; see ``Reader.read``."""
        return self.reader.read(partition, offset, bytes_max=bytes_max, end=end)

    async def read_disk(
        self, partition: Partition, offset: int, *, bytes_max: int, end: int = MAX_INT64
    ) -> Sequence[Buffer]:
        """Return batches, waiting for the disk; see ``Reader.read_disk``."""
        return await self.reader.read_disk(partition, offset, bytes_max=bytes_max, end=end)

    @property
    def has_key_spans(self) -> bool:
        """Whether ``spans_with_keys`` may exclude offsets, by a key index of the storage."""
        return has_key_spans(self.storage)

    async def spans_with_keys(
        self, partition: Partition, keys: WantedKeys, start: int, end: int
    ) -> KeySpans:
        """Return the offset ranges that may hold wanted keys; see ``IndexedStorage``.

        Error: ``TopicNotFound`` when the topic was deleted meanwhile.
        """
        partition.check_present()
        return await spans_with_keys(self.storage, partition.partition_id, keys, start, end)

    async def read_unchecked(
        self, partition: Partition, offset: int, end: int, *, bytes_max: int
    ) -> Sequence[Buffer]:
        """Return batches as ``read`` does, for readers that check offsets themselves."""
        return await self.reader.read_unchecked(partition, offset, end, bytes_max=bytes_max)

    def wait_readable(
        self,
        partitions: Sequence[Partition],
        *,
        bytes_min: int,
        on_ready: Callable[[], None],
        reads_uncommitted: bool = False,
    ) -> Waiter:
        """Call ``on_ready`` once ``bytes_min`` more bytes are readable in any of them.

        Also when the end of a transaction has made some readable. ``reads_uncommitted``: up to the
        high watermark.
        """
        return Waiter(
            self._loop,
            partitions,
            bytes_min=bytes_min,
            on_ready=on_ready,
            reads_uncommitted=reads_uncommitted,
        )

    def tail(self, partition: Partition, from_offset: int, receiver: Receiver) -> Tail:
        """Push batches from an offset on to a receiver; see ``Tail``."""
        return Tail(self._loop, self.reader, partition, from_offset, receiver)

    async def offset_for_time(
        self, partition: Partition, timestamp_unix_ms: int, end: int | None = None
    ) -> tuple[int, int, int] | None:
        """Return (offset, timestamp, epoch) of the first record at or after a time, or None.

        ``end``: None when the record is found and is not below it; ``stable_end`` by default.
        """
        return await self.reader.offset_for_time(partition, timestamp_unix_ms, end)

    async def max_timestamp(
        self, partition: Partition, end: int | None = None
    ) -> tuple[int, int, int] | None:
        """Return (offset, timestamp, epoch) of the record with the highest timestamp."""
        return await self.reader.max_timestamp(partition, end)

    def end_offset_for_epoch(self, partition: Partition, leader_epoch: int) -> tuple[int, int]:
        """Return (epoch, end offset) of the largest epoch up to ``leader_epoch`` (KIP-101)."""
        if leader_epoch == partition.leader_epoch:
            return leader_epoch, partition.high_watermark
        return self.storage.end_offset_for_epoch(partition.partition_id, leader_epoch)

    def size_bytes(self, partition: Partition) -> int:
        """Return the bytes that the partition's batches take."""
        return self.storage.size_bytes(partition.partition_id)

    def stored_bytes(self, partition_id: int) -> int:
        """Return the bytes of a partition's batches, without making its live state."""
        return self.storage.size_bytes(partition_id)

    def stored_bounds(self, partition_id: int) -> Bounds:
        """Return a partition's first and next offset, without making its live state."""
        return self.storage.bounds(partition_id)

    # --- what retention may not remove

    def hold_retention(
        self, partition_id: int, name: str, kind: HolderKind, offset: int
    ) -> None:
        """Keep what lies at or after an offset; see ``RetentionHolds.hold``."""
        self.holders.hold(partition_id, name, kind, offset)

    def release_retention(self, partition_id: int, name: str) -> None:
        """End a hold."""
        self.holders.release(partition_id, name)

    def retention_holds(self, partition_id: int) -> list[Hold]:
        """Return the holds of a partition, lowest first."""
        return self.holders.of(partition_id)

    def is_room_bounded(self, partition: Partition) -> bool:
        """Say whether holds may leave no room for an append, so that ``check_room`` is due."""
        settings = partition.topic.settings
        is_held = settings.is_queue or settings.in_memory or bool(self.holders.stopped)
        return is_held or partition.partition_id in self.append_limits

    def check_held(self, partition: Partition, size_bytes: int) -> None:
        """Check the room that holds leave in a partition; see ``RetentionHolds.check_room``."""
        self.holders.check_room(partition, size_bytes)

    def check_room(self, partition: Partition, size_bytes: int, count: int) -> None:
        """Check the room for so many messages. Errors: ``PolicyViolation``, ``Overloaded``."""
        self.holders.check_room(partition, size_bytes)
        if (limit := self.append_limits.get(partition.partition_id)) is not None:
            limit.check(size_bytes // count)

    # --- removing

    def truncate_before(self, partition: Partition, offset: int, on_done: OnDone) -> None:
        """Move the log start up to ``offset``; a lower one changes nothing.

        Errors: ``OffsetOutOfRange`` above the high watermark, ``NotLeader``.
        """
        if partition.moved_to is not None:
            partition.check_present()
        if offset > partition.high_watermark or offset < 0:
            msg = f"offset {offset} is above the high watermark {partition.high_watermark}"
            raise OffsetOutOfRange(msg)
        if offset <= partition.log_start_offset:
            self._loop.call_soon(on_done, None)
            return
        self.storage.truncate_before(partition.partition_id, offset, on_done)
        partition.log_start_offset = offset
        is_stable_moved = partition.transactions is not None and partition.move_stable_end()
        for waiter in tuple(partition.waiters):
            waiter.on_truncated()
            if is_stable_moved:
                waiter.on_stable()

    def delete_topic(self, topic: Topic, on_done: OnDone) -> None:
        """Forget a topic that the topic manager has removed, and wake its waiters.

        Error: ``StorageUnavailable``; the storage's part is then to be done again.
        """
        for finish in self.before_delete:
            finish(topic)
        for partition in topic.partitions:
            if partition is not None:
                self._forget(partition)
        self.traffic.forget(topic.name)
        self.storage.delete(topic.partition_ids, on_done)

    def _forget(self, partition: Partition) -> None:
        partition.is_gone = True
        if partition.producers is not None:
            partition.producers = None
            if not partition.topic.settings.in_memory:  # their snapshot goes too
                self.writer.producers_changed.add(partition)
        partition.end_waiters()

    def delete(self, partition_ids: Sequence[int], on_done: OnDone) -> None:
        """Delete the partitions of a removed topic from the storage."""
        self.storage.delete(partition_ids, on_done)
