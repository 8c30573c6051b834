"""A node's queues on the real segment log, which a restart or a kill finds again."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from features.queue.model import BY_TIME, Result
from gateway.broker import Broker
from gateway.clock import ManualClock
from gateway.config.queues import QueueConfig
from gateway.config.settings import BrokerConfig, MemoryConfig, TopicDefaults
from gateway.errors import StorageUnavailable
from gateway.memory_topics import open_memory, start_broker
from gateway.metadata.sql import SqlMetadata
from gateway.model import Record, TopicName
from gateway.placement import Placement, SingleNode
from gateway.queues.manager import Queue, QueueManager
from gateway.queues.model import Delivery, DeliveryId, Outcome, QueueSettings
from gateway.records.codec import encode_headers
from gateway.records.record_run import RecordRun
from gateway.split_storage import SplitStorage
from gateway.testing.placement import SettablePlacement
from gateway.topics.manager import Topic, TopicManager
from storage_adapters.segment_log.adapter import SegmentLog
from storage_adapters.segment_log.config import SegmentLogConfig
from tests.support.storage_host import TopicsHost

Headers = Sequence[tuple[str, bytes | None]]
QUEUE_TOPIC = {"cleanup.policy": "queue", "queue.keep.ms": "300000"}
UNTIL_S_MAX = 60.0
ANSWER_S_MAX = 60


class World(TopicsHost):
    """The parts of a node that queues need. ``open`` is a start, ``kill`` no clean stop."""

    broker: Broker
    queues: QueueManager
    storage: SegmentLog
    split: SplitStorage

    def __init__(self, folder: Path, **config: Any) -> None:
        self.folder = folder
        self.shard_count = 1
        self.placement: SettablePlacement | None = None
        self.clock = ManualClock()
        self.config = QueueConfig(**config)
        self.log = SegmentLogConfig(flush="never", segment_bytes=4 << 20, reserve_bytes=1 << 20)

    async def open(self) -> None:
        self.metadata = SqlMetadata("sqlite", data_dir=self.folder)
        await self.metadata.open()
        self.topics = TopicManager(self.metadata, defaults=TopicDefaults(), clock=self.clock)
        await self.topics.load()
        self.storage = SegmentLog(self.log, data_dir=self.folder, clock=self.clock)
        await self.storage.open(self)
        self.split = await open_memory(
            self.storage, self, self.topics, self.clock, MemoryConfig()
        )
        placement: Placement = self.placement or SingleNode(
            self.storage.incarnation,
            node_id=1,
            cluster_id="cluster-of-one-node-22",
            shard_count=self.shard_count,
        )
        self.broker = start_broker(
            self.split, self.topics, placement, self.clock, BrokerConfig()
        )
        self.queues = await QueueManager.open(
            self.broker, self.topics, self.clock, self.metadata, self.config
        )

    async def close(self) -> None:
        await self.queues.close()
        await self.topics.close()
        await self.split.close()
        await self.metadata.close()

    async def restart(self) -> None:
        await self.close()
        await self.open()

    # --- queues

    async def topic(self, name: str, partitions: int = 1, **configs: str) -> Topic:
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        return await self.topics.create(
            TopicName("default", name), partitions=partitions, configs={**QUEUE_TOPIC, **dotted}
        )

    async def queue(self, name: str = "work", partitions: int = 1, **settings: Any) -> Queue:
        topic = self.topics.find(TopicName("default", name))
        if topic is None:
            topic = await self.topic(name, partitions)
        return await self.queues.create(topic, QueueSettings(**settings), owns_topic=True)

    def find(self, name: str = "work") -> Queue:
        queue = self.queues.find(TopicName("default", name))
        assert queue is not None
        return queue

    async def send(
        self,
        queue: Queue,
        *values: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_unix_ms: int | None = None,
    ) -> None:
        """Send messages, each a run of its own, and wait until they are fed."""
        now = self.clock.unix_ms() if timestamp_unix_ms is None else timestamp_unix_ms
        done: list[asyncio.Future[StorageUnavailable | None]] = []
        for value in values:
            run = RecordRun(key, (value,), encode_headers(headers), now)
            done.append(asyncio.Future())
            self.queues.coalescer.add(queue.partition_for(key), run, done[-1].set_result)
        assert set(await asyncio.gather(*done)) == {None}
        await self.until(lambda: is_fed(queue))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the loop turn until a condition holds."""
        async with asyncio.timeout(UNTIL_S_MAX):
            while not condition():
                await self.turn()

    async def turn(self) -> None:
        """One turn of the loop, in which threads may have their say."""
        turned = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.0005, turned.set_result, None)
        await turned

    def advance(self, ms: int) -> None:
        """Time passes; what is due by then happens now."""
        self.clock.advance(ms)
        self.queues._context.leases.run_due()
        self.queues._context.expiries.run_due()
        self.queues.unused.run_due()
        self.queues._pending_receives.run_due()


def is_fed(queue: Queue) -> bool:
    return all(
        not lane.lane.wants_more or lane.lane.fed_end >= lane.partition.high_watermark
        for lane in queue.lanes
    )


def take_now(queue: Queue, count: int = 10, **how: Any) -> list[Delivery] | None:
    """Receive without waiting; None when that waits for the disk."""
    got: list[list[Delivery]] = []
    queue.receive(count, **{"bytes_max": 1 << 20, "on_done": got.append, **how})
    return got[0] if got else None


async def take(
    queue: Queue, count: int = 10, *, wait_ms: int = 0, holder: int = BY_TIME, **how: Any
) -> list[Delivery]:
    got: asyncio.Future[list[Delivery]] = asyncio.Future()
    queue.receive(
        count,
        **{"bytes_max": 1 << 20, **how},
        wait_ms=wait_ms,
        holder=holder,
        on_done=got.set_result,
    )
    return await asyncio.wait_for(got, ANSWER_S_MAX)


async def settle(
    queue: Queue, deliveries: Iterable[Delivery], outcome: Outcome = Outcome.ACK, **how: Any
) -> list[Result]:
    """Settle messages, which must be kept; return the results."""
    results, error = await try_settle(queue, deliveries, outcome, **how)
    assert error is None
    return results


async def try_settle(
    queue: Queue, deliveries: Iterable[Delivery], outcome: Outcome = Outcome.ACK, **how: Any
) -> tuple[list[Result], StorageUnavailable | None]:
    answer: asyncio.Future[tuple[list[Result], StorageUnavailable | None]] = asyncio.Future()
    items: list[tuple[DeliveryId, Outcome]] = [(one.delivery_id, outcome) for one in deliveries]
    queue.settle(items, lambda *answered: answer.set_result(answered), **how)
    return await asyncio.wait_for(answer, ANSWER_S_MAX)


async def extend(queue: Queue, items: Sequence[tuple[DeliveryId, int]]) -> list[Result]:
    answer: asyncio.Future[tuple[list[Result], StorageUnavailable | None]] = asyncio.Future()
    queue.extend(items, lambda *answered: answer.set_result(answered))
    results, error = await asyncio.wait_for(answer, ANSWER_S_MAX)
    assert error is None
    return results


def values(deliveries: Iterable[Delivery]) -> list[bytes | None]:
    return [one.record.value for one in deliveries]


def headers_of(record: Record) -> dict[str, bytes | None]:
    return dict(record.headers)


@asynccontextmanager
async def running(folder: Path, **config: Any) -> AsyncIterator[World]:
    """Yield a world that has been started once."""
    world = World(folder, **config)
    await world.open()
    try:
        yield world
    finally:
        await world.close()
