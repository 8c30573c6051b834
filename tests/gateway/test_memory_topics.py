"""Topics in memory: bounded, empty after a restart, refused where they cannot keep a promise."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.clock import ManualClock
from gateway.coalescer import Coalescer
from gateway.config.settings import BrokerConfig, MemoryConfig, TopicDefaults
from gateway.errors import (
    InvalidConfig,
    InvalidRecord,
    OffsetOutOfRange,
    Overloaded,
)
from gateway.memory_topics import open_memory, start_broker
from gateway.metadata.sql import SqlMetadata
from gateway.metrics import Metrics
from gateway.model import TopicName
from gateway.partition import Partition
from gateway.placement import SingleNode
from gateway.records.codec import NO_HEADERS
from gateway.records.markers import Marker
from gateway.records.record_run import RecordRun
from gateway.retention_holds import HolderKind
from gateway.split_storage import OFFSETS_PER_START, SplitStorage
from gateway.topics.manager import TopicManager
from gateway.writer import Duplicate, Write
from tests.gateway.kernel_in_memory import House, outcome
from tests.support.batches import sample_batch
from tests.support.held_storage import HeldStorage
from tests.support.waiting import turns

KIB = 1024
MIB = 1024 * KIB


class MemoryHouse(House):
    """House with memory beside its storage."""

    storage: HeldStorage
    split: SplitStorage

    async def open(self) -> None:
        self.topics = TopicManager(self.metadata, defaults=TopicDefaults(), clock=self.clock)
        await self.topics.load()
        await self.storage.open(self)
        memory = MemoryConfig(bytes_max=4 * MIB)
        self.split = await open_memory(self.storage, self, self.topics, self.clock, memory)
        placement = SingleNode(
            self.storage.incarnation, node_id=1, cluster_id="cluster-of-one-node-22"
        )
        self.broker = start_broker(
            self.split, self.topics, placement, self.clock, BrokerConfig()
        )
        self.coalescer = Coalescer(self.broker)

    async def in_memory(self, name: str = "m", **configs: str) -> Partition:
        return await self.partition(name, **{"storage_class": "memory", **configs})

    async def send(self, partition: Partition, *values: bytes) -> None:
        """Append each value in a batch of its own. Errors: those of ``Coalescer.add``."""
        for value in values:
            run = RecordRun(None, (value,), NO_HEADERS, self.clock.unix_ms())
            error = await outcome(lambda done, r=run: self.coalescer.add(partition, r, done))  # type: ignore[misc]
            if error is not None:
                raise error


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[MemoryHouse]:
    clock = ManualClock()
    metadata = SqlMetadata("sqlite", data_dir=tmp_path)
    await metadata.open()
    storage = HeldStorage(HeldStorage.Config(), data_dir=tmp_path, clock=clock)
    found = MemoryHouse(metadata, storage, clock)
    await found.open()
    yield found
    await found.close()
    await metadata.close()


async def test_nothing_of_a_topic_in_memory_reaches_the_log(house: MemoryHouse) -> None:
    partition = await house.in_memory()
    before = house.storage.next_sequence

    await house.send(partition, b"one", b"two")

    assert house.values(partition) == [b"one", b"two"]
    assert house.storage.next_sequence == before
    assert house.storage.size_bytes(partition.partition_id) == 0


async def test_a_restart_leaves_it_declared_and_empty(house: MemoryHouse) -> None:
    partition = await house.in_memory()
    await house.send(partition, b"one", b"two")
    kept = await house.partition("kept")
    await house.send(kept, b"three")

    await house.restart()

    topic = house.topics.get(TopicName("default", "m"))
    again = house.broker.partition(topic, 0)
    assert house.values(again) == []
    assert again.log_start_offset == again.high_watermark == OFFSETS_PER_START
    assert again.leader_epoch > partition.leader_epoch
    with pytest.raises(OffsetOutOfRange):
        house.broker.read(again, 1, bytes_max=MIB)
    await house.send(again, b"four")
    assert house.values(again) == [b"four"]
    durable = house.broker.partition(house.topics.get(TopicName("default", "kept")), 0)
    assert house.values(durable) == [b"three"]


async def test_the_oldest_go_above_the_bound_of_the_topic(house: MemoryHouse) -> None:
    partition = await house.in_memory(memory_bytes_max=str(MIB))
    values = [bytes([n]) * (128 * KIB) for n in range(40)]

    await house.send(partition, *values)
    await turns()

    left = house.values(partition)
    assert left == values[-len(left) :]
    assert 6 <= len(left) <= 11
    assert house.split.memory_used_bytes <= MIB + 512 * KIB
    assert partition.log_start_offset == 40 - len(left)


async def test_a_queue_in_memory_refuses_above_its_bound_and_takes_again(
    house: MemoryHouse,
) -> None:
    partition = await house.in_memory(memory_bytes_max=str(MIB), cleanup_policy="queue")
    house.broker.hold_retention(partition.partition_id, "queue:g", HolderKind.QUEUE, 0)
    value = bytes(128 * KIB)

    with pytest.raises(Overloaded, match=r"memory.bytes.max, 1048576"):
        await house.send(partition, *[value] * 40)
    count = partition.high_watermark
    assert 7 <= count <= 11

    def settle(of: Partition) -> None:
        house.broker.hold_retention(of.partition_id, "queue:g", HolderKind.QUEUE, count - 1)

    house.broker.memory.renew_holds = settle
    await house.send(partition, value)
    assert partition.high_watermark == count + 1


async def test_full_memory_refuses_producers(house: MemoryHouse) -> None:
    partition = await house.in_memory(memory_bytes_max=str(64 * MIB))
    kept = await house.partition("kept")

    with pytest.raises(Overloaded, match=r"memory.bytes_max"):
        await house.send(partition, *[bytes(512 * KIB)] * 10)

    assert house.split.memory_used_bytes <= 4 * MIB
    assert house.split.memory_refusals == 1
    await house.send(kept, bytes(512 * KIB))


@pytest.mark.parametrize(
    "configs",
    [
        {"cleanup_policy": "compact"},
        {"storage_class": "disk"},
        {"memory_bytes_max": "-1"},
    ],
)
async def test_what_memory_cannot_do_is_refused(
    house: MemoryHouse, configs: dict[str, str]
) -> None:
    with pytest.raises(InvalidConfig):
        await house.in_memory(**configs)


async def test_a_topic_stays_where_it_was_made(house: MemoryHouse) -> None:
    await house.in_memory("m")
    await house.partition("kept")

    with pytest.raises(InvalidConfig):
        await house.topics.alter_configs(TopicName("default", "m"), {"storage.class": None})
    with pytest.raises(InvalidConfig):
        await house.topics.alter_configs(
            TopicName("default", "kept"), {"storage.class": "memory"}
        )
    await house.topics.alter_configs(TopicName("default", "m"), {"retention.ms": "1000"})


def test_memory_is_no_default_of_all_topics(house: MemoryHouse) -> None:
    defaults = TopicDefaults(configs={"storage.class": "memory"})

    with pytest.raises(InvalidConfig):
        TopicManager(house.metadata, defaults=defaults, clock=house.clock)


def _producer_batch(*, is_transactional: bool = False) -> bytearray:
    return sample_batch(
        producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=is_transactional
    )


async def test_transactional_batches_are_refused(house: MemoryHouse) -> None:
    partition = await house.in_memory()

    with pytest.raises(InvalidRecord):
        house.broker.prepare(
            partition, _producer_batch(is_transactional=True), transaction_version=1
        )
    marker = Marker(7, 0, is_commit=True, coordinator_epoch=0)
    assert house.broker.prepare_marker(partition, marker, transaction_version=1) is None
    assert partition.transactions is None


async def test_producers_are_known_while_the_process_lives(house: MemoryHouse) -> None:
    partition = await house.in_memory()
    write = house.broker.prepare(partition, _producer_batch())
    assert isinstance(write, Write)
    assert await outcome(lambda done: house.broker.append([write], done)) is None

    again = house.broker.prepare(partition, _producer_batch())

    assert isinstance(again, Duplicate)
    assert house.broker.writer.producers_changed == set()  # nothing to be stored of them


async def test_all_appends_so_far_are_those_of_both_logs(house: MemoryHouse) -> None:
    in_memory, kept = await house.in_memory(), await house.partition("kept")
    house.storage.held = True
    done: list[str] = []

    for partition, name in ((kept, "kept"), (in_memory, "memory")):
        write = house.broker.prepare(partition, sample_batch())
        assert isinstance(write, Write)
        house.broker.append([write], lambda _, n=name: done.append(n))  # type: ignore[misc]
    house.broker.after_pending(lambda _: done.append("all"))
    await turns()
    assert done == ["memory"]
    house.storage.release()
    await turns()

    assert done == ["memory", "kept", "all"]
    assert not house.broker.writer.pending


async def test_metrics_show_the_memory_that_is_taken(house: MemoryHouse) -> None:
    partition = await house.in_memory()
    await house.send(partition, bytes(100 * KIB))
    metrics = Metrics()
    house.broker.register_metrics(metrics)

    def read(name: str) -> float:
        ((_, value),) = metrics.read(name)
        return value

    assert read("headgate_memory_bytes") > 100 * KIB
    assert read("headgate_memory_partitions") == 1
    assert read("headgate_memory_refusals") == 0


async def test_full_memory_refuses_no_one_who_writes_to_the_log(house: MemoryHouse) -> None:
    queue = await house.in_memory(memory_bytes_max=str(64 * MIB), cleanup_policy="queue")
    house.broker.hold_retention(queue.partition_id, "queue:g", HolderKind.QUEUE, 0)
    kept = await house.partition("kept")
    value = bytes(100 * KIB)
    errors: list[Exception | None] = []
    for _ in range(60):
        run = RecordRun(None, (value,), NO_HEADERS, house.clock.unix_ms())
        try:
            house.coalescer.add(queue, run, errors.append)
        except Overloaded as error:
            errors.append(error)
        durable = RecordRun(None, (b"kept",), NO_HEADERS, house.clock.unix_ms())
        assert await outcome(lambda done, r=durable: house.coalescer.add(kept, r, done)) is None  # type: ignore[misc]

    assert {type(one) for one in errors} == {type(None), Overloaded}
    assert house.values(kept) == [b"kept"] * 60
