"""A node whose storage answers when it is told to, refuses and dies; timers go by its clock."""

import asyncio
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from gateway.clock import Clock, ManualClock
from gateway.coalescer import Coalescer
from gateway.config.queues import DelayConfig
from gateway.config.settings import BrokerConfig
from gateway.delays.manager import DelayBounds
from gateway.errors import PolicyViolation, StorageFull, StorageUnavailable
from gateway.metadata.sql import SqlMetadata
from gateway.model import Buffer
from gateway.partition import Partition
from gateway.records.codec import decode_batch
from gateway.storage import Entry, OnDone, StorageAdapter
from storage_adapters.memory import MemoryStorage
from tests.gateway.delays.delay_node import World

BOUNDS = DelayBounds(room_bytes=500, bodies_bytes=8_000)  # reading back, writing anew
DUE_PER_TICK = 10
QUEUED_BYTES_MAX = 20_000


class ClockLoop(asyncio.SelectorEventLoop):
    """A loop whose timers go by a clock that stands still."""

    def __init__(self, clock: Clock) -> None:
        self._own_clock = clock
        super().__init__()

    def time(self) -> float:
        """See ``asyncio``."""
        return self._own_clock.monotonic_ms() / 1_000

    def turn(self) -> None:
        """Do what is ready now, and nothing that follows from it."""
        self.call_soon(self.stop)
        self.run_forever()


class SlowLog(MemoryStorage):
    """A log whose appends and cold reads wait until the test answers them."""

    is_full = is_away = is_cold = False

    def __init__(self, clock: Clock) -> None:
        super().__init__(MemoryStorage.Config(), data_dir=Path(), clock=clock)
        self.clock = clock
        self.reads: list[asyncio.Future[None]] = []

    def enqueue(
        self, entries: Sequence[Entry], on_done: OnDone, *, reserved: bool = False
    ) -> None:
        """See ``StorageAdapter``."""
        if self.is_away or (self.is_full and not reserved):
            raise StorageFull("no space left on device")
        super().enqueue(entries, on_done, reserved=reserved)

    def _schedule(self, append) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - theirs
        self.queued_bytes += append.size_bytes
        self._waiting.append(append)

    def answer(self, count: int) -> None:
        """Answer the first appends, and all that is read."""
        rest = [self._waiting.pop() for _ in range(len(self._waiting) - count)]
        self.publish()
        self._waiting.extendleft(rest)
        reads, self.reads = self.reads, []
        for read in reads:
            if not read.done():
                read.set_result(None)

    def fail(self) -> None:
        """A sync has failed: nothing that waits is kept, and nothing more is taken."""
        self._is_open = False
        waiting, self._waiting = self._waiting, deque()
        for append in waiting:
            append.on_done(StorageUnavailable("the log cannot be written"))

    def after_crash(self) -> Self:
        """Return what a start finds: nothing of what was not answered."""
        self._is_open = False
        again = type(self)(self.clock)
        again.incarnation = self.incarnation
        again._partitions = self._partitions
        for one in self._partitions.values():
            one.end = max([one.start, *(batch.end_offset for batch in one.batches[-1:])])
        return again

    @property
    def is_quiet(self) -> bool:
        """Whether nobody waits for an answer."""
        return not self._waiting and not self.reads

    def read_cached(
        self, partition_id: int, start: int, end: int, *, bytes_max: int
    ) -> list[Buffer] | None:
        """See ``StorageAdapter``."""
        if self.is_cold:
            return None
        return super().read_cached(partition_id, start, end, bytes_max=bytes_max)

    async def read(
        self, partition_id: int, start: int, end: int, *, bytes_max: int
    ) -> list[Buffer]:
        """See ``StorageAdapter``."""
        self.reads.append(asyncio.get_running_loop().create_future())
        await self.reads[-1]
        if self.is_away:
            raise StorageUnavailable("the disk is away")
        return super().read_cached(partition_id, start, end, bytes_max=bytes_max) or []

    def moving(self, partition: Partition) -> set[bytes]:
        """Return the values on their way into a partition."""
        own = self._partitions.get(partition.partition_id)
        batches = [
            batch.data
            for append in self._waiting
            for target, batch in append.batches
            if target is own
        ]
        return {one.value or b"" for batch in batches for one in decode_batch(batch)}

    def values(self, partition: Partition) -> list[bytes]:
        """Return all that readers see of a partition."""
        batches = super().read_cached(
            partition.partition_id, 0, partition.high_watermark, bytes_max=1 << 30
        )
        return [one.value or b"" for batch in batches or () for one in decode_batch(batch)]


class SlowWorld(World):
    """A world on such a log.

    ``others``: through which what waits is put beside what does not; ``is_backed_up``: a queue has
    no room for what is due.
    """

    others: Coalescer

    def __init__(self, metadata: SqlMetadata, clock: ManualClock) -> None:
        super().__init__(Path(), metadata, clock)
        self.bounds = BOUNDS
        self.config = DelayConfig(due_per_tick=DUE_PER_TICK)
        self.broker_config = BrokerConfig.model_construct(
            wal_queued_bytes_max=QUEUED_BYTES_MAX, wal_queued_bytes_low=QUEUED_BYTES_MAX // 2
        )
        self.log_now = SlowLog(clock)
        self.is_backed_up = False

    def new_storage(self) -> StorageAdapter:
        """See ``World``; what the last one has answered is there."""
        self.log_now = self.log_now.after_crash()
        return self.log_now

    async def open(self) -> None:
        """See ``World``."""
        await super().open()
        self.others = Coalescer(self.broker)
        self.broker.holders.check_room = self._check_room  # type: ignore[method-assign]

    def _check_room(self, partition: Partition, size_bytes: int) -> None:
        if self.is_backed_up:
            raise PolicyViolation(f"{partition.topic.name}: no room for {size_bytes} bytes")

    async def crash(self) -> None:
        """The node is gone, and comes again."""
        self.delays.mover.close()
        self.delays.stream.close()
        self.delays.bodies.close()
        await self.topics.close()
        await self.open()
