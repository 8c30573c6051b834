"""The broker on memory storage: append, read, wait, tail, truncate."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.errors import (
    GatewayError,
    OffsetOutOfRange,
    StorageFull,
    StorageUnavailable,
    TopicNotFound,
)
from gateway.model import Buffer, parse_batch_header
from gateway.partition import Partition
from gateway.tail import Tail
from gateway.writer import Write
from tests.gateway.kernel_in_memory import House, running
from tests.support.batches import sample_batch
from tests.support.waiting import turns


def prepared(house: House, partition: Partition, *, count: int = 1, **batch: object) -> Write:
    write = house.broker.prepare(partition, sample_batch(count=count, **batch))  # type: ignore[arg-type]
    assert isinstance(write, Write)
    return write


async def append(house: House, *writes: Write) -> None:
    done: asyncio.Future[StorageUnavailable | None] = asyncio.get_running_loop().create_future()
    house.broker.append(writes, done.set_result)
    assert await done is None


class Collector:
    """A receiver that takes so many batches, then is full until told otherwise."""

    def __init__(self, room: int = 1_000_000) -> None:
        self.room = room
        self.offsets: list[int] = []
        self.errors: list[GatewayError] = []
        self.changed = asyncio.Event()

    def on_batches(self, partition: Partition, batches: Sequence[Buffer]) -> bool:  # noqa: ARG002
        self.offsets += [parse_batch_header(batch).base_offset for batch in batches]
        self.room -= len(batches)
        self.changed.set()
        return self.room > 0

    def on_writes(self, partition: Partition, writes: Sequence[Write]) -> bool:
        return self.on_batches(partition, [write.batch for write in writes])

    def on_tail_error(self, partition: Partition, error: GatewayError) -> None:  # noqa: ARG002
        self.errors.append(error)
        self.changed.set()

    async def wait_for(self, count: int) -> list[int]:
        async with asyncio.timeout(60):
            while len(self.offsets) < count and not self.errors:
                self.changed.clear()
                await self.changed.wait()
        return self.offsets


async def test_an_append_to_many_partitions_gets_its_offsets_at_once(house: House) -> None:
    topic = await house.topic("orders", partitions=2)
    first, second = house.broker.partition(topic, 0), house.broker.partition(topic, 1)
    await append(house, prepared(house, first, count=3))
    writes = [
        prepared(house, first, count=2),
        prepared(house, second),
        prepared(house, first, count=4),
    ]
    house.broker.append(writes, lambda _error: None)
    assert [write.base_offset for write in writes] == [3, 0, 5]
    assert (first.log_end_offset, first.high_watermark) == (9, 3)


async def test_what_the_storage_refuses_has_not_happened(tmp_path: Path) -> None:
    async with running(tmp_path, bytes_max=32 << 20) as house:
        partition = await house.partition("orders")
        writes = [
            prepared(house, partition, value=bytes(1_000_000), count=1) for _ in range(40)
        ]
        with pytest.raises(StorageFull):
            house.broker.append(writes, lambda _error: None)
        assert (partition.log_end_offset, partition.high_watermark) == (0, 0)
        await append(house, prepared(house, partition))
        assert partition.high_watermark == 1


async def test_a_partition_that_is_not_there_is_not_found(house: House) -> None:
    topic = await house.topic("orders", partitions=2)
    for number in (-1, 2):
        with pytest.raises(TopicNotFound):
            house.broker.partition(topic, number)


async def test_a_waiter_fires_once_when_it_has_its_bytes(house: House) -> None:
    partition = await house.partition("orders")
    size = len(sample_batch())
    fired: list[int] = []
    house.broker.wait_readable(
        [partition], bytes_min=2 * size, on_ready=lambda: fired.append(partition.high_watermark)
    )
    await append(house, prepared(house, partition))
    await turns()
    assert fired == []
    await append(house, prepared(house, partition))
    await append(house, prepared(house, partition))
    await turns()
    assert fired == [2]
    assert not partition.waiters


async def test_a_cancelled_waiter_does_not_fire(house: House) -> None:
    partition = await house.partition("orders")
    fired: list[bool] = []
    waiter = house.broker.wait_readable(
        [partition], bytes_min=1, on_ready=lambda: fired.append(True)
    )
    house.broker.append([prepared(house, partition)], lambda _error: waiter.cancel())
    await turns()
    assert fired == []


async def test_a_tail_moves_from_the_log_to_the_live_end_each_batch_once(house: House) -> None:
    partition = await house.partition("orders")
    for _ in range(3):
        await append(house, prepared(house, partition, count=2))
    receiver = Collector()
    house.broker.tail(partition, 2, receiver)
    assert await receiver.wait_for(2) == [2, 4]
    await append(house, prepared(house, partition), prepared(house, partition))
    assert await receiver.wait_for(4) == [2, 4, 6, 7]


async def test_a_full_receiver_pauses_its_tail_and_loses_nothing(house: House) -> None:
    partition = await house.partition("orders")
    await append(house, prepared(house, partition))
    receiver = Collector(room=1)
    tail = house.broker.tail(partition, 0, receiver)
    await receiver.wait_for(1)
    for _ in range(3):
        await append(house, prepared(house, partition))
    await turns()
    assert receiver.offsets == [0]
    receiver.room = 10
    tail.resume()
    assert await receiver.wait_for(4) == [0, 1, 2, 3]


async def test_a_closed_tail_pushes_nothing(house: House) -> None:
    partition = await house.partition("orders")
    receiver = Collector()
    tail = house.broker.tail(partition, 0, receiver)
    await turns()
    tail.close()
    await append(house, prepared(house, partition))
    await turns()
    assert receiver.offsets == []
    assert not partition.waiters


async def test_a_tail_whose_position_was_deleted_says_so(house: House) -> None:
    partition = await house.partition("orders")
    await append(house, prepared(house, partition, count=5))
    await truncate(house, partition, 3)
    receiver = Collector()
    tail = house.broker.tail(partition, 2, receiver)
    await receiver.wait_for(1)
    assert [type(error) for error in receiver.errors] == [OffsetOutOfRange]
    assert isinstance(tail, Tail)


async def truncate(house: House, partition: Partition, offset: int) -> None:
    done: asyncio.Future[StorageUnavailable | None] = asyncio.get_running_loop().create_future()
    house.broker.truncate_before(partition, offset, done.set_result)
    assert await done is None


async def test_the_log_start_moves_up_and_never_down(house: House) -> None:
    partition = await house.partition("orders")
    await append(house, prepared(house, partition, count=5))
    await truncate(house, partition, 3)
    await truncate(house, partition, 1)
    assert partition.log_start_offset == 3
    with pytest.raises(OffsetOutOfRange):
        house.broker.read(partition, 2, bytes_max=1)
    with pytest.raises(OffsetOutOfRange):
        house.broker.truncate_before(partition, 6, lambda _error: None)


async def test_the_first_record_at_a_time_is_found_inside_its_batch(house: House) -> None:
    partition = await house.partition("orders")
    start = house.clock.unix_ms() - 1000
    for step in range(4):
        await append(house, prepared(house, partition, timestamp_unix_ms=start + 100 * step))
    assert await house.broker.offset_for_time(partition, start + 101) == (
        2, start + 200, partition.leader_epoch,
    )  # fmt: skip
    assert await house.broker.offset_for_time(partition, start + 301) is None
    assert await house.broker.max_timestamp(partition) == (
        3, start + 300, partition.leader_epoch,
    )  # fmt: skip


async def test_a_deleted_topic_wakes_who_waits_and_refuses_who_comes(house: House) -> None:
    partition = await house.partition("orders")
    fired: list[bool] = []
    house.broker.wait_readable([partition], bytes_min=100, on_ready=lambda: fired.append(True))
    receiver = Collector()
    house.broker.tail(partition, 0, receiver)
    await turns()
    house.broker.delete_topic(partition.topic, lambda _error: None)
    await turns()
    assert fired == [True]
    assert [type(error) for error in receiver.errors] == [TopicNotFound]
    assert not partition.waiters
    with pytest.raises(TopicNotFound):
        house.broker.prepare(partition, sample_batch())
    with pytest.raises(TopicNotFound):
        await house.broker.read_disk(partition, 0, bytes_max=1)


async def test_who_is_held_is_released_even_after_anothers_bug(house: House) -> None:
    partition = await house.partition("orders")
    released: list[str] = []

    def fail(_error: StorageUnavailable | None) -> None:
        raise RuntimeError

    house.broker.append([prepared(house, partition)], fail)
    first, second = (lambda: released.append("first")), (lambda: released.append("second"))
    house.broker.writer.hold(first)
    house.broker.writer.hold(second)
    house.broker.writer.unhold(second)
    with pytest.raises(RuntimeError):
        house.broker.writer.pending[0].done(None)
    assert released == ["first"]
    house.storage._waiting.clear()
