"""Holders: what somebody still needs stays, within a bound; what all queues settled goes."""

from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from gateway.config.settings import RetentionConfig
from gateway.errors import Overloaded, PolicyViolation
from gateway.partition import Partition
from gateway.records.codec import encode_batch
from gateway.retention_holds import HOLDS_MAX, HolderKind, RetentionHolds
from gateway.upkeep.retention import Retention
from gateway.writer import Write
from storage_adapters.memory import MemoryStorage
from tests.gateway.kernel_in_memory import House, outcome, running

DAY_MS = 86_400_000
QUEUE = HolderKind.QUEUE


class HeldNode:
    """A house with retention, and a holder of this test's own."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.holders = house.broker.holders
        config = RetentionConfig(interval_ms=100)
        self.retention = Retention(house.topics, house.broker, house.clock, config)

    def write(self, partition: Partition, *, size_bytes: int = 100) -> Write:
        record = (self.house.clock.unix_ms(), b"key", bytes(size_bytes), ())
        write = self.house.broker.prepare(partition, encode_batch([record]))
        assert isinstance(write, Write)
        return write

    async def append(
        self, partition: Partition, count: int = 1, *, size_bytes: int = 100
    ) -> int:
        """Append so many batches one by one; return their bytes."""
        appended_bytes = 0
        for _ in range(count):
            write = self.write(partition, size_bytes=size_bytes)
            assert await outcome(partial(self.house.broker.append, [write])) is None
            appended_bytes += len(write.batch)
        return appended_bytes

    def start(self, partition: Partition) -> int:
        return self.house.storage.bounds(partition.partition_id).start

    async def pass_by(self, ms: int = 0) -> None:
        self.house.clock.advance(ms)
        await self.retention.run_once()
        await outcome(self.house.broker.after_pending)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[HeldNode]:
    async with running(tmp_path) as house:
        yield HeldNode(house)


# --- the registry


def test_the_lowest_position_counts(tmp_path: Path) -> None:
    config = MemoryStorage.Config()
    holders = RetentionHolds(MemoryStorage(config, data_dir=tmp_path, clock=None))  # type: ignore[arg-type]  # no time here
    assert (holders.lowest(1), holders.settled(1), holders.of(1)) == (None, None, [])

    holders.hold(1, "orders/billing", QUEUE, 20)
    holders.hold(1, "orders/mail", QUEUE, 30)
    holders.hold(1, "archive", HolderKind.ARCHIVE, 10)
    holders.hold(2, "archive", HolderKind.ARCHIVE, 5)

    assert (holders.lowest(1), holders.settled(1)) == (10, 20)
    assert (holders.lowest(2), holders.settled(2)) == (5, None)
    assert [hold.name for hold in holders.of(1)] == [
        "archive",
        "orders/billing",
        "orders/mail",
    ]
    assert len(holders) == 4

    holders.hold(1, "archive", HolderKind.ARCHIVE, 40)
    holders.release(1, "orders/billing")
    holders.release(1, "nobody")
    assert (holders.lowest(1), holders.settled(1)) == (30, 30)

    holders.forget([1])
    assert holders.lowest(1) is None
    assert len(holders) == 1


def test_holders_of_a_partition_are_bounded(tmp_path: Path) -> None:
    config = MemoryStorage.Config()
    holders = RetentionHolds(MemoryStorage(config, data_dir=tmp_path, clock=None))  # type: ignore[arg-type]  # no time here
    for number in range(HOLDS_MAX):
        holders.hold(1, f"group-{number}", QUEUE, 0)

    with pytest.raises(Overloaded):
        holders.hold(1, "one-more", QUEUE, 0)
    holders.hold(1, "group-0", QUEUE, 7)
    assert holders.lowest(1) == 0


# --- retention


async def test_retention_stops_at_a_holder(node: HeldNode) -> None:
    partition = await node.house.partition("orders", retention_ms=str(DAY_MS))
    await node.append(partition, 10)
    node.holders.hold(partition.partition_id, "orders/billing", QUEUE, 4)

    await node.pass_by(2 * DAY_MS)
    assert node.start(partition) == 4

    node.holders.hold(partition.partition_id, "orders/billing", QUEUE, 7)
    await node.pass_by()
    assert node.start(partition) == 7

    node.holders.release(partition.partition_id, "orders/billing")
    await node.pass_by()
    assert node.start(partition) == 10


async def test_a_holder_ahead_of_retention_is_not_in_its_way(node: HeldNode) -> None:
    partition = await node.house.partition("orders", retention_ms=str(DAY_MS))
    await node.append(partition, 5)
    node.house.clock.advance(2 * DAY_MS)
    await node.append(partition, 5)
    node.holders.hold(partition.partition_id, "orders/billing", QUEUE, 8)

    await node.pass_by()

    assert node.start(partition) == 5
    assert not node.holders.stopped


# --- queues


async def test_a_queue_loses_what_all_groups_have_settled(node: HeldNode) -> None:
    partition = await node.house.partition(
        "work", cleanup_policy="queue", queue_keep_ms="1000", retention_ms="1"
    )
    partition_id = partition.partition_id
    await node.append(partition, 10)
    await node.pass_by(DAY_MS)
    assert node.start(partition) == 0  # nobody has read it; its age does not count

    node.holders.hold(partition_id, "work/a", QUEUE, 6)
    node.holders.hold(partition_id, "work/b", QUEUE, 3)
    await node.pass_by()
    await node.pass_by(999)
    assert node.start(partition) == 0

    node.holders.hold(partition_id, "work/b", QUEUE, 5)
    await node.pass_by(1)
    assert node.start(partition) == 3  # 5 was settled a moment ago

    await node.pass_by(1000)
    assert node.start(partition) == 5


async def test_a_queue_may_keep_nothing(node: HeldNode) -> None:
    partition = await node.house.partition("work", cleanup_policy="queue")
    await node.append(partition, 10)
    node.holders.hold(partition.partition_id, "work/a", QUEUE, 6)
    await node.pass_by()
    assert node.start(partition) == 6

    node.holders.hold(partition.partition_id, "archive", HolderKind.ARCHIVE, 7)
    node.holders.hold(partition.partition_id, "work/a", QUEUE, 10)
    await node.pass_by()
    assert node.start(partition) == 7  # others hold it too


async def test_a_queue_may_have_an_age_too(node: HeldNode) -> None:
    partition = await node.house.partition(
        "work", cleanup_policy="queue,delete", retention_ms=str(DAY_MS)
    )
    await node.append(partition, 4)
    node.holders.hold(partition.partition_id, "work/a", QUEUE, 1)
    await node.pass_by()
    assert node.start(partition) == 1  # settled, and young

    node.holders.hold(partition.partition_id, "work/a", QUEUE, 2)
    await node.pass_by(DAY_MS + 1)
    assert node.start(partition) == 2

    node.holders.release(partition.partition_id, "work/a")
    await node.pass_by()
    assert node.start(partition) == 4


# --- the bound


async def test_producers_of_a_full_queue_are_refused_until_it_is_read(node: HeldNode) -> None:
    partition = await node.house.partition(
        "work", cleanup_policy="queue", hold_bytes_max="10000"
    )
    batch_bytes = len(node.write(partition).batch)
    fitting = 10_000 // batch_bytes

    await node.append(partition, fitting)  # nobody reads it: all of it waits
    await node.append(partition)
    with pytest.raises(PolicyViolation, match=r"hold.bytes.max.*nobody reads"):
        node.write(partition)

    node.holders.hold(partition.partition_id, "work/a", QUEUE, 1)
    await node.append(partition)
    with pytest.raises(PolicyViolation, match="work/a"):
        node.write(partition)
    assert node.holders.refusals == 2

    await node.house.topics.alter_configs(partition.topic.name, {"hold.bytes.max": "-1"})
    await node.append(partition, fitting)


async def test_a_bound_is_overshot_by_a_small_share_only(node: HeldNode) -> None:
    partition = await node.house.partition(
        "work", cleanup_policy="queue", hold_bytes_max="1000000"
    )
    appended_bytes = 0
    with suppress(PolicyViolation):
        for _ in range(2_000):
            appended_bytes += await node.append(partition, size_bytes=1000)

    assert 1_000_000 <= appended_bytes <= 1_000_000 * (1 + 1 / 64) + 2_000
    node.holders.hold(partition.partition_id, "work/a", QUEUE, partition.high_watermark)
    node.write(partition)


async def test_what_retention_may_not_remove_is_bounded_too(node: HeldNode) -> None:
    partition = await node.house.partition(
        "orders", retention_ms=str(DAY_MS), hold_bytes_max="10000"
    )
    node.holders.hold(partition.partition_id, "archive", HolderKind.ARCHIVE, 0)
    await node.append(partition, 100)  # above the bound, but young

    await node.pass_by(DAY_MS + 1)
    with pytest.raises(PolicyViolation, match="archive"):
        node.write(partition)

    node.holders.hold(partition.partition_id, "archive", HolderKind.ARCHIVE, 90)
    node.write(partition)
    node.holders.release(partition.partition_id, "archive")
    node.write(partition)
    await node.pass_by()
    assert node.start(partition) == 100
    assert not node.holders.stopped
