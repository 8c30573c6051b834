"""Write path: check a batch, assign its offsets, append it, publish it to readers.

Adapters authorize before they call it: they know the principal. Everything is synchronous:
offsets are assigned on the event loop, in the order of the calls, and an append that raises an
error has changed nothing.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from features.dedup import ProducerSequences
from features.open_transactions import PartitionTransactions
from gateway.append_limits import AppendLimits
from gateway.clock import Clock
from gateway.config.settings import BrokerConfig
from gateway.errors import GatewayError, StorageUnavailable, as_value
from gateway.fan_out_write import FanOutWrite
from gateway.model import (
    COMPRESSION_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    parse_batch_header,
    stamp,
)
from gateway.partition import Partition, Write
from gateway.records.checks import (
    check_batch,
    check_keys,
    check_records,
    check_timestamps,
    stamp_append_time,
)
from gateway.records.compression_frames import check_frame
from gateway.records.markers import Marker, decode_marker, encode_marker
from gateway.retention_holds import RetentionHolds
from gateway.storage import Entry, OnDone, StorageAdapter, Target
from gateway.topics.configs import TopicSettings
from gateway.transactional_writes import (
    IN_TRANSACTION_MASK,
    NO_TRANSACTIONS,
    check_marker,
    check_transaction,
    pinned_producers,
    publish_among_transactions,
    record_transaction,
)
from gateway.write_steps import begin_splits, end_held

if TYPE_CHECKING:
    from gateway.tracing.tracer import Tracer

__all__ = ["Duplicate", "Write", "Writer"]


class Duplicate:
    """A batch that the log has, or is about to have, at ``base_offset``."""

    __slots__ = ("base_offset", "end_offset", "partition")

    def __init__(self, partition: Partition, base_offset: int, end_offset: int) -> None:
        self.partition = partition
        self.base_offset = base_offset
        self.end_offset = end_offset


class _Pending:
    """An append that the storage has not completed; ``done`` is the storage's callback."""

    __slots__ = ("begun_unix_ns", "followers", "is_done", "on_done", "writer", "writes")

    def __init__(self, writer: "Writer", writes: Sequence[Write], on_done: OnDone) -> None:
        self.writer = writer
        self.writes = writes
        self.on_done = on_done
        self.is_done = False
        self.followers: list[OnDone] | None = None
        self.begun_unix_ns = 0 if writer.tracer is None else writer.tracer.now_unix_ns()

    def done(self, error: StorageUnavailable | None) -> None:
        """Publish the writes to readers in order of offsets, then call the appender's callback."""
        writer = self.writer
        self.is_done = True
        followers = writer.end_pending()
        if writer.tracer is not None:
            writer.tracer.appended(self.writes, self.begun_unix_ns, error)
        if error is None:
            for write in self.writes:
                _publish(write)
                for further in write.further:
                    _publish(further)
        try:
            self.on_done(error)
            for follower in followers:
                follower(error)
        finally:  # one caller's bug must not leave those who are held without their release
            if writer.held:
                writer.release_when_low()


def _publish(write: Write) -> None:
    partition = write.partition
    if partition.transactions is not None:
        publish_among_transactions(partition, write)
        return
    partition.high_watermark = partition.stable_end = write.end_offset
    if partition.waiters:
        for waiter in tuple(partition.waiters):
            waiter.on_appended(write)


def _take_offsets_back(writes: Sequence[Write]) -> None:
    for write in reversed(writes):
        for one in (write, *write.further):
            one.partition.log_end_offset = one.base_offset


def _begin_transactions(partition: Partition) -> None:
    partition.transactions = PartitionTransactions()


