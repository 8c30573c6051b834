"""Compaction: chooses partitions, time and range; ``features`` decides which records stay.

A topic with ``cleanup.policy=compact`` is cleaned partition by partition, the dirtiest first,
up to what the storage can rewrite (settled data), what is older than ``min.compaction.lag.ms``
and what no holder needs. A round reads what is new, notes the keys in a map of bounded size,
and has the storage rewrite all before the round's end; a partition with more new keys than it
holds takes several rounds. Where a partition is clean up to is kept in the internal stream
``__compaction`` (key: partition id u32; value: version u8, offset i64, clean bytes u64): when
that is lost, it is read again, nothing else. Internal topics keep themselves small.
"""

import asyncio
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeGuard

import structlog

from features.compaction import Cleaner, Codec, OffsetMap, bytes_for
from gateway.broker import Broker
from gateway.clock import Clock
from gateway.config.settings import CompactionConfig
from gateway.errors import GatewayError, StorageUnavailable
from gateway.futures import await_done
from gateway.metrics import Metrics
from gateway.model import Buffer, parse_batch_header
from gateway.records.codec import DECOMPRESSED_BYTES_MAX
from gateway.records.compression import compress, decompress
from gateway.sharded_stream import ShardedStream, rule_of_partition_ids
from gateway.storage import Bounds, CompactingStorage, StorageAdapter
from gateway.topics.config_specs import INT64_MAX
from gateway.topics.manager import Topic, TopicManager
from gateway.upkeep.compaction_throttle import CompactionStopped, ReadThrottle, short_turns

COMPACTION_TOPIC: Final = "__compaction"
PARTITIONS_PER_TICK: Final = 64  # looked at before others have their turn on the loop
READ_BYTES: Final = 4_194_304
RETRY_MS: Final = 60_000

_VERSION: Final = 0
_VALUE: Final = struct.Struct(">BqQ")
_ID_BYTES: Final = 4
_CODEC: Final = Codec(partial(decompress, bytes_max=DECOMPRESSED_BYTES_MAX), compress)

_log = structlog.get_logger()


class Clean(NamedTuple):
    """Clean part of a partition: below ``offset``, with ``size_bytes``."""

    offset: int
    size_bytes: int


class Dirty(NamedTuple):
    """Offsets of a partition to be cleaned, and the share of new bytes."""

    topic: Topic
    number: int
    start: int
    end: int
    ratio: float

    @property
    def partition_id(self) -> int:
        """The partition's id."""
        return self.topic.partition_ids[self.number]


def can_compact(storage: StorageAdapter) -> TypeGuard[CompactingStorage]:
    """Say whether a storage (a plug-in's, for example) can rewrite batches."""
    return hasattr(storage, "rewrite")


async def open_clean_offsets(
    broker: Broker, topics: TopicManager, clock: Clock
) -> ShardedStream:
    """Return the stream of clean offsets, not loaded; each is in its partition's shard."""
    rule = rule_of_partition_ids(topics, broker.placement)
    return await ShardedStream.open(COMPACTION_TOPIC, broker, topics, clock, rule=rule)


