"""The node's queues: made, found, changed and dropped; loaded at a start.

A queue's row is in the metadata store, the state of its messages in the journal. A queue is made
in this order: its entries in the journal, then its row; so every row has entries, and entries
without a row are ignored.
"""

from collections.abc import Mapping
from functools import partial
from itertools import count
from typing import Self
from uuid import UUID

from gateway.broker import Broker
from gateway.clock import Clock
from gateway.coalescer import Coalescer
from gateway.config.metrics import MetricsConfig
from gateway.config.queues import QueueConfig
from gateway.errors import Overloaded, TopicExists, TopicNotFound
from gateway.futures import await_done
from gateway.metadata.change_model import ChangeKind
from gateway.metadata.changes import Changes
from gateway.metadata.store import MetadataStore
from gateway.model import DEFAULT_NAMESPACE, TopicName
from gateway.queues.browsing import Browsed
from gateway.queues.dead_letters import DeadLetters
from gateway.queues.delay_changes import earlier_delays
from gateway.queues.joint_acks import JointAcks
from gateway.queues.journal import QueueJournal
from gateway.queues.lanes import QueueContext, QueueLane
from gateway.queues.lease_ends import OnLapsed
from gateway.queues.memory_queues import MemoryQueues
from gateway.queues.model import DEFAULT_GROUP, QueueRow, QueueSettings
from gateway.queues.pending_receives import PendingReceive, PendingReceives
from gateway.queues.purge_offsets import PURGED, format_purged
from gateway.queues.queue import Queue
from gateway.queues.queue_calls import SERVICE, QueueService
from gateway.queues.queue_counters import CountersByQueue, QueueCounters
from gateway.queues.queue_index import QueueIndex
from gateway.queues.queue_shards import QueueShards
from gateway.queues.redrive import Redrive, Redrives
from gateway.queues.reloading import reload_queues
from gateway.queues.unused_queues import UnusedQueues
from gateway.queues.upkeep import QueueUpkeep
from gateway.topics.manager import Topic, TopicManager
from gateway.transfer.transfers import Transfers

__all__ = ["Browsed", "PendingReceive", "Queue", "QueueExists", "QueueManager", "Redrive"]


class QueueExists(TopicExists):
    """Queue of that topic and group exists already."""


