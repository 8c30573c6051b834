"""A node's kernel with delays, on the real segment log or in memory; the clock is by hand."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.broker import Broker
from gateway.clock import Clock, ManualClock
from gateway.coalescer import Coalescer
from gateway.config.queues import DelayConfig
from gateway.config.settings import BrokerConfig, TopicDefaults
from gateway.delays.manager import DEFAULT_BOUNDS, DelayBounds, Delays
from gateway.delays.sharded import ShardedDelays
from gateway.delays.stream import DELAYS_TOPIC
from gateway.errors import GatewayError, StorageFull, StorageUnavailable
from gateway.metadata.sql import SqlMetadata
from gateway.model import Record, TopicName, parse_batch_header
from gateway.partition import Partition, Write
from gateway.placement import SingleNode
from gateway.records.codec import Headers, decode_batch, encode_batch, encode_headers
from gateway.records.record_run import RecordRun
from gateway.storage import Entry, OnDone, StorageAdapter
from gateway.topics.manager import Topic, TopicManager
from storage_adapters.segment_log.adapter import SegmentLog
from storage_adapters.segment_log.config import SegmentLogConfig
from tests.gateway.kernel_in_memory import outcome
from tests.support.storage_host import TopicsHost


class FullableLog(SegmentLog):
    """The segment log on a disk that is full when the world says so."""

    def __init__(
        self, world: "World", config: SegmentLogConfig, *, data_dir: Path, clock: Clock
    ) -> None:
        super().__init__(config, data_dir=data_dir, clock=clock)
        self._world = world

    def enqueue(
        self, entries: Sequence[Entry], on_done: OnDone, *, reserved: bool = False
    ) -> None:
        """See ``StorageAdapter``."""
        if self._world.disk_is_full and not reserved:
            raise StorageFull("no space left on device")
        super().enqueue(entries, on_done, reserved=reserved)


class World(TopicsHost):
    """Metadata and files live as long as the test; ``open`` is a start of the node."""

    broker: Broker
    sharded: ShardedDelays
    delays: Delays
    storage: StorageAdapter

    def __init__(self, folder: Path, metadata: SqlMetadata, clock: Clock) -> None:
        self.folder = folder
        self.metadata = metadata
        self.clock = clock
        self.config = DelayConfig()
        self.bounds = DEFAULT_BOUNDS
        self.broker_config = BrokerConfig()
        self.log = SegmentLogConfig(flush="never")
        self.disk_is_full = False

    async def open(self) -> None:
        self.topics = TopicManager(self.metadata, defaults=TopicDefaults(), clock=self.clock)
        await self.topics.load()
        self.storage = self.new_storage()
        await self.storage.open(self)
        placement = SingleNode(
            self.storage.incarnation, node_id=1, cluster_id="cluster-of-one-node-22"
        )
        self.broker = Broker(self.storage, placement, self.clock, self.broker_config)
        self.topics.on_deleted.append(lambda topic: self.broker.delete_topic(topic, _ignore))
        self.sharded = await ShardedDelays.open(
            self.broker, self.topics, self.clock, self.config, bounds=self.bounds
        )
        topic = self.topics.get(TopicName("default", DELAYS_TOPIC))
        self.delays = self.sharded.of(self.broker.partition(topic, 0))
        self.sharded.start()
        self.coalescer = Coalescer(self.broker)
        self.delays.stream.close()  # Looks at the stream are by hand too, not once a second.

    def new_storage(self) -> StorageAdapter:
        return FullableLog(self, self.log, data_dir=self.folder, clock=self.clock)

    async def close(self) -> None:
        self.coalescer.seal()
        self.sharded.close()
        await self.topics.close()
        await self.storage.close()

    async def restart(self) -> None:
        await self.close()
        await self.open()

    async def topic(self, name: str = "work", partitions: int = 1, **configs: str) -> Topic:
        """A topic whose records may wait."""
        configs = {"delay_enable": "true", **configs}
        found = self.topics.find(TopicName("default", name))
        return found or await self.topics.create(
            TopicName("default", name),
            partitions=partitions,
            configs={key.replace("_", "."): value for key, value in configs.items()},
        )

    def partition(self, topic: Topic, number: int = 0) -> Partition:
        """The partition as it is in this run of the node."""
        return self.broker.partition(self.topics.get(topic.name), number)

    async def put(
        self,
        topic: Topic,
        after_ms: int,
        *values: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
        number: int = 0,
    ) -> Sequence[int]:
        """Delay messages, wait until they are durable, and return their numbers."""
        now_unix_ms = self.clock.unix_ms()
        run = RecordRun(key, values, encode_headers(headers), now_unix_ms)
        numbers: list[int] = []
        error = await outcome(
            lambda on_done: numbers.extend(
                self.put_run(
                    self.partition(topic, number), run, now_unix_ms + after_ms, on_done
                )
            )
        )
        if error is not None:
            raise error
        return numbers

    def put_run(
        self, partition: Partition, run: RecordRun, due_unix_ms: int, on_done: OnDone
    ) -> Sequence[int]:
        """Delay a run as the write path does; return the numbers of its messages."""
        self.coalescer.check(partition, run)
        pending = self.delays.prepare_run(partition, run, due_unix_ms)
        assert pending.part is not None

        def done(error: GatewayError | None) -> None:
            pending.done(error)
            assert error is None or isinstance(error, StorageUnavailable)
            on_done(error)

        self.coalescer.add(*pending.part, done)
        return pending.numbers

    async def broker_append(self, topic: Topic, value: bytes) -> None:
        """Append a record that does not wait."""
        batch = encode_batch([(self.clock.unix_ms(), None, value, ())])
        write = Write(self.partition(topic), batch, parse_batch_header(batch))
        assert await outcome(lambda on_done: self.broker.append([write], on_done)) is None

    def advance(self, ms: int) -> None:
        """Let time go by."""
        assert isinstance(self.clock, ManualClock)
        self.clock.advance(ms)

    async def settled(self) -> None:
        """Move all that is due now."""
        delays = self.delays
        while True:
            delays.mover.run()
            if not delays.mover.is_busy:
                return
            await outcome(self.broker.after_pending)

    def records(self, topic: Topic, number: int = 0) -> list[Record]:
        """Return the records of a partition that readers see."""
        partition = self.partition(topic, number)
        batches = self.broker.read(partition, partition.log_start_offset, bytes_max=1 << 30)
        return [record for batch in batches or () for record in decode_batch(batch)]

    def values(self, topic: Topic, number: int = 0) -> list[bytes | None]:
        return [record.value for record in self.records(topic, number)]

    @property
    def stream(self) -> Partition:
        return self.delays.stream.partition


@asynccontextmanager
async def running(
    folder: Path, clock: Clock | None = None, *, bounds: DelayBounds = DEFAULT_BOUNDS
) -> AsyncIterator[World]:
    """Yield a world that has been started once."""
    metadata = SqlMetadata("sqlite", data_dir=folder)
    await metadata.open()
    world = World(folder, metadata, clock or ManualClock())
    world.bounds = bounds
    await world.open()
    try:
        yield world
    finally:
        await world.close()
        await metadata.close()


def _ignore(_error: object) -> None:
    """Ignore the result."""