class Compaction:
    """Periodic compaction of all compacted topics. Loop only, except for decoding."""

    def __init__(
        self,
        broker: Broker,
        topics: TopicManager,
        clock: Clock,
        config: CompactionConfig,
        stream: ShardedStream,
    ) -> None:
        self.rounds = 0
        self.bytes_read = 0
        self.bytes_removed = 0
        self.records_removed = 0
        self.batches_undecodable = 0
        self.failures = 0
        assert can_compact(broker.storage), "the caller has asked"
        self._storage: CompactingStorage = broker.storage
        self._broker = broker
        self._topics = topics
        self._clock = clock
        self._config = config
        self._stream = stream
        self._pace = ReadThrottle(clock, config.bytes_per_s_max)
        self._retry_at_ms: dict[int, int] = {}
        self._looked_at = 0
        self._task: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Load the clean offsets; once, before ``start``. Errors: as ``InternalStream.load``."""
        await self._stream.load()
        self._broker.shards.register(self._stream)

    def start(self) -> None:
        """Start, with the first pass after one interval."""
        assert self._task is None
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Stop, also in the middle of a round, which then changes nothing."""
        self._pace.stopped.set()
        self._broker.shards.unregister(self._stream)
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._stream.flush()

    def clean(self, partition_id: int) -> Clean:
        """Return the offset below which a partition is clean."""
        value = self._stream.get(_key(partition_id))
        return Clean(*_VALUE.unpack(value)[1:]) if value else Clean(0, 0)

    def forget(self, partition_ids: Iterable[int]) -> None:
        """Forget deleted partitions."""
        keys = []
        for partition_id in partition_ids:
            self._retry_at_ms.pop(partition_id, None)
            if partition_id >> (8 * _ID_BYTES) == 0:  # else transient, and never compacted
                keys.append(_key(partition_id))
        known = [(key, None) for key in keys if self._stream.get(key) is not None]
        if known:
            self._stream.put(known, _ignore)

    async def run_once(self) -> None:
        """Clean the partitions that are dirty enough; retry failures some passes later."""
        found = [
            dirty for topic in self._topics.everything() for dirty in await self._of(topic)
        ]
        for dirty in sorted(found, key=lambda dirty: -dirty.ratio):
            try:
                with short_turns():
                    await self._clean(dirty)
            except CompactionStopped:
                raise
            except GatewayError as error:
                self._on_failure(dirty, error)

    def _on_failure(self, dirty: Dirty, error: GatewayError) -> None:
        """Postpone the retry of a failed partition, so that others are cleaned first."""
        self.failures += 1
        self._retry_at_ms[dirty.partition_id] = self._clock.monotonic_ms() + RETRY_MS
        name = dirty.topic.name.name
        _log.warning("not compacted", topic=name, partition=dirty.number, error=str(error))

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._config.interval_ms / 1000)
            try:
                await self.run_once()
            except GatewayError as error:
                self.failures += 1
                _log.warning("compaction ended early", error=str(error))

    # --- what is dirty

    async def _of(self, topic: Topic) -> list[Dirty]:
        if topic.is_internal or not topic.settings.compacts:
            return []
        found = [
            await self._look_at(topic, number) for number in range(len(topic.partition_ids))
        ]
        return [dirty for dirty in found if dirty is not None]

    async def _look_at(self, topic: Topic, number: int) -> Dirty | None:
        """Return the range to clean in a partition, None when it is not dirty enough."""
        self._looked_at += 1
        if self._looked_at % PARTITIONS_PER_TICK == 0:
            await asyncio.sleep(0)
        partition_id = topic.partition_ids[number]
        if self._retry_at_ms.get(partition_id, 0) > self._clock.monotonic_ms():
            return None
        if not self._broker.owns(topic, number):
            return None
        bounds = self._storage.bounds(partition_id)
        clean = self.clean(partition_id)
        start = min(max(clean.offset, bounds.start), bounds.end)
        end = await self._end(topic, number, start)
        if end <= start:
            return None
        ratio = self._ratio(partition_id, clean, bounds, start, end)
        if ratio > topic.settings.dirty_ratio_min or await self._is_overdue(
            topic, partition_id, start, end
        ):
            return Dirty(topic, number, start, end, ratio)
        return None

    async def _end(self, topic: Topic, number: int, start: int) -> int:
        """Return the end of the range to clean; at or below ``start`` when there is none."""
        partition_id = topic.partition_ids[number]
        end = self._storage.settled_offset(partition_id)
        if end > start:
            # No transaction is open in what is cleaned.
            end = min(end, self._broker.partition(topic, number).stable_end)
        lowest = self._broker.holders.lowest(partition_id)
        if lowest is not None:
            end = min(end, lowest)
        lag_ms = topic.settings.compaction_lag_ms_min
        if lag_ms and end > start:
            young_unix_ms = self._clock.unix_ms() - lag_ms + 1
            first_young = await self._storage.base_offset_for_time(partition_id, young_unix_ms)
            end = end if first_young is None else min(end, first_young)
        return end

    def _ratio(
        self, partition_id: int, clean: Clean, bounds: Bounds, start: int, end: int
    ) -> float:
        """Return the share of new bytes, without those that cannot be cleaned.

        How many of the new ones can be is judged by their offsets.
        """
        size_bytes = self._storage.size_bytes(partition_id)
        clean_bytes = min(clean.size_bytes, size_bytes) if clean.offset > bounds.start else 0
        new_bytes = (size_bytes - clean_bytes) * (end - start) / (bounds.end - start)
        return new_bytes / (new_bytes + clean_bytes) if new_bytes else 0.0

    async def _is_overdue(self, topic: Topic, partition_id: int, start: int, end: int) -> bool:
        """Whether the oldest new batch has waited for longer than ``max.compaction.lag.ms``."""
        lag_ms = topic.settings.compaction_lag_ms_max
        if lag_ms == INT64_MAX:
            return False
        batches = await self._storage.read(partition_id, start, end, bytes_max=1)
        if not batches:
            return False
        oldest_unix_ms = parse_batch_header(batches[0]).max_timestamp_unix_ms
        return 0 < oldest_unix_ms < self._clock.unix_ms() - lag_ms

    # --- cleaning

    async def _clean(self, dirty: Dirty) -> None:
        """Clean a partition, in as many rounds as the key map needs."""
        start = dirty.start
        transactions = self._broker.partition(dirty.topic, dirty.number).transactions
        if transactions is not None:
            # Passes before this one have removed what was aborted there.
            transactions.cleaned_end = self.clean(dirty.partition_id).offset
        while start < dirty.end and self._topics.by_uuid(dirty.topic.uuid) is dirty.topic:
            cleaner = self._cleaner(dirty, start)
            reached = await self._note(cleaner, dirty.partition_id, start, dirty.end)
            await asyncio.to_thread(cleaner.seal)
            if reached == start or not self._may_rewrite(dirty, reached):
                return
            clean = Clean(reached, self.clean(dirty.partition_id).size_bytes)
            if cleaner.end_offset:
                clean = await self._rewrite(cleaner, dirty, reached)
            if clean.offset <= start:
                return
            await self._remember(dirty.partition_id, clean)
            self._retry_at_ms.pop(dirty.partition_id, None)
            start = clean.offset

    def _may_rewrite(self, dirty: Dirty, reached: int) -> bool:
        """Check again whether the partition may be rewritten, after the keys were read."""
        lowest = self._broker.holders.lowest(dirty.partition_id)
        is_there = self._topics.by_uuid(dirty.topic.uuid) is dirty.topic
        is_there = is_there and self._broker.owns(dirty.topic, dirty.number)
        return is_there and (lowest is None or lowest >= reached)

    def _cleaner(self, dirty: Dirty, start: int) -> Cleaner:
        partition = self._broker.partition(dirty.topic, dirty.number)
        producers = partition.producers.active() if partition.producers else ()
        transactions = partition.transactions
        map_bytes = min(bytes_for(dirty.end - start), self._config.map_bytes_max)
        return Cleaner(
            OffsetMap(map_bytes),
            _CODEC,
            now_unix_ms=self._clock.unix_ms(),
            delete_retention_ms=dirty.topic.settings.delete_retention_ms,
            last_of_producers={
                one.producer_id: one.last_batch.base_offset
                for one in producers
                if one.last_batch is not None
            },
            aborted=(
                None if transactions is None else transactions.aborted.ranges_before(dirty.end)
            ),
        )

    async def _note(self, cleaner: Cleaner, partition_id: int, start: int, end: int) -> int:
        """Read keys until the map is full or ``end`` is reached; return the round's end."""
        offset = start
        batches = await self._storage.read(partition_id, start, end, bytes_max=READ_BYTES)
        while batches:
            # The disk is read while what came before is decoded.
            behind = parse_batch_header(batches[-1]).last_offset + 1
            noting = asyncio.to_thread(self._note_all, cleaner, batches, offset, end)
            reading = self._storage.read(partition_id, behind, end, bytes_max=READ_BYTES)
            reached, following = await asyncio.gather(noting, reading)
            self.bytes_read += sum(map(len, batches))
            if reached < min(behind, end):
                return reached  # The map is full, or a batch reaches beyond the end.
            if reached >= end:
                return reached
            offset, batches = reached, following
        return end  # Nothing is left there: all of it was cleaned away before.

    def _note_all(
        self, cleaner: Cleaner, batches: Sequence[Buffer], offset: int, end: int
    ) -> int:
        """Read the keys of whole batches; return the offset after the last. In a worker thread."""
        for batch in batches:
            self._pace.wait_for(batch)
            next_offset = parse_batch_header(batch).last_offset + 1
            if next_offset > end or not cleaner.note(batch):
                break
            offset = next_offset
        return offset

    async def _rewrite(self, cleaner: Cleaner, dirty: Dirty, reached: int) -> Clean:
        """Rewrite the batches before the round's end; return the new clean offset."""
        read_bytes = 0

        def keep(batch: Buffer) -> Buffer | None:
            nonlocal read_bytes
            self._pace.wait_for(batch)
            read_bytes += len(batch)
            return cleaner.keep(batch)

        done = await self._storage.rewrite(
            dirty.partition_id, cleaner.end_offset, keep, cleaner.drops
        )
        self.rounds += 1
        self.bytes_read += read_bytes
        before_bytes = read_bytes + cleaner.dropped_bytes
        self.bytes_removed += max(before_bytes - cleaner.kept_bytes, 0)
        self.records_removed += cleaner.records_removed
        self.batches_undecodable += cleaner.undecodable
        _log.info(
            "compacted",
            topic=dirty.topic.name.name,
            partition=dirty.number,
            end_offset=cleaner.end_offset,
            bytes_before=before_bytes,
            bytes_after=cleaner.kept_bytes,
            records_removed=cleaner.records_removed,
            unkeyed_removed=cleaner.unkeyed_removed,
            undecodable=cleaner.undecodable,
        )
        is_all = done.upto_offset >= cleaner.end_offset
        return Clean(reached if is_all else done.upto_offset, cleaner.kept_bytes)

    async def _remember(self, partition_id: int, clean: Clean) -> None:
        items = [(_key(partition_id), _VALUE.pack(_VERSION, *clean))]
        await await_done(lambda on_done: self._stream.put(items, on_done))

    def register_metrics(self, metrics: Metrics) -> None:
        """Register the metrics."""
        counters: Mapping[str, tuple[str, Callable[[], float]]] = {
            "rounds": ("Rounds of compaction.", lambda: self.rounds),
            "read_bytes": ("Bytes of batches that were read.", lambda: self.bytes_read),
            "removed_bytes": (
                "Bytes by which topics became less.",
                lambda: self.bytes_removed,
            ),
            "removed_records": ("Records that went.", lambda: self.records_removed),
            "undecodable_batches": (
                "Batches that were left alone.",
                lambda: self.batches_undecodable,
            ),
            "failures": ("Partitions, or passes, that ended early.", lambda: self.failures),
        }
        for name, (text, read) in counters.items():
            metrics.counter_fn(f"headgate_compaction_{name}", text, read)


def _key(partition_id: int) -> bytes:
    return partition_id.to_bytes(_ID_BYTES, "big")


def _ignore(_error: StorageUnavailable | None) -> None:
    """Ignore the result: the position of a deleted partition does no harm."""
