"""Two nodes with a log each, and common metadata; a test kills either of them at an append."""

import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch
from uuid import UUID

from gateway.broker import Broker
from gateway.clock import ManualClock
from gateway.coalescer import Coalescer
from gateway.config.queues import DelayConfig, QueueConfig
from gateway.config.settings import BrokerConfig, TopicDefaults
from gateway.delays.sharded import ShardedDelays
from gateway.errors import StorageUnavailable
from gateway.metadata.sql import SqlMetadata
from gateway.model import TopicName
from gateway.placement import Node, shard_of
from gateway.queues.manager import QueueManager
from gateway.records.codec import NO_HEADERS, decode_batch
from gateway.records.record_run import RecordRun
from gateway.shard_moves import follow_owners
from gateway.slots import shard_of_partition
from gateway.storage import Entry, OnDone
from gateway.testing.placement import SettablePlacement
from gateway.topics import manager
from gateway.topics.manager import Topic, TopicManager
from gateway.transfer.payload import Addressed
from gateway.transfer.transfers import Transfers
from storage_adapters.memory import MemoryStorage
from tests.support.lossy_network import Chances, LossyNetwork
from tests.support.storage_host import TopicsHost

SHARDS = 8
SPREAD_MIN = 12  # partitions of a topic that lies in all shards
FIRST, SECOND = Node(1, "127.0.0.1"), Node(2, "127.0.0.2")
FAULTLESS = Chances(0, 0, 0)


class KillableStorage(MemoryStorage):
    """Memory storage that dies at an append, with it or without it stored, and answers no more."""

    is_dead = False
    appends_left = 0
    stores_last = True

    def enqueue(
        self, entries: Sequence[Entry], on_done: OnDone, *, reserved: bool = False
    ) -> None:
        """See ``StorageAdapter``."""
        if self.is_dead:
            raise StorageUnavailable("the node is dead")
        super().enqueue(entries, on_done, reserved=reserved)
        self.appends_left -= 1
        if self.appends_left == 0:
            self.die()

    def die(self) -> None:
        """End as a killed process does: what is on its way is stored, but maybe the last."""
        self.is_dead = True
        waiting, self._waiting = self._waiting, deque()
        if waiting and not self.stores_last:
            for place, batch in reversed(waiting.pop().batches):
                place.end = batch.base_offset
        for append in waiting:
            for place, batch in append.batches:
                place.batches.append(batch)
                place.size_bytes += len(batch.data)

    def revive(self) -> None:
        """Let the next start have what is stored."""
        self.is_dead = False
        self.appends_left = 0


class SharedPlacement(SettablePlacement):
    """Placement of one node; the cluster sets owners and epochs of both."""

    def __init__(self, node: Node, owners: list[Node | None], epochs: list[int]) -> None:
        super().__init__(SHARDS, node=node)
        self._owners = owners
        self._epochs = epochs

    def nodes(self) -> Sequence[Node]:
        return (FIRST, SECOND)


class ClusterNode(TopicsHost):
    """The parts of a node that transfers and queues need."""

    broker: Broker
    topics: TopicManager
    transfers: Transfers
    delays: ShardedDelays
    queues: QueueManager
    coalescer: Coalescer

    def __init__(self, cluster: "Cluster", node: Node) -> None:
        self.cluster = cluster
        self.node = node
        self.placement = SharedPlacement(node, cluster.owners, cluster.epochs)
        config = KillableStorage.Config(bytes_max=1 << 30, reserve_bytes=0)
        self.storage = KillableStorage(config, data_dir=cluster.folder, clock=cluster.clock)
        self.is_running = False
        self._ends = AsyncExitStack()

    async def start(self) -> None:
        cluster = self.cluster
        self.topics = TopicManager(
            cluster.metadata, defaults=TopicDefaults(), clock=cluster.clock
        )
        await self.topics.load()
        await self.storage.open(self)
        self.placement.before_release.clear()
        self.placement.on_change.clear()
        self.broker = Broker(self.storage, self.placement, cluster.clock, BrokerConfig())
        follow_owners(self.broker, self.topics)
        self.topics.on_deleted.append(
            lambda topic: self.broker.delete_topic(topic, lambda _: None)
        )
        cluster.network.join(self.node.node_id, self.broker.shard_calls)
        self._ends = AsyncExitStack()
        self._ends.push_async_callback(self.topics.close)
        self._ends.callback(self.broker.shards.close)
        self._ends.callback(cluster.network.leave, self.node.node_id)
        self.coalescer = Coalescer(self.broker)
        self.transfers = Transfers(self.broker, self.topics, cluster.clock)
        self._ends.callback(self.transfers.close)
        await self.transfers.open()
        self.delays = await ShardedDelays.open(
            self.broker, self.topics, cluster.clock, DelayConfig(), transfers=self.transfers
        )
        self._ends.callback(self.delays.close)
        self.queues = await QueueManager.open(
            self.broker,
            self.topics,
            cluster.clock,
            cluster.metadata,
            QueueConfig(),
            transfers=self.transfers,
        )
        self._ends.push_async_callback(self.queues._context.close)
        self.is_running = True

    async def kill(self) -> None:
        """End without a clean stop, maybe amid a start."""
        if not self.storage.is_dead:
            self.storage.die()
        self.is_running = False
        await self._ends.aclose()

    async def restart(self) -> None:
        """Start again after a kill: shards come back in their next epoch."""
        await self.kill()
        self.storage.revive()
        self.cluster.renew(self)
        await self.start()

    async def stop(self) -> None:
        if self.is_running:
            await self.queues.close()
            await self.kill()

    def append(self, source: int, addressed: Sequence[Addressed], on_done: OnDone) -> None:
        self.transfers.append(source, addressed, on_done, coalescer=self.coalescer)

    def values(self, topic: Topic, number: int) -> list[bytes | None]:
        """Return the values of a partition, of what is stored."""
        partition_id = topic.partition_ids[number]
        batches = self.storage.read_cached(partition_id, 0, 1 << 40, bytes_max=1 << 30)
        return [record.value for batch in batches or () for record in decode_batch(batch)]


