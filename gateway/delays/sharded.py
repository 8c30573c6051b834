"""Delayed messages of all shards: each waits in the shard of the partition that it is for.

``ShardedDelays`` is a step of the write path. Partition n of ``__delays`` holds the messages of
shard n, and a shard has ``Delays`` from its first message on. After ``headgate reshard``, and in
directories of earlier versions, messages lie in another shard than their own, and are moved there
(``gateway.delays.moving``).
"""

from collections.abc import Collection, Sequence
from functools import partial
from uuid import UUID

from gateway.broker import Broker
from gateway.clock import Clock
from gateway.config.queues import DelayConfig
from gateway.delays.manager import DEFAULT_BOUNDS, DelayBounds, Delays
from gateway.delays.moving import HomeMoves
from gateway.delays.node_counts import NodeCounts
from gateway.delays.pending_messages import PendingMessages
from gateway.delays.split import due_time_in, split
from gateway.delays.stream import DelayStream
from gateway.errors import NotLeader
from gateway.partition import Partition, Write
from gateway.placement import shard_of
from gateway.records.keyed import KeyedRecords
from gateway.records.record_run import RecordRun, Run
from gateway.storage import OnDone
from gateway.topics.manager import Topic, TopicManager
from gateway.transfer.transfers import Transfers
from gateway.write_steps import BatchSplit


