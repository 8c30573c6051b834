"""The kernel's real parts on memory storage: broker and topics, which a restart finds again."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.broker import Broker
from gateway.clock import ManualClock
from gateway.config.settings import BrokerConfig, GroupsConfig, TopicDefaults
from gateway.errors import StorageUnavailable
from gateway.groups.cursors import CursorManager
from gateway.groups.manager import GroupManager
from gateway.metadata.sql import SqlMetadata
from gateway.model import TopicName
from gateway.partition import Partition
from gateway.placement import Placement, SingleNode
from gateway.records.codec import decode_batch
from gateway.shard_moves import follow_owners
from gateway.storage import OnDone
from gateway.topics.manager import Topic, TopicManager
from storage_adapters.memory import MemoryStorage
from tests.support.storage_host import TopicsHost

GROUPS = GroupsConfig(initial_rebalance_delay_ms=0)


class House(TopicsHost):
    """Storage and metadata live as long as the test; ``open`` is a start of the node."""

    broker: Broker
    placement: Placement | None = None
    """The one to open with; None: a node on its own."""

    def __init__(
        self,
        metadata: SqlMetadata,
        storage: MemoryStorage,
        clock: ManualClock,
        *,
        shard_count: int = 1,
    ) -> None:
        self.metadata = metadata
        self.storage = storage
        self.clock = clock
        self.shard_count = shard_count

    async def open(self) -> None:
        self.topics = TopicManager(self.metadata, defaults=TopicDefaults(), clock=self.clock)
        await self.topics.load()
        await self.storage.open(self)
        placement = self.placement or SingleNode(
            self.storage.incarnation,
            node_id=1,
            cluster_id="cluster-of-one-node-22",
            shard_count=self.shard_count,
        )
        self.broker = Broker(self.storage, placement, self.clock, BrokerConfig())
        follow_owners(self.broker, self.topics)

    async def close(self) -> None:
        await self.topics.close()
        await self.storage.close()

    async def restart(self) -> None:
        await self.close()
        await self.open()

    async def topic(self, name: str, partitions: int = 1, **configs: str) -> Topic:
        return await self.topics.create(
            TopicName("default", name),
            partitions=partitions,
            configs={key.replace("_", "."): value for key, value in configs.items()},
        )

    async def partition(self, name: str, **configs: str) -> Partition:
        return self.broker.partition(await self.topic(name, 1, **configs), 0)

    def values(self, partition: Partition) -> list[bytes | None]:
        """Return the values of a partition that readers see."""
        return [record.value for batch in self.batches(partition) for record in batch]

    def batches(self, partition: Partition) -> list[list]:  # type: ignore[type-arg]  # of records
        batches = self.broker.read(partition, partition.log_start_offset, bytes_max=1 << 30)
        return [decode_batch(batch) for batch in batches or ()]

    async def groups(self, config: GroupsConfig = GROUPS) -> tuple[GroupManager, CursorManager]:
        cursors = await CursorManager.open(self.broker, self.topics, self.clock, config)
        groups = await GroupManager.open(self.broker, self.topics, cursors, self.clock, config)
        return groups, cursors


@asynccontextmanager
async def running(
    tmp_path: Path,
    *,
    bytes_max: int = 1 << 30,
    shard_count: int = 1,
    placement: Placement | None = None,
) -> AsyncIterator[House]:
    """Yield a house that has been started once."""
    clock = ManualClock()
    metadata = SqlMetadata("sqlite", data_dir=tmp_path)
    await metadata.open()
    config = MemoryStorage.Config(bytes_max=bytes_max, reserve_bytes=0)
    storage = MemoryStorage(config, data_dir=tmp_path, clock=clock)
    house = House(metadata, storage, clock, shard_count=shard_count)
    house.placement = placement
    await house.open()
    try:
        yield house
    finally:
        await house.close()
        await metadata.close()


async def outcome(start: Callable[[OnDone], object]) -> StorageUnavailable | None:
    """Start what takes an ``on_done``; return what that is called with."""
    done: asyncio.Future[StorageUnavailable | None] = asyncio.Future()
    start(done.set_result)
    return await done
