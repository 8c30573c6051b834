"""Producer state across restarts: from snapshots in an internal stream and the log.

Each ``producer_snapshot_bytes`` of appends, and each minute with any, the partitions whose
idempotent producers have changed are written to ``__producers`` (key: partition id, value:
``ProducerSequences.snapshot``), and when all of them are kept, the log sequence from which on they
may not hold; then the storage may let older headers go. A start reads the stream, then the headers
of the batches from that sequence on. The state of a batch is in the batch, so the two cannot
disagree; to replay what a snapshot knows already does no harm. Open and aborted transactions are
kept in the same way, in a topic of their own (``gateway.transaction_states``).

A shard that leaves takes snapshots of all its partitions with it, so that its next owner needs no
header of this node's log. A node that does not own all shards has a sequence of its own, under
"sequence" and its id (4 bytes), since each node has its own log.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

import structlog

from features.dedup import ProducerSequences
from gateway.broker import Broker
from gateway.clock import Clock
from gateway.config.settings import BrokerConfig
from gateway.errors import GatewayError, MessageTooLarge, NotLeader, TopicNotFound, as_value
from gateway.model import unpack_batch_header
from gateway.partition import Partition
from gateway.placement import shard_of
from gateway.sharded_stream import ShardedStream, rule_of_partition_ids
from gateway.storage import StoredHeader
from gateway.streams import Item
from gateway.topics.manager import TopicManager
from gateway.transaction_states import TransactionStates
from gateway.transactional_writes import (
    IN_TRANSACTION_MASK,
    marker_of,
    pinned_producers,
    record_transaction,
)

PRODUCERS_TOPIC: Final = "__producers"
CHECK_EVERY_S: Final = 1.0
EXPIRE_EVERY_MS: Final = 60_000
SNAPSHOT_EVERY_MS: Final = 60_000  # at the latest, while anything is appended

_SEQUENCE_KEY: Final = b"sequence"
_ID_BYTES: Final = 4
_SEQUENCE_BYTES: Final = 8

log = structlog.get_logger()


async def open_producers(broker: Broker, topics: TopicManager, clock: Clock) -> ShardedStream:
    """Return the stream of the snapshots, not loaded.

    A partition's snapshot is in its shard. The sequence is the log's, and lies in shard 0.
    """
    rule = rule_of_partition_ids(topics, broker.placement)
    return await ShardedStream.open(PRODUCERS_TOPIC, broker, topics, clock, rule=rule)


class ProducerStates:
    """Loads, snapshots and expires the ``features.dedup`` state of each partition."""

    def __init__(
        self,
        stream: ShardedStream,
        broker: Broker,
        topics: TopicManager,
        clock: Clock,
        config: BrokerConfig,
        *,
        transactions: TransactionStates | None = None,
    ) -> None:
        """``transactions``: saved and loaded together; None keeps them in memory only."""
        self._stream = stream
        self._transactions = transactions
        if transactions is not None:
            transactions.find = self._find
        self._broker = broker
        self._topics = topics
        self._clock = clock
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._snapshot_at_bytes = config.producer_snapshot_bytes
        self._snapshot_at_ms = clock.monotonic_ms() + SNAPSHOT_EVERY_MS
        self._bytes_at_snapshot = 0
        self._unanswered = 0  # snapshots that are not durable yet
        self._expire_at_ms = clock.monotonic_ms() + EXPIRE_EVERY_MS
        self._known: set[Partition] = set()
        self._gone: set[bytes] = set()  # keys whose partitions are no more
        node_id = broker.placement.node_id
        self._sequence_key = _SEQUENCE_KEY + node_id.to_bytes(_ID_BYTES, "big", signed=True)
        self._released_sequence = 0  # all before it in the log is in snapshots

    async def load(self) -> None:
        """Rebuild the state of the node's shards, once, before clients can produce."""
        shards = self._broker.shards
        if self._transactions is not None:
            await self._transactions.load_shards(shards.owned())
            shards.register(self._transactions)
        await self._stream.load_shards(shards.owned())
        value = self._stream.get(self._sequence_key) or self._stream.get(_SEQUENCE_KEY)
        from_sequence = 0 if value is None else int.from_bytes(value, "big")
        self._restore(shards.owned())
        self._replay_from(from_sequence, shards.owned())
        # As long as no later snapshot is there, the next start begins there again.
        self._release(from_sequence)
        self._timer = self._loop.call_later(CHECK_EVERY_S, self._check)
        shards.register(self)

    @property
    def open_shards(self) -> Collection[int]:
        """See ``ShardState``."""
        return self._stream.open_shards

    async def load_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``: from the snapshots of the former owner, and this node's log."""
        await self._stream.load_shards(shards)
        self._restore(shards)
        self._replay_from(self._released_sequence, shards)

    def quiesce_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``: write what has changed since the last snapshot."""
        writer = self._broker.writer
        for partition in [one for one in writer.producers_changed if one.shard in shards]:
            try:
                self._stream.put([_item_of(partition)], partial(_log_failure, partition))
            except GatewayError as error:
                _log_failure(partition, as_value(error))

    def close_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``."""
        self._stream.close_shards(shards)
        self._known = {one for one in self._known if not one.is_gone}

    def _restore(self, shards: Collection[int]) -> None:
        """Restore snapshots; those of deleted partitions are to be removed."""
        for key, value in self._stream.items_of(shards):
            if len(key) != _ID_BYTES:
                continue  # a sequence
            if (partition := self._find(int.from_bytes(key, "big"))) is not None:
                self._sequences(partition).restore(value)
            else:
                self._gone.add(key)

    def _replay_from(self, sequence: int, shards: Collection[int]) -> None:
        now_unix_ms = self._clock.unix_ms()
        wanted = frozenset(shards)
        for stored in self._broker.storage.scan(sequence):
            self._replay(stored, now_unix_ms, wanted)
        for partition in self._broker.writer.transactional:
            if partition.shard in wanted:
                partition.move_stable_end()

    def _release(self, sequence: int) -> None:
        self._released_sequence = sequence
        self._broker.storage.release_scans_before(sequence)

    def close(self) -> None:
        """Write a last snapshot, so that the next start reads little."""
        self.stop()
        self._broker.shards.unregister(self)
        if self._transactions is not None:
            self._broker.shards.unregister(self._transactions)
        self._snapshot()
        self._stream.flush()

    def stop(self) -> None:
        """Stop the snapshots."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _replay(self, stored: StoredHeader, now_unix_ms: int, shards: Collection[int]) -> None:
        header = unpack_batch_header(stored.header)
        if not header.is_idempotent:
            return
        for target in stored.targets:
            partition = self._find(target.partition_id)
            if partition is not None and partition.shard in shards:
                sequences = self._sequences(partition)
                if header.attributes & IN_TRANSACTION_MASK:
                    marker = marker_of(header, is_abort=stored.is_abort)
                    record_transaction(
                        partition, sequences, header, target.base_offset, now_unix_ms, marker
                    )
                    self._broker.writer.transactional.add(partition)
                else:
                    pinned = pinned_producers(partition)
                    sequences.record(header, target.base_offset, now_unix_ms, pinned)
                self._broker.writer.producers_changed.add(partition)

    def _find(self, partition_id: int) -> Partition | None:
        """Return a partition by its id; None for a deleted topic, or another node's partition."""
        try:
            identity = self._topics.identify(partition_id)
        except TopicNotFound:
            return None
        topic = self._topics.by_uuid(identity.topic_uuid)
        placement = self._broker.placement
        if topic is None or not placement.owns(shard_of(topic, identity.number, placement)):
            return None
        return self._broker.loaded_partition(topic, identity.number)

    def _sequences(self, partition: Partition) -> ProducerSequences:
        if partition.producers is None:
            partition.producers = ProducerSequences(producers_max=self._config.producer_ids_max)
        self._known.add(partition)
        return partition.producers

    def _check(self) -> None:
        """Take due snapshots and expire idle producers, once a second."""
        self._timer = self._loop.call_later(CHECK_EVERY_S, self._check)
        writer = self._broker.writer
        self._known |= writer.producers_changed
        if writer.bytes_appended >= self._snapshot_at_bytes or (
            self._clock.monotonic_ms() >= self._snapshot_at_ms
            and writer.bytes_appended > self._bytes_at_snapshot
        ):
            self._snapshot()
        if self._clock.monotonic_ms() >= self._expire_at_ms:
            self._expire()

    def _snapshot(self) -> None:
        writer = self._broker.writer
        self._snapshot_at_bytes = writer.bytes_appended + self._config.producer_snapshot_bytes
        self._snapshot_at_ms = self._clock.monotonic_ms() + SNAPSHOT_EVERY_MS
        self._bytes_at_snapshot = writer.bytes_appended
        if self._transactions is not None and not self._transactions.snapshot():
            self._snapshot_soon()  # a start replays both from the same place
            return
        next_sequence = self._broker.storage.next_sequence
        if not (writer.producers_changed or self._gone):
            if not self._unanswered:  # Then the last snapshot holds all there is to know.
                self._release(next_sequence)
            return
        changed, writer.producers_changed = writer.producers_changed, set()
        gone, self._gone = self._gone, set()
        self._unanswered += 1
        sequence = next_sequence.to_bytes(_SEQUENCE_BYTES, "big")
        items: list[Item] = [(key, None) for key in gone]
        items += map(_item_of, changed)

        def on_done(error: GatewayError | None) -> None:
            self._unanswered -= 1
            if error is not None:
                # The next snapshot holds them too.
                self._gone |= gone
                writer.producers_changed |= {one for one in changed if one.moved_to is None}
                log.warning("no snapshot of producer state", error=str(error))
                return
            self._release(next_sequence)

        # While shard 0 is another node's, a start reads all headers that the log has.
        key = _SEQUENCE_KEY if self._broker.placement.owns_all else self._sequence_key
        last = [(key, sequence)] if 0 in self.open_shards else []
        try:
            self._stream.put([*items, *last], on_done)
        except MessageTooLarge:  # together; one by one they fit
            _Parts(self._stream, last, on_done).put(items)
        except NotLeader as error:  # a shard is being closed, or opened: soon again
            on_done(as_value(error))
            self._snapshot_soon()

    def _snapshot_soon(self) -> None:
        self._snapshot_at_ms = self._clock.monotonic_ms()
        self._bytes_at_snapshot = -1

    def _expire(self) -> None:
        self._expire_at_ms = self._clock.monotonic_ms() + EXPIRE_EVERY_MS
        used_before_unix_ms = self._clock.unix_ms() - self._config.producer_id_expiration_ms
        for partition in tuple(self._known):
            producers = partition.producers
            pinned = pinned_producers(partition)
            if producers is not None and producers.expire(used_before_unix_ms, pinned):
                self._broker.writer.producers_changed.add(partition)
            if not producers:
                self._known.discard(partition)