class Writer:
    """Checks batches, gives them their offsets and hands them to the storage."""

    def __init__(
        self,
        storage: StorageAdapter,
        clock: Clock,
        config: BrokerConfig,
        holders: RetentionHolds,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._config = config
        self._holders = holders
        self.append_limits: AppendLimits = {}
        self.pending: deque[_Pending] = deque()
        self.held: dict[Callable[[], None], None] = {}
        self.tracer: Tracer | None = None
        """Makes spans of sampled messages; None without ``[otel]``, and then it costs nothing."""
        self.batches_appended = 0
        self.records_appended = 0
        self.bytes_appended = 0
        self.duplicates_answered = 0
        self.producers_changed: set[Partition] = set()
        self.transactional: set[Partition] = set()
        """Partitions that have had transactions."""
        self.on_first_transaction: Callable[[Partition], None] = _begin_transactions
        """Gives a partition the state of its transactions, before the first batch of one."""

    def prepare(
        self,
        partition: Partition,
        batch: bytearray | memoryview,
        *,
        transaction_version: int = NO_TRANSACTIONS,
    ) -> Write | Duplicate:
        """Check a client's batch against the topic and the producer's sequence.

        ``batch`` is one whole v2 batch and belongs to the broker from here on. Append the result
        before the next turn of the loop and before the partition's next batch.
        ``transaction_version``: that of the producer's protocol; without it a transactional batch
        is refused. The caller has asked the coordinator whether the transaction is open.
        Errors: those of ``check_batch``, ``check_timestamps``, ``ProducerSequences.check``,
        ``check_transaction``, ``RetentionHolds.check_room``, ``AppendLimit.check``,
        ``check_frame`` or ``check_records`` and, in topics that are compacted, ``check_keys``;
        ``TopicNotFound`` for a partition whose topic was deleted, ``NotLeader`` for one that moved;
        ``StorageUnavailable`` when a first transactional batch finds no room for its state.
        """
        partition.check_present()
        settings = partition.topic.settings
        header = check_batch(
            batch,
            bytes_max=settings.message_bytes_max,
            is_transaction_served=transaction_version != NO_TRANSACTIONS,
        )
        now_unix_ms = self._clock.unix_ms()
        check_timestamps(
            header,
            now_unix_ms,
            before_ms_max=settings.timestamp_before_ms_max,
            after_ms_max=settings.timestamp_after_ms_max,
            is_stamped=settings.log_append_time,
        )
        if header.is_idempotent and partition.producers is not None:
            known = partition.producers.check(header)
            if known is not None:
                self.duplicates_answered += 1
                end_offset = known.base_offset + known.record_count
                return Duplicate(partition, known.base_offset, end_offset)
        if header.attributes & TRANSACTIONAL_MASK or partition.transactions is not None:
            check_transaction(partition, header, transaction_version)
            if partition.transactions is None:
                self.on_first_transaction(partition)
        if settings.is_queue or settings.in_memory or self._holders.stopped:
            self._holders.check_room(partition, len(batch))
        if self.append_limits:
            self._check_limit(partition, header, len(batch))
        if settings.compacts:
            check_keys(batch, header, bytes_max=settings.message_bytes_max)
        elif settings.looks_inside or header.attributes & COMPRESSION_MASK:
            self._check_inside(batch, header, settings)
        if settings.log_append_time:
            header = stamp_append_time(batch, header, now_unix_ms)
        return Write(partition, batch, header)

    def _check_limit(self, partition: Partition, header: BatchHeader, size_bytes: int) -> None:
        """Raise ``QueueFull`` when a queue of the partition refuses a batch."""
        limit = self.append_limits.get(partition.partition_id)
        if limit is not None:
            limit.check(size_bytes // max(header.record_count, 1))

    def prepare_marker(
        self, partition: Partition, marker: Marker, *, transaction_version: int
    ) -> Write | None:
        """Return the write that ends a producer's transaction in a partition.

        None when the marker was appended before, and for topics in memory, which take no
        transactions. Append it before the next turn of the loop.
        Without an open transaction it is appended too, and sets the producer's epoch. Errors:
        ``ProducerFenced``, ``CoordinatorFenced``; ``TopicNotFound``, ``NotLeader``.
        """
        partition.check_present()
        is_refused = partition.topic.settings.in_memory
        if is_refused or not check_marker(partition, marker, transaction_version):
            return None
        if partition.transactions is None:
            self.on_first_transaction(partition)
        batch = encode_marker(marker, self._clock.unix_ms())
        return Write(partition, batch, parse_batch_header(batch))

    def _check_inside(
        self, batch: bytearray | memoryview, header: BatchHeader, settings: TopicSettings
    ) -> None:
        if settings.looks_inside or settings.is_queue:
            check_records(batch, header, bytes_max=settings.message_bytes_max)
        else:
            check_frame(batch, header)

    def append(
        self, writes: Sequence[Write], on_done: OnDone, *, reserved: bool = False
    ) -> None:
        """Append all of ``writes`` atomically; their offsets are set when this returns.

        ``on_done`` runs once, on the loop, after this has returned and after readers can see the
        writes; appends of one log complete in the order of their calls. Errors, with nothing
        changed: ``StorageFull``, ``StorageUnavailable``, ``RunTooLarge``, and ``NotLeader`` when
        another node owns one of the partitions: owners are read here, in the turn of ``enqueue``.
        """
        for write in writes:
            if write.is_split:
                self._append_split(writes, on_done, reserved=reserved)
                return
            if write.partition.moved_to is not None:
                write.partition.check_present()
            if isinstance(write, FanOutWrite):
                write.check_present()
        entries = []
        for write in writes:
            partition = write.partition
            write.base_offset = base_offset = partition.log_end_offset
            partition.log_end_offset = write.end_offset
            if isinstance(write, FanOutWrite):
                entries += write.locate()
                continue
            stamp(write.batch, base_offset, partition.leader_epoch)
            entries.append(
                Entry(
                    (Target(partition.partition_id, base_offset),),
                    write.batch,
                    write.offset_count,
                    write.header.max_timestamp_unix_ms,
                )
            )
        pending = _Pending(self, writes, on_done)
        try:
            self._storage.enqueue(entries, pending.done, reserved=reserved)
        except BaseException:
            _take_offsets_back(writes)
            raise
        self.pending.append(pending)
        self._count(writes)

    def _append_split(
        self, writes: Sequence[Write], on_done: OnDone, *, reserved: bool
    ) -> None:
        """Append the writes with what steps hold back of them; see ``append``."""
        whole, done, splits = begin_splits(writes, on_done)
        try:
            self.append(whole, done, reserved=reserved)
        except GatewayError as error:
            end_held(splits, as_value(error))
            raise

    def end_pending(self) -> Sequence[OnDone]:
        """Remove the appends that are done and have none before them; return their followers.

        One in memory only may be done before earlier ones that are not durable yet.
        """
        pending = self.pending
        followers: list[OnDone] | None = None
        while pending and pending[0].is_done:
            first = pending.popleft()
            if first.followers is not None:
                followers = [*(followers or ()), *first.followers]
        return followers or ()

    def after_pending(self, on_done: OnDone) -> bool:
        """Run ``on_done`` when all pending appends are done; return False when there are none."""
        if not self.pending:
            return False
        last = self.pending[-1]
        if last.followers is None:
            last.followers = []
        last.followers.append(on_done)
        return True

    @property
    def is_saturated(self) -> bool:
        """Whether ``wal_queued_bytes_max`` is reached: appenders wait until the queue is low."""
        # Without an append of ours on its way nobody would call those who are held.
        return (
            bool(self.pending)
            and self._storage.queued_bytes >= self._config.wal_queued_bytes_max
        )

    def hold(self, release: Callable[[], None]) -> None:
        """Call ``release`` once, when the queue has fallen to ``wal_queued_bytes_low``."""
        self.held[release] = None

    def unhold(self, release: Callable[[], None]) -> None:
        """Do not call ``release`` any more: the held appender has gone."""
        self.held.pop(release, None)

    def release_when_low(self) -> None:
        """Release the held appenders when the queue is low."""
        if self._storage.queued_bytes > self._config.wal_queued_bytes_low:
            return
        held, self.held = self.held, {}
        for release in held:
            release()

    def _count(self, writes: Sequence[Write]) -> None:
        for write in writes:
            header, size_bytes = write.header, len(write.batch)
            self.batches_appended += 1
            self.records_appended += header.record_count
            self.bytes_appended += size_bytes
            traffic = write.partition.topic.traffic
            traffic.records_in += header.record_count
            traffic.bytes_in += size_bytes
            for further in write.further:  # of a fan-out or a marker; nearly always none
                traffic = further.partition.topic.traffic
                traffic.records_in += header.record_count
                traffic.bytes_in += size_bytes
            if header.is_idempotent:
                self._record_producer(write)
                for further in write.further:  # of a marker
                    self._record_producer(further)

    def _record_producer(self, write: Write) -> None:
        partition, header = write.partition, write.header
        producers = partition.producers
        if producers is None:
            producers = ProducerSequences(producers_max=self._config.producer_ids_max)
            partition.producers = producers
        now_unix_ms = self._clock.unix_ms()
        if header.attributes & IN_TRANSACTION_MASK:
            marker = decode_marker(write.batch) if header.is_control else None
            record_transaction(
                partition, producers, header, write.base_offset, now_unix_ms, marker
            )
        else:
            producers.record(
                header, write.base_offset, now_unix_ms, pinned_producers(partition)
            )
        if not partition.topic.settings.in_memory:  # what outlives the process is about others
            self.producers_changed.add(partition)