class QueueManager:
    """Manager of queues. Loop only. Changes are made one at a time, and show once durable."""

    def __init__(
        self, context: QueueContext, topics: TopicManager, metadata: MetadataStore
    ) -> None:
        self._context = context
        self.counters_by_queue: CountersByQueue = context.counters_by_queue
        self._topics = topics
        self._metadata = metadata
        self._changes = Changes(metadata.feed)
        self._holders = count(1)
        self._queues = QueueIndex()
        self._making: list[QueueLane] = []  # of the queue that is being made
        self._pending_receives = PendingReceives(
            context.clock, receivers_max=context.config.receivers_max
        )
        self.joint_acks = partial(JointAcks, context)
        """Maker of acknowledgements that become part of another append."""
        context.mover = self.dead_letters = DeadLetters(context, topics, self._queues.is_timed)
        self.upkeep = QueueUpkeep(context, self.everything)
        self._shards = QueueShards(context, self.everything)
        self.redrives = Redrives(context, topics, self)
        self.unused = UnusedQueues(context, self)
        self._queues.on_added = self.unused.follow

    @classmethod
    async def open(  # noqa: PLR0913 - the parts of the kernel before it
        cls,
        broker: Broker,
        topics: TopicManager,
        clock: Clock,
        metadata: MetadataStore,
        config: QueueConfig,
        *,
        transfers: Transfers | None = None,
        metrics: MetricsConfig | None = None,
    ) -> Self:
        """Return the node's queues, loaded from the metadata store and the journal.

        Without ``transfers`` dead letters go to topics in this node's log only. Errors:
        ``StorageUnavailable``; ``CorruptBatch`` when the journal cannot be read.
        """
        journal = await QueueJournal.open(
            broker, topics, clock, room_bytes=config.journal_room_bytes
        )
        transfers = transfers or Transfers(broker, topics, clock)
        context = QueueContext(broker, clock, config, journal, transfers, metrics)
        manager = cls(context, topics, metadata)
        await manager._load()
        topics.on_changed.append(manager._on_topic_changed)
        topics.on_deleted.append(manager._on_topic_deleted)
        MemoryQueues(context, manager._queues)
        reload = partial(reload_queues, manager, topics, metadata)
        manager._changes.follow(ChangeKind.QUEUE, reload)
        broker.shards.register(manager._shards)
        broker.shard_calls.register(SERVICE, QueueService(context, manager._find_by_uuid))
        manager.upkeep.start()
        return manager

    async def close(self) -> None:
        """Complete waiting receives and write the remaining journal entries."""
        await self._changes.close()
        self._context.broker.shard_calls.unregister(SERVICE)
        self._context.broker.shards.unregister(self._shards)
        self._shards.close()
        for queue in self.everything():
            queue.close()
        self._pending_receives.close()
        self.unused.close()
        await self._context.close()
        self._context.messages.seal()
        await self._context.journal.close()

    # --- queries

    @property
    def coalescer(self) -> Coalescer:
        """Coalescer for sent messages; moves of dead letters keep their order with them."""
        return self._context.messages

    @property
    def transfers(self) -> Transfers:
        """Transfers to other nodes' logs."""
        return self._context.transfers

    @property
    def counters(self) -> QueueCounters:
        """Counts of messages since the start, all queues together."""
        return self._context.counters

    @property
    def waiting_count(self) -> int:
        """Number of waiting receives of all queues."""
        return len(self._pending_receives)

    def find(self, name: TopicName, group: str = DEFAULT_GROUP) -> Queue | None:
        """Return the queue of a topic and a group."""
        return self._queues.find(name, group)

    def _find_by_uuid(self, topic_uuid: UUID, group: str) -> Queue | None:
        topic = self._topics.by_uuid(topic_uuid)
        return None if topic is None else self.find(topic.name, group)

    def queues(
        self, namespace: str = DEFAULT_NAMESPACE, *, is_sorted: bool = True
    ) -> list[Queue]:
        """Return a namespace's queues, sorted by name and group, or in no order."""
        return self._queues.of_namespace(namespace, is_sorted=is_sorted)

    def everything(self) -> list[Queue]:
        """Return all queues, in no order, those of the kernel too."""
        return self._queues.everything()

    def of_clients(self) -> list[Queue]:
        """Return the queues that clients see: not those on internal topics."""
        return [queue for queue in self.everything() if not queue.topic.is_internal]

    def sources_of(self, topic_name: TopicName) -> list[Queue]:
        """Return the queues whose dead letters go to a topic, sorted by name and group."""
        return self._queues.sources_of(topic_name)

    def new_holder(self, on_lapsed: OnLapsed | None = None) -> int:
        """Return a new holder id for a connection; never 0, never repeated.

        ``on_lapsed`` is called when leases of it have ended, until ``forget_holder``.
        """
        holder = next(self._holders)
        if on_lapsed is not None:
            self._context.lease_ends.add(holder, on_lapsed)
        return holder

    def forget_holder(self, holder: int) -> None:
        """Call a holder no more: its connection has ended."""
        self._context.lease_ends.forget(holder)

    # --- changes

    async def create(  # noqa: PLR0913 - what a queue is made of, by keyword
        self,
        topic: Topic,
        settings: QueueSettings,
        *,
        group: str = DEFAULT_GROUP,
        attributes: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        owns_topic: bool = False,
        from_start: bool = False,
    ) -> Queue:
        """Make a queue of a topic; it begins at the topic's end, or at its start.

        Errors: ``QueueExists``, ``TopicNotFound`` (deleted meanwhile), ``Overloaded`` above
        `queue.queues_max`, ``StorageUnavailable``.
        """
        now_unix_ms = self._context.clock.unix_ms()
        kept = dict(attributes or {}), dict(tags or {})
        row = QueueRow(topic.uuid, group, settings, *kept, owns_topic, now_unix_ms, now_unix_ms)
        return await self._changes.make(self._create, topic, row, from_start)

    async def alter(
        self,
        queue: Queue,
        *,
        settings: QueueSettings | None = None,
        attributes: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Change a queue; a value of None leaves the setting as it is.

        Errors: ``TopicNotFound`` when it is gone, ``StorageUnavailable``.
        """
        changes: dict[str, object] = {}
        if settings is not None:
            changes["settings"] = settings
        if attributes is not None:
            changes["attributes"] = dict(attributes)
        if tags is not None:
            changes["tags"] = dict(tags)
        await self._changes.make(self._alter, queue, changes)

    async def keep_purge(self, queue: Queue) -> None:
        """Store the end of the last purge of a queue; not reported as a change of the queue.

        Errors: ``TopicNotFound`` when it is gone, ``StorageUnavailable``.
        """
        await self._changes.make(self._keep_purge, queue)

    async def delete(self, queue: Queue, *, only_unused: bool = False) -> None:
        """Drop a queue; its topic too when it was made for it and no other group is on it.

        ``only_unused``: not if it was used for its ``expires_ms``, when its turn has come.
        Errors: ``TopicNotFound`` when it is gone already, ``StorageUnavailable``.
        """
        await self._changes.make(self._delete, queue, only_unused)

    async def _create(self, topic: Topic, row: QueueRow, from_start: bool) -> Queue:  # noqa: FBT001
        context = self._context
        if self.find(topic.name, row.group) is not None:
            raise QueueExists(f"queue {topic.name.name} {row.group} exists already")
        self.check_room()
        queue = Queue(context, self._pending_receives, topic, row)
        lanes = []
        for number in range(len(topic.partition_ids)):
            partition = context.broker.partition(topic, number)
            start = partition.log_start_offset if from_start else partition.log_end_offset
            lanes.append(queue.new_lane(partition, start))
        self._making = lanes
        try:
            await self._keep(lanes, row)
        finally:
            self._making = []
        if self._topics.by_uuid(topic.uuid) is not topic:
            raise TopicNotFound(f"topic {topic.name.name} was deleted")
        queue.add_lanes(lanes)
        self._queues.add(queue)
        for lane in lanes:
            lane.open()
        self._shards.grow(queue)
        return queue

    def check_room(self) -> None:
        """Raise ``Overloaded`` when there are `queue.queues_max` queues."""
        queues_max = self._context.config.queues_max
        if len(self._queues) >= queues_max:
            raise Overloaded(f"there are queue.queues_max, {queues_max}, queues")

    def add(self, topic: Topic, row: QueueRow) -> Queue:
        """Show a queue that is not shown: one that another node has stored, or a transient one."""
        queue = Queue(self._context, self._pending_receives, topic, row)
        self._queues.add(queue)
        try:
            self._shards.grow(queue)
        finally:
            queue.renew_presence()
        return queue

    def set_row(self, queue: Queue, row: QueueRow) -> None:
        """Show a queue's changed row."""
        queue.set_row(row)
        self._queues.note(row.settings)
        self.unused.follow(queue)

    def delete_transient(self, queue: Queue) -> bool:
        """Drop a transient queue and its topic at once; False for any other.

        One on whose topic there are other queue groups is not transient in this sense.
        """
        topic = queue.topic
        is_alone = self._queues.of(topic) == [queue]
        if topic.is_transient and is_alone:
            self._topics.remove(topic)
        return topic.is_transient and is_alone

    async def _keep(self, lanes: list[QueueLane], row: QueueRow) -> None:
        """Write a queue's journal entries, then its row."""
        journaled = [lane for lane in lanes if lane.is_journaled]
        await await_done(partial(self._context.journal.put_snapshots, journaled))
        await self._put_row(row)

    async def _put_row(self, row: QueueRow) -> None:
        """Store a queue, unless its topic is not stored."""
        topic = self._topics.by_uuid(row.topic_uuid)
        if topic is None or not topic.is_transient:
            await self._metadata.put_queue(row)

    async def _alter(self, queue: Queue, changes: dict[str, object]) -> None:
        self._check_there(queue)
        now_unix_ms = self._context.clock.unix_ms()
        settings = changes.get("settings")
        if isinstance(settings, QueueSettings):
            queue.check_here()
            ends = [lane.partition.log_end_offset for lane in queue.lanes]
            changes["earlier_delays"] = earlier_delays(queue.row, settings, ends, now_unix_ms)
        row = queue.row._replace(
            **changes,  # type: ignore[arg-type]  # fields of the row, by name
            changed_unix_ms=now_unix_ms,
        )
        await self._put_row(row)
        self.set_row(queue, row)

    async def _keep_purge(self, queue: Queue) -> None:
        self._check_there(queue)
        attributes = {**queue.attributes, PURGED: format_purged(queue.purged_ends)}
        row = queue.row._replace(attributes=attributes)
        await self._put_row(row)
        queue.set_row(row)

    async def _delete(self, queue: Queue, only_unused: bool) -> None:  # noqa: FBT001
        self._check_there(queue)
        if only_unused and not self.unused.is_unused(queue):
            return
        is_alone = len(self._queues.of(queue.topic)) == 1
        if queue.owns_topic and is_alone:
            # The rest follows: ``_on_topic_deleted``.
            await self._topics.delete_within(queue.name)
            return
        if not queue.topic.is_transient:
            await self._metadata.delete_queue(queue.topic.uuid, queue.group)
        self.drop(queue)

    def _check_there(self, queue: Queue) -> None:
        if queue.is_gone:
            raise TopicNotFound(f"queue {queue.name.name} {queue.group} was deleted")

    def drop(self, queue: Queue) -> None:
        """Remove a queue that is not stored."""
        self._queues.remove(queue)
        queue.drop()
        self.counters_by_queue.forget(queue.name, queue.group)
        if not self._queues.of(queue.topic):
            self._context.message_cache.forget(queue.topic.partition_ids)
        self.redrives.forget(queue)
        self.unused.forget(queue)

    # --- topics change

    def _on_topic_changed(self, topic: Topic) -> None:
        for queue in self._queues.of(topic):
            self._shards.grow(queue)
            queue.renew_presence()
        self._renew_sources(topic)

    def _on_topic_deleted(self, topic: Topic) -> None:
        for queue in self._queues.of(topic):
            self.drop(queue)
        self._context.message_cache.forget(topic.partition_ids)
        self._renew_sources(topic)

    def _renew_sources(self, topic: Topic) -> None:
        """Renew policies after a dead-letter topic was created or deleted."""
        for queue in self._queues.sources_of(topic.name):
            queue.renew_policy()

    # --- a start

    async def _load(self) -> None:
        for row in await self._metadata.queues():
            topic = self._topics.by_uuid(row.topic_uuid)
            if topic is not None:  # or another node has just made it
                self._queues.add(Queue(self._context, self._pending_receives, topic, row))
        await self._shards.load_shards(self._context.broker.shards.owned())
        await self._context.journal.start(self._all_lanes)

    def _all_lanes(self) -> list[QueueLane]:
        lanes = [lane for queue in self.everything() for lane in queue.lanes]
        return [lane for lane in lanes + self._making if lane.is_journaled]