def _item_of(partition: Partition) -> Item:
    key = partition.partition_id.to_bytes(_ID_BYTES, "big")
    return key, partition.producers.snapshot() if partition.producers else None


def _log_failure(partition: Partition, error: GatewayError | None) -> None:
    if error is not None:
        log.warning(
            "producer state not handed over", partition=repr(partition), error=str(error)
        )


class _Parts:
    """Snapshot in several appends; its sequence is written after all others are durable."""

    def __init__(
        self,
        stream: ShardedStream,
        last: Sequence[Item],
        on_done: Callable[[GatewayError | None], None],
    ) -> None:
        self._stream = stream
        self._last = last
        self._on_done = on_done
        self._missing_count = 0
        self._error: GatewayError | None = None

    def put(self, items: Sequence[Item]) -> None:
        """Write the items one by one; ``on_done`` runs once, after the last."""
        self._missing_count = len(items)
        for item in items:
            try:
                self._stream.put([item], self._done)
            except GatewayError as error:
                self._done(as_value(error))

    def _done(self, error: GatewayError | None) -> None:
        self._error = self._error or error
        self._missing_count -= 1
        if self._missing_count:
            return
        if self._error is not None:
            self._on_done(self._error)
            return
        try:
            self._stream.put(self._last, self._on_done)
        except NotLeader as moved:  # shard 0 has left
            self._on_done(as_value(moved))
