"""Random walk over transactions of one partition, beside a plain model of what readers may see."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from gateway.config.settings import BrokerConfig
from gateway.errors import OffsetOutOfRange
from gateway.model import Buffer, parse_batch_header
from gateway.partition import Partition, Write
from gateway.producers import PRODUCERS_TOPIC, ProducerStates
from gateway.records.codec import decode_batch
from gateway.sharded_stream import ShardedStream, rule_of_partition_ids
from gateway.storage import StorageAdapter
from gateway.tail import Tail
from gateway.transaction_states import TransactionStates
from pipeline.log.access import views
from pipeline.log.options import Options
from pipeline.log.reading import read_split
from pipeline.log.row_schema import ROWS
from pipeline.log.splits import ending_positions, plan, starting_positions, wanted
from tests.gateway.kernel_in_memory import House, outcome
from tests.gateway.transactional_producer import TransactionalProducer
from tests.support.batches import sample_batch
from tests.support.waiting import until

ALL: Final = 1 << 30
PRODUCERS: Final = 4


class Cell(NamedTuple):
    """One batch of the model; ``transaction`` is 0 for a plain one."""

    offset: int
    values: tuple[bytes, ...]
    transaction: int = 0
    producer_id: int = -1
    is_marker: bool = False

    @property
    def end(self) -> int:
        return self.offset + max(len(self.values), 1)


class Model:
    """The partition as a list; everything is found by looking at all of it."""

    def __init__(self) -> None:
        self.cells: list[Cell] = []
        self.outcomes: dict[int, bool] = {}
        self.start = 0

    @property
    def end(self) -> int:
        return self.cells[-1].end if self.cells else 0

    def stable_end(self) -> int:
        undecided = [
            cell.offset
            for cell in self.cells
            if cell.transaction and cell.transaction not in self.outcomes
        ]
        return max(min([*undecided, self.end]), self.start)

    def committed(self, offset: int) -> list[tuple[int, bytes]]:
        return [
            (cell.offset + delta, value)
            for cell in self.cells
            if cell.end <= self.stable_end()
            and (not cell.transaction or self.outcomes.get(cell.transaction))
            for delta, value in enumerate(cell.values)
            if cell.offset + delta >= offset
        ]

    def aborted(self, offset: int, end: int) -> list[tuple[int, int, int]]:
        """Return (producer id, first offset, marker's offset), in the order of markers."""
        found = []
        for marker in self.cells:
            if marker.is_marker and not self.outcomes[marker.transaction]:
                first = next(
                    cell.offset for cell in self.cells if cell.transaction == marker.transaction
                )
                if marker.offset >= offset and first < end:
                    found.append((marker.producer_id, first, marker.offset))
        return found


class Watcher:
    """Receiver of a tail: committed values by their offsets."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, bytes]] = []
        self.offset = 0
        self.has_failed = False

    def on_batches(self, partition: Partition, batches: Sequence[Buffer]) -> bool:  # noqa: ARG002
        self.seen += [pair for pair in records_of(batches) if pair[0] >= self.offset]
        return True

    def on_writes(self, partition: Partition, writes: Sequence[Write]) -> bool:
        self.has_failed |= any(write.header.is_transactional for write in writes)
        return self.on_batches(partition, [write.batch for write in writes])

    def on_tail_error(self, partition: Partition, error: Exception) -> None:  # noqa: ARG002
        assert isinstance(error, OffsetOutOfRange)
        self.has_failed = True


def records_of(batches: Sequence[Buffer]) -> list[tuple[int, bytes]]:
    """Return (offset, value) of the records that an application sees."""
    return [
        (record.offset, record.value or b"")
        for batch in batches
        if not parse_batch_header(batch).is_control
        for record in decode_batch(batch)
    ]


class Walk:
    """Steps of producers, restarts and reads; each read is compared with the model.

    ``new_storage``: the storage of the next start; None keeps the one in memory. ``outside``: of a
    reader of the log without the node.
    """

    def __init__(
        self,
        house: House,
        seed: int,
        new_storage: Callable[[], StorageAdapter] | None = None,
        outside: Options | None = None,
    ) -> None:
        self.house = house
        self.random = random.Random(seed)
        self.new_storage = new_storage
        self.outside = outside
        self.model = Model()
        self.open: dict[int, int] = {}  # transaction of each producer
        self.transaction_count = 0

    async def start(self) -> None:
        self.partition = await self.house.partition("t")
        self.producers = [
            TransactionalProducer(self.house, self.partition, n + 1, version=1 + n % 2)
            for n in range(PRODUCERS)
        ]
        await self._load()

    async def run(self, steps: int) -> None:
        choices = (
            (self.plain, 3), (self.transactional, 8), (self.end, 5), (self.end_again, 1),
            (self.end_nothing, 1), (self.early_snapshot, 1),
            (self.check_tail, 3), (self.snapshot, 1), (self.restart, 1),
            (self.truncate, 1), (self.check, 4), (self.check_outside, 2),
        )  # fmt: skip
        names, weights = zip(*choices, strict=True)
        for step in self.random.choices(names, weights, k=steps):
            await step()
            assert self.partition.stable_end == self.model.stable_end(), step.__name__
            assert self.partition.high_watermark == self.model.end
        await self.restart()
        await self.check()
        await self.check_outside()

    # --- writing

    async def plain(self) -> None:
        values = self._values()
        write = self.house.broker.prepare(self.partition, batch_of(values))
        assert isinstance(write, Write)
        await self._append([write])
        self.model.cells.append(Cell(write.base_offset, values))

    async def transactional(self) -> None:
        producer = self.random.choice(self.producers)
        if producer.producer_id not in self.open:
            self.transaction_count += 1
            self.open[producer.producer_id] = self.transaction_count
        values = self._values()
        write = producer.prepare(values[0], len(values))
        assert isinstance(write, Write)
        producer.sequence += len(values)
        await self._append([write])
        values = values[:1] * len(values)
        transaction = self.open[producer.producer_id]
        self.model.cells.append(
            Cell(write.base_offset, values, transaction, producer.producer_id)
        )

    async def end(self) -> None:
        if not self.open:
            return
        producer = self.producers[self.random.choice(list(self.open)) - 1]
        is_commit = self.random.random() < 0.5
        write = await producer.end(is_commit=is_commit)
        assert write is not None
        transaction = self.open.pop(producer.producer_id)
        self.model.outcomes[transaction] = is_commit
        self.model.cells.append(
            Cell(write.base_offset, (), transaction, producer.producer_id, is_marker=True)
        )

    async def end_again(self) -> None:
        """Send the marker of a finished transaction again: an abort, whatever it was."""
        idle = [one for one in self.producers if one.producer_id not in self.open and one.epoch]
        if not idle:
            return
        producer = self.random.choice(idle)
        producer.epoch -= 1
        assert await producer.end(is_commit=False) is None

    async def end_nothing(self) -> None:
        """Append a marker of a producer that has nothing open; no reader knows of it."""
        idle = [
            one
            for one in self.producers
            if one.producer_id not in self.open and one.version == 1
        ]
        if not idle:
            return
        write = await self.random.choice(idle).end(is_commit=False)
        assert write is not None
        self.transaction_count += 1
        self.model.outcomes[self.transaction_count] = True
        self.model.cells.append(
            Cell(write.base_offset, (), self.transaction_count, is_marker=True)
        )

    async def truncate(self) -> None:
        before = [cell.offset for cell in self.model.cells if cell.end <= self.model.end]
        if not before or self.random.random() < 0.5:
            return
        offset = self.random.choice(before[: len(before) // 2 + 1])
        if offset <= self.model.start:
            return
        await outcome(
            lambda done: self.house.broker.truncate_before(self.partition, offset, done)
        )
        self.model.start = offset

    async def _append(self, writes: list[Write]) -> None:
        assert await outcome(lambda done: self.house.broker.append(writes, done)) is None

    def _values(self) -> tuple[bytes, ...]:
        return (b"%d" % self.random.randrange(10**6),) * self.random.randint(1, 3)

    # --- starts

    async def _load(self) -> None:
        house = self.house
        stream = await ShardedStream.open(
            PRODUCERS_TOPIC,
            house.broker,
            house.topics,
            house.clock,
            rule=rule_of_partition_ids(house.topics, house.broker.placement),
        )
        self.states = ProducerStates(
            stream,
            house.broker,
            house.topics,
            house.clock,
            BrokerConfig(),
            transactions=await TransactionStates.open(house.broker, house.topics, house.clock),
        )
        await self.states.load()
        self._follow()

    def _follow(self) -> None:
        self.watcher = Watcher()
        self.watcher.offset = self.model.start
        self.tail: Tail = self.house.broker.tail(self.partition, self.model.start, self.watcher)

    async def snapshot(self) -> None:
        self.states._snapshot()
        await outcome(self.house.broker.after_pending)

    async def early_snapshot(self) -> None:
        """Write the state as before a move; a start then replays what the snapshot knows."""
        transactions = self.states._transactions
        assert transactions is not None
        transactions.quiesce_shards({0})
        self.states.quiesce_shards({0})
        await outcome(self.house.broker.after_pending)

    async def restart(self) -> None:
        """Start anew, after a last snapshot or without."""
        await outcome(self.house.broker.after_pending)
        self.tail.close()
        if self.random.random() < 0.5:
            self.states.close()
        else:
            self.states.stop()
        await outcome(self.house.broker.after_pending)
        name = self.partition.topic.name
        await self.house.close()
        if self.new_storage is not None:
            self.house.storage = self.new_storage()  # type: ignore[assignment]
        await self.house.open()
        self.partition = self.house.broker.partition(self.house.topics.get(name), 0)
        await self._load()
        for producer in self.producers:
            producer.partition = self.partition

    # --- reading

    async def check(self) -> None:
        model, partition = self.model, self.partition
        offset = self.random.randint(model.start, model.end)
        bytes_max = self.random.choice([1, 300, ALL])
        seen: list[tuple[int, bytes]] = []
        at = offset
        while batches := await self._read(at, bytes_max):
            seen += [pair for pair in records_of(batches) if pair[0] >= offset]
            at = parse_batch_header(batches[-1]).last_offset + 1
        assert seen == model.committed(offset)
        assert await self._as_kafka_client(offset, bytes_max) == model.committed(offset)
        transactions = partition.transactions
        if transactions is not None:
            end = self.random.randint(offset, model.end)
            found = [tuple(one) for one in transactions.aborted.overlapping(offset, end)]
            wanted = [one for one in model.aborted(offset, end) if end <= model.stable_end()]
            if end <= model.stable_end():
                assert found == wanted

    async def check_outside(self) -> None:
        """Compare what a job of Spark reads, from the log itself."""
        if self.outside is None or not self.model.cells:
            return
        assert await asyncio.to_thread(rows_of, self.outside) == self.model.committed(
            self.model.start
        )

    async def _read(self, at: int, bytes_max: int) -> Sequence[Buffer]:
        broker = self.house.broker
        if self.random.random() < 0.5:
            batches = broker.read(self.partition, at, bytes_max=bytes_max)
            if batches is not None:
                return batches
        return await broker.read_disk(self.partition, at, bytes_max=bytes_max)

    async def _as_kafka_client(self, offset: int, bytes_max: int) -> list[tuple[int, bytes]]:
        """Return what a client with read_committed sees: stored batches, and aborted ranges."""
        partition, seen, at = self.partition, [], offset
        reader = self.house.broker.reader
        while batches := await reader.read_stored_disk(
            partition, at, partition.stable_end, bytes_max=bytes_max
        ):
            end = parse_batch_header(batches[-1]).last_offset + 1
            transactions = partition.transactions
            aborted = transactions.aborted.overlapping(at, end) if transactions else []
            todo = sorted(aborted, key=lambda one: one.first_offset)
            skipped: set[int] = set()
            for batch in batches:
                header = parse_batch_header(batch)
                while todo and todo[0].first_offset <= header.last_offset:
                    skipped.add(todo.pop(0).producer_id)
                if header.is_control:
                    skipped.discard(header.producer_id)
                elif not header.is_transactional or header.producer_id not in skipped:
                    seen += [pair for pair in records_of([batch]) if pair[0] >= offset]
            at = end
        return seen

    async def check_tail(self) -> None:
        """Compare what came by the tail; one whose position was deleted begins again."""
        stable_end = self.model.stable_end()
        await until(lambda: self.watcher.has_failed or self.tail.offset >= stable_end)
        if self.watcher.has_failed:
            assert self.tail.offset < self.model.start
            self._follow()
        else:
            assert self.watcher.seen == self.model.committed(self.watcher.offset)


def rows_of(options: Options) -> list[tuple[int, bytes]]:
    """Return (offset, value) of all rows of a topic with one partition."""
    found = wanted(views(options), options)
    start, end = starting_positions(found, options), ending_positions(found, options)
    rows = [
        (row["offset"], row["value"])
        for split in plan(found, start, end, options)
        for batch in read_split(split, options, ROWS)
        for row in batch.select(["offset", "value"]).to_pylist()
    ]
    return sorted(rows)


def batch_of(values: Sequence[bytes]) -> bytearray:
    return sample_batch(value=values[0], count=len(values))