class ShardedDelays:
    """Store of messages until they are due, and the step of the write path. Loop only."""

    def __init__(  # noqa: PLR0913 - its surroundings, made once
        self,
        stream_topic: Topic,
        broker: Broker,
        topics: TopicManager,
        clock: Clock,
        config: DelayConfig,
        *,
        bounds: DelayBounds,
        transfers: Transfers | None = None,
    ) -> None:
        self._topic = stream_topic
        self._broker = broker
        self._topics = topics
        self._clock = clock
        self._config = config
        self._shard_count = broker.placement.shard_count
        self._bounds = DelayBounds(
            bounds.room_bytes // self._shard_count, bounds.bodies_bytes // self._shard_count
        )
        self._counts = NodeCounts(clock, config, broker.incarnation)
        # By partition of the stream, of open shards that have had messages. After ``headgate
        # reshard`` there may be more partitions than shards, until their messages are moved.
        self._by_number: dict[int, Delays] = {}
        self._is_started = False
        self._moved = 0  # by shards that have left
        self._refused = 0
        self.open_shards: set[int] = set()
        self._home_moves = HomeMoves(
            stream_topic,
            broker,
            clock,
            self._by_number,
            self.open_shards,
            self.adopt,
            transfers,
        )

    @classmethod
    async def open(
        cls,
        broker: Broker,
        topics: TopicManager,
        clock: Clock,
        config: DelayConfig,
        *,
        bounds: DelayBounds = DEFAULT_BOUNDS,
        transfers: Transfers | None = None,
    ) -> "ShardedDelays":
        """Return the delays of the node's shards; ``start`` moves what became due meanwhile.

        Without ``transfers``, messages of a shard of another node stay where they are. Errors: as
        ``DelayStream.load``.
        """
        topic = await DelayStream.topic_of(broker, topics)
        delays = cls(topic, broker, topics, clock, config, bounds=bounds, transfers=transfers)
        if transfers is not None:
            transfers.adopters[topic.uuid] = delays.adopt
        await delays.load_shards(broker.shards.owned())
        topics.on_deleted.append(delays.on_topic_deleted)
        broker.write_steps.append(delays)
        broker.shards.register(delays)
        broker.shards.on_open.append(delays._start_shards)
        return delays

    def start(self) -> None:
        """Start to move due messages, after all followers of topics are registered."""
        self._is_started = True
        self._start_shards([one for one in self.open_shards if self._is_served(one)])

    def stop(self) -> None:
        """Stop to move messages."""
        self._is_started = False
        for one in self._by_number.values():
            one.stop()

    def close(self) -> None:
        """Stop, and drop all state."""
        self._broker.shards.unregister(self)
        self._broker.shards.on_open.remove(self._start_shards)
        self._is_started = False
        self._home_moves.close()
        self.close_shards(set(self.open_shards))

    # --- life cycle of shards: see ``gateway.shard_lifecycle.ShardState``

    def quiesce_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``: nothing is only in memory; due messages are moved no more."""
        for one in self._of_shards(shards):
            one.stop()

    def close_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``."""
        self.open_shards.difference_update(shards)
        for one in self._of_shards(shards):
            del self._by_number[one.stream.partition.number]
            one.close()
            self._moved += one.mover.moved
            self._refused += one.mover.refused
        self._count_states()

    async def load_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``. Messages in another shard than their own are moved, if it is open.

        Errors: as ``DelayStream.load``, and ``NotLeader``.
        """
        for number in range(len(self._topic.partition_ids)):
            if number % self._shard_count not in shards:
                continue
            partition = self._partition_of(number)
            if partition.high_watermark > partition.log_start_offset:
                delays = self._new(partition)
                await delays.load(self._home_of)
                self._by_number[number] = delays
        self.open_shards.update(shards)
        self._count_states()
        await self._home_moves.move_all()

    def _of_shards(self, shards: Collection[int]) -> list[Delays]:
        count = self._shard_count
        return [one for number, one in self._by_number.items() if number % count in shards]

    def _start_shards(self, shards: Collection[int]) -> None:
        """Move due messages of shards that are served from now on."""
        if self._is_started:
            for one in self._of_shards(shards):
                one.start()
            self._home_moves.wake()

    def _is_served(self, shard: int) -> bool:
        return self._broker.shards.is_open(shard)

    def _count_states(self) -> None:
        self._counts.states = [one.state for one in self._by_number.values()]

    def _home_of(self, topic_uuid: bytes, number: int) -> int | None:
        """Return the shard of a message's partition; None when its topic was deleted."""
        topic = self._topics.by_uuid(UUID(bytes=topic_uuid))
        return None if topic is None else shard_of(topic, number, self._broker.placement)

    def _partition_of(self, number: int) -> Partition:
        return self._broker.partition(self._topic, number)

    def _new(self, partition: Partition) -> Delays:
        return Delays(
            partition,
            self._broker,
            self._topics,
            self._clock,
            self._config,
            counts=self._counts,
            bounds=self._bounds,
        )

    def of(self, partition: Partition) -> Delays:
        """Return the delays of a partition's shard. Error: ``NotLeader`` when it is not open."""
        found = self._by_number.get(partition.shard)
        if found is None or found.stream.partition.moved_to is not None:
            partition.check_present()
            return self._of_shard(partition.shard)
        return found

    def adopt(self, shard: int, values: Sequence[bytes]) -> list[PendingMessages]:
        """Return entries of other shards as parts of the stream of their own.

        ``PendingMessages.done`` follows. Error: ``NotLeader`` when the shard is not open.
        """
        return self._of_shard(shard).adopt(values)

    def _of_shard(self, shard: int) -> Delays:
        """Return the delays of a shard, new ones if it has had no messages yet."""
        found = self._by_number.get(shard)
        if found is not None and found.stream.partition.moved_to is None:
            return found
        if shard not in self.open_shards or found is not None:
            raise NotLeader(f"delayed messages of shard {shard} are being loaded")
        delays = self._by_number[shard] = self._new(self._partition_of(shard))
        self._count_states()
        if self._is_started and self._is_served(shard):
            delays.start()
        return delays

    # --- the step of the write path: see ``gateway.write_steps.WriteStep``

    def take_batch(self, write: Write) -> BatchSplit | None:
        """Return the records that are due, and those to be delayed; None when all are due.

        Those to be delayed count against the bounds from here on, until the turn of the loop ends.
        Errors: those of ``split``, ``NotLeader``, and as ``Delays.prepare_run``.
        """
        found = split(write, self._clock.unix_ms())
        if found is None:
            return None
        due, messages = found
        partition = write.partition
        delays = self.of(partition)
        delays.reserve(partition.topic, messages)
        return BatchSplit(due, partial(delays.prepare, partition, messages))

    def take_run(self, partition: Partition, run: Run) -> PendingMessages | None:
        """Return a run to be delayed, as a part of its append; None for a run that is due.

        A run has its time, or its headers have one, in a topic with ``delay.enable``. Errors:
        ``InvalidRecord`` for a time that is none, ``NotLeader``, and as ``Delays.prepare_run``.
        """
        if not isinstance(run, RecordRun | KeyedRecords):
            return None  # its records have headers of their own, and none of a reserved name
        due_unix_ms = run.deliver_at_unix_ms
        if due_unix_ms is None:
            due_unix_ms = due_time_in(run.headers)
            if due_unix_ms <= self._clock.unix_ms():
                return None
        return self.of(partition).prepare_run(partition, run, due_unix_ms)

    # --- delayed messages, of all shards of this node

    @property
    def total(self) -> int:
        """Number of delayed messages of all topics."""
        return sum([one.total for one in self._by_number.values()])

    @property
    def moved(self) -> int:
        """Number of messages that were appended to their topics."""
        return self._moved + sum([one.mover.moved for one in self._by_number.values()])

    @property
    def refused(self) -> int:
        """Number of refused appends of due messages."""
        return self._refused + sum([one.mover.refused for one in self._by_number.values()])

    @property
    def is_busy(self) -> bool:
        """Whether messages are being found, read or moved, without a refusal."""
        return any(one.mover.is_busy for one in self._by_number.values())

    def run(self) -> None:
        """Move what is due now, as timers do."""
        for one in tuple(self._by_number.values()):
            one.mover.run()

    def count(self, topic: Topic) -> int:
        """Return the number of delayed messages of a topic."""
        return sum([one.count(topic) for one in self._by_number.values()])

    def purge(self, topic: Topic, on_done: OnDone) -> None:
        """Cancel all delayed messages of a topic, in one append.

        They are not delivered once ``on_done`` has run without an error. Errors, with nothing
        changed: ``StorageUnavailable``.
        """
        present = [
            one for one in self._by_number.values() if one.stream.partition.moved_to is None
        ]
        if not present:
            self._broker.after_pending(on_done)
            return
        writes = [write for one in present for write in one.purge_writes(topic)]
        self._broker.append(writes, on_done, reserved=True)
        for one in present:
            one.purged(topic)

    def on_topic_deleted(self, topic: Topic) -> None:
        """Forget the delayed messages of a deleted topic; a hook of the ``TopicManager``."""
        for one in self._by_number.values():
            one.on_topic_deleted(topic)
