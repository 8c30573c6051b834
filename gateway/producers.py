"""Producer state across restarts: from snapshots in an internal stream and the log.

Each ``producer_snapshot_bytes`` of appends, and each minute with any, the partitions whose
idempotent producers have changed are written to ``__producers`` (key: partition id, value:
``ProducerSequences.snapshot``), and when all of them are kept, the log sequence from which on they
may not hold; then the storage may let older headers go. A start reads the stream, then the headers
of the batches from that sequence on. The state of a batch is in the batch, so the two cannot
disagree; to replay what a snapshot knows already does no harm.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from features.dedup import ProducerSequences
from gateway.broker import Broker
from gateway.clock import Clock
from gateway.config.settings import BrokerConfig
from gateway.errors import GatewayError, MessageTooLarge, TopicNotFound, as_value
from gateway.model import unpack_batch_header
from gateway.partition import Partition
from gateway.sharded_stream import ShardedStream, rule_of_partition_ids
from gateway.storage import StoredHeader
from gateway.streams import Item
from gateway.topics.manager import TopicManager

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
    ) -> None:
        self._stream = stream
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

    async def load(self) -> None:
        """Rebuild the state, once, before clients can produce."""
        from_sequence = 0
        for key, value in (await self._stream.load()).items():
            if key == _SEQUENCE_KEY:
                from_sequence = int.from_bytes(value, "big")
            elif (partition := self._find(int.from_bytes(key, "big"))) is not None:
                self._sequences(partition).restore(value)
            else:
                self._gone.add(key)
        now_unix_ms = self._clock.unix_ms()
        for stored in self._broker.storage.scan(from_sequence):
            self._replay(stored, now_unix_ms)
        # As long as no later snapshot is there, the next start begins there again.
        self._broker.storage.release_scans_before(from_sequence)
        self._timer = self._loop.call_later(CHECK_EVERY_S, self._check)

    def close(self) -> None:
        """Write a last snapshot, so that the next start reads little."""
        self.stop()
        self._snapshot()
        self._stream.flush()

    def stop(self) -> None:
        """Stop the snapshots."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _replay(self, stored: StoredHeader, now_unix_ms: int) -> None:
        header = unpack_batch_header(stored.header)
        if not header.is_idempotent:
            return
        for target in stored.targets:
            partition = self._find(target.partition_id)
            if partition is not None:
                self._sequences(partition).record(header, target.base_offset, now_unix_ms)
                self._broker.writer.producers_changed.add(partition)

    def _find(self, partition_id: int) -> Partition | None:
        """Return a partition by its id, or None when its topic was deleted."""
        try:
            identity = self._topics.identify(partition_id)
        except TopicNotFound:
            return None
        topic = self._topics.by_uuid(identity.topic_uuid)
        return None if topic is None else self._broker.partition(topic, identity.number)

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
        next_sequence = self._broker.storage.next_sequence
        if not (writer.producers_changed or self._gone):
            if not self._unanswered:  # Then the last snapshot holds all there is to know.
                self._broker.storage.release_scans_before(next_sequence)
            return
        changed, writer.producers_changed = writer.producers_changed, set()
        self._unanswered += 1
        sequence = next_sequence.to_bytes(_SEQUENCE_BYTES, "big")
        items: list[Item] = [(key, None) for key in self._gone]
        items += [
            (
                partition.partition_id.to_bytes(_ID_BYTES, "big"),
                partition.producers.snapshot() if partition.producers else None,
            )
            for partition in changed
        ]
        self._gone.clear()

        def on_done(error: GatewayError | None) -> None:
            self._unanswered -= 1
            if error is not None:
                writer.producers_changed |= changed  # the next snapshot holds them too
                log.warning("no snapshot of producer state", error=str(error))
                return
            self._broker.storage.release_scans_before(next_sequence)

        try:
            self._stream.put([*items, (_SEQUENCE_KEY, sequence)], on_done)
        except MessageTooLarge:  # together; one by one they fit
            _Parts(self._stream, (_SEQUENCE_KEY, sequence), on_done).put(items)

    def _expire(self) -> None:
        self._expire_at_ms = self._clock.monotonic_ms() + EXPIRE_EVERY_MS
        used_before_unix_ms = self._clock.unix_ms() - self._config.producer_id_expiration_ms
        for partition in tuple(self._known):
            producers = partition.producers
            if producers is not None and producers.expire(used_before_unix_ms):
                self._broker.writer.producers_changed.add(partition)
            if not producers:
                self._known.discard(partition)


class _Parts:
    """Snapshot in several appends; its sequence is written after all others are durable."""

    def __init__(
        self, stream: ShardedStream, last: Item, on_done: Callable[[GatewayError | None], None]
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
        else:
            self._stream.put([self._last], self._on_done)