class Cluster:
    """Two nodes: the lower half of the shards is the first's."""

    def __init__(
        self, folder: Path, metadata: SqlMetadata, seed: int, chances: Chances
    ) -> None:
        self.folder = folder
        self.metadata = metadata
        self.clock = ManualClock()
        self.network = LossyNetwork(seed, chances)
        half = SHARDS // 2
        self.owners: list[Node | None] = [*[FIRST] * half, *[SECOND] * half]
        self.epochs = [5] * SHARDS
        self.first = ClusterNode(self, FIRST)
        self.second = ClusterNode(self, SECOND)
        self.nodes = (self.first, self.second)

    def renew(self, node: ClusterNode) -> None:
        own = [at for at, owner in enumerate(self.owners) if owner is node.node]
        for shard in own:
            self.epochs[shard] += 1
        for other in self.nodes:
            if other.is_running:
                for follow in list(other.placement.on_change):
                    follow(own)

    def move(self, shard: int, owner: ClusterNode | None) -> None:
        """Give a shard to another owner, whose log has what that node stored of it."""
        self.move_all([shard], owner)

    def move_all(self, shards: Collection[int], owner: ClusterNode | None) -> None:
        """Give shards to another owner in one turn of the loop; see ``move``."""
        running = [node for node in self.nodes if node.is_running]
        for node in running:
            released = [one for one in shards if self.owners[one] is node.node]
            for seal in list(node.placement.before_release) if released else ():
                seal(released)
        for shard in shards:
            self.owners[shard] = None if owner is None else owner.node
            self.epochs[shard] += 1
        for node in running:
            for follow in list(node.placement.on_change):
                follow(shards)

    async def settled(self) -> None:
        """Return when the nodes have closed what left and opened what came."""
        for node in self.nodes:
            if node.is_running:
                await node.broker.shards.settled()

    async def topic(self, name: str, partitions: int = 16, **configs: str) -> Topic:
        """Make a topic before the nodes start. With 12 partitions or more it has all shards."""
        topics = TopicManager(self.metadata, defaults=TopicDefaults(), clock=self.clock)
        await topics.load()
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        with patch.object(manager, "uuid4", partial(_uuid_of, name, partitions)):
            topic = await topics.create(
                TopicName("default", name), partitions=partitions, configs=dotted
            )
        await topics.close()
        return topic

    async def start(self) -> None:
        for node in self.nodes:
            await node.start()

    def numbers(self, topic: Topic, shards: Collection[int]) -> list[int]:
        """Return the partitions of a topic that lie in some shards."""
        count = range(len(topic.partition_ids))
        return [n for n in count if shard_of(topic, n, self.first.placement) in shards]


def _uuid_of(name: str, partitions: int) -> UUID:
    """Return a topic's uuid, the same in each run: where its partitions lie depends on it."""
    chance = random.Random(name)
    while True:
        uuid = UUID(bytes=chance.randbytes(16), version=4)
        shards = {shard_of_partition(uuid, n, SHARDS) for n in range(partitions)}
        if partitions < SPREAD_MIN or len(shards) == SHARDS:
            return uuid


def run_of(*values: bytes) -> RecordRun:
    return RecordRun(b"k", values, NO_HEADERS, 0)


@asynccontextmanager
async def two_nodes(
    folder: Path, *, seed: int = 1, chances: Chances = FAULTLESS
) -> AsyncIterator[Cluster]:
    """Yield nodes that have not started yet."""
    metadata = SqlMetadata("sqlite", data_dir=folder)
    await metadata.open()
    cluster = Cluster(folder, metadata, seed, chances)
    try:
        yield cluster
    finally:
        for node in cluster.nodes:
            await node.stop()
        await metadata.close()


def note(results: dict[int, object], number: int) -> Callable[[object], None]:
    """Return a callback that keeps its result."""
    return partial(results.__setitem__, number)
