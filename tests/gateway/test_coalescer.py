"""Runs of many publishers share batches; each learns where its own records are."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.coalescer import (
    BATCH_BYTES_MAX,
    BATCH_RECORDS_MAX,
    ROUND_BYTES_MAX,
    Coalescer,
    Run,
)
from gateway.errors import MessageTooLarge, StorageFull, StorageUnavailable
from gateway.partition import Partition
from gateway.records import NewRecord
from tests.gateway.house import House, running


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with running(tmp_path, bytes_max=4 << 20) as one:
        yield one


def record(value: bytes) -> NewRecord:
    return (1_700_000_000_000, None, value, ())


class Publisher:
    """Adds runs and waits for all of them."""

    def __init__(self, coalescer: Coalescer) -> None:
        self.coalescer = coalescer
        self.runs: list[Run] = []
        self.waiting: list[asyncio.Future[StorageUnavailable | None]] = []
        self.order: list[int] = []

    def add(self, partition: Partition, *values: bytes) -> Run:
        done: asyncio.Future[StorageUnavailable | None] = asyncio.Future()
        number = len(self.waiting)

        def on_done(error: StorageUnavailable | None) -> None:
            self.order.append(number)
            done.set_result(error)

        run = self.coalescer.add(partition, [record(value) for value in values], on_done)
        self.runs.append(run)
        self.waiting.append(done)
        return run

    async def all_done(self) -> list[StorageUnavailable | None]:
        return await asyncio.gather(*self.waiting)


async def test_runs_of_one_tick_are_one_batch(house: House) -> None:
    partition = await house.partition("t")
    publisher = Publisher(Coalescer(house.broker))
    for value in (b"a", b"b", b"c"):
        publisher.add(partition, value)
    publisher.add(partition, b"d", b"e")
    assert [run.base_offset for run in publisher.runs] == [-1] * 4

    assert await publisher.all_done() == [None] * 4

    assert [len(batch) for batch in house.batches(partition)] == [5]
    assert house.values(partition) == [b"a", b"b", b"c", b"d", b"e"]
    assert [run.base_offset for run in publisher.runs] == [0, 1, 2, 3]


async def test_a_round_is_one_append_over_all_partitions(house: House) -> None:
    first, second = await house.partition("a"), await house.partition("b")
    coalescer = Coalescer(house.broker)
    publisher = Publisher(coalescer)

    publisher.add(first, b"1")
    publisher.add(second, b"2")
    await publisher.all_done()

    assert coalescer.rounds_appended == 1
    assert (house.values(first), house.values(second)) == ([b"1"], [b"2"])


async def test_offsets_count_on_from_what_is_there(house: House) -> None:
    partition = await house.partition("t")
    publisher = Publisher(Coalescer(house.broker))
    publisher.add(partition, b"0", b"1")
    await publisher.all_done()

    run = publisher.add(partition, b"2")
    await publisher.all_done()

    assert run.base_offset == 2


async def test_what_comes_while_a_round_is_synced_waits_for_it(house: House) -> None:
    partition = await house.partition("t")
    publisher = Publisher(Coalescer(house.broker))
    publisher.add(partition, b"first")
    publisher.coalescer.seal()
    publisher.add(partition, b"second")
    publisher.add(partition, b"third")

    await publisher.all_done()

    assert [len(batch) for batch in house.batches(partition)] == [1, 2]


async def test_a_batch_is_sealed_at_its_bound_of_records(house: House) -> None:
    partition = await house.partition("t")
    publisher = Publisher(Coalescer(house.broker))

    for _ in range(BATCH_RECORDS_MAX + 1):
        publisher.add(partition, b"")
    await publisher.all_done()

    assert [len(batch) for batch in house.batches(partition)] == [BATCH_RECORDS_MAX, 1]


async def test_a_batch_is_sealed_at_its_bound_of_octets(house: House) -> None:
    partition = await house.partition("t")
    publisher = Publisher(Coalescer(house.broker))

    for _ in range(3):
        publisher.add(partition, bytes(BATCH_BYTES_MAX // 2 - 100))
    await publisher.all_done()

    assert [len(batch) for batch in house.batches(partition)] == [2, 1]


async def test_a_large_round_does_not_wait(house: House) -> None:
    partitions = [await house.partition(f"t{n}") for n in range(4)]
    coalescer = Coalescer(house.broker)
    publisher = Publisher(coalescer)
    publisher.add(partitions[0], b"in flight")
    coalescer.seal()

    for partition in partitions:
        publisher.add(partition, bytes(ROUND_BYTES_MAX // 4))
    await publisher.all_done()

    assert coalescer.rounds_appended == 2


async def test_a_run_is_never_split(house: House) -> None:
    partition = await house.partition("t")
    publisher = Publisher(Coalescer(house.broker))

    publisher.add(partition, b"small")
    publisher.add(partition, *[b""] * (BATCH_RECORDS_MAX + 50))
    await publisher.all_done()

    assert [len(batch) for batch in house.batches(partition)] == [1, BATCH_RECORDS_MAX + 50]


async def test_a_topics_own_bound_holds(house: House) -> None:
    partition = await house.partition("t", max_message_bytes="1000")
    publisher = Publisher(Coalescer(house.broker))

    with pytest.raises(MessageTooLarge):
        publisher.add(partition, bytes(1_000))
    for _ in range(4):
        publisher.add(partition, bytes(400))
    await publisher.all_done()

    assert [len(batch) for batch in house.batches(partition)] == [2, 2]


async def test_log_append_time_is_marked(house: House) -> None:
    partition = await house.partition("t", message_timestamp_type="LogAppendTime")
    publisher = Publisher(Coalescer(house.broker))

    publisher.add(partition, b"v")
    await publisher.all_done()

    (batch,) = house.broker.read(partition, 0, bytes_max=1 << 20) or ()
    assert batch[22] & 0x08


async def test_a_full_disk_refuses_every_run_the_last_first(house: House) -> None:
    partition = await house.partition("t")
    publisher = Publisher(Coalescer(house.broker))
    filler = Publisher(Coalescer(house.broker))
    for size_bytes in (1_000_000, 1_000_000, 1_000_000, 1_000_000, 190_000):
        filler.add(partition, bytes(size_bytes))
    await filler.all_done()

    for _ in range(3):
        publisher.add(partition, bytes(5_000))
    outcomes = await publisher.all_done()

    assert [type(error) for error in outcomes] == [StorageFull] * 3
    assert publisher.order == [2, 1, 0]
    assert partition.log_end_offset == 5
