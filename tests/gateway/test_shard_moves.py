"""Moves of shards: what a node answers for partitions that another node owns."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.coalescer import Coalescer
from gateway.errors import GatewayError, NotLeader
from gateway.partition import Partition
from gateway.placement import shard_of
from gateway.records.codec import NO_HEADERS
from gateway.records.record_run import RecordRun
from gateway.testing.placement import SettablePlacement
from gateway.writer import Write
from tests.gateway.kernel_in_memory import House, outcome, running
from tests.support.batches import sample_batch

SHARDS = 64
ALL = range(SHARDS)


@pytest.fixture
def placement() -> SettablePlacement:
    return SettablePlacement(SHARDS, epoch=5)


@pytest.fixture
async def house(tmp_path: Path, placement: SettablePlacement) -> AsyncIterator[House]:
    async with running(tmp_path, placement=placement) as house:
        yield house


def _write(house: House, partition: Partition) -> Write:
    write = house.broker.prepare(partition, sample_batch())
    assert isinstance(write, Write)
    return write


async def test_half_of_the_partitions_are_refused_with_their_owner(
    house: House, placement: SettablePlacement
) -> None:
    topic = await house.topic("t", partitions=100)
    placement.give(range(1, SHARDS, 2))
    kept = [n for n in range(100) if shard_of(topic, n, placement) % 2 == 0]
    assert 20 < len(kept) < 80
    assert [n for n in range(100) if house.broker.owns(topic, n)] == kept
    for number in range(100):
        if number in kept:
            assert house.broker.partition(topic, number).shard % 2 == 0
            continue
        with pytest.raises(NotLeader) as info:
            house.broker.partition(topic, number)
        assert (info.value.owner_id, info.value.epoch) == (placement.other.node_id, 6)
        assert info.value.retriable


async def test_a_partition_that_moves_is_refused_everywhere_and_comes_back_as_it_was(
    house: House, placement: SettablePlacement
) -> None:
    topic = await house.topic("t")
    broker, partition = house.broker, house.broker.partition(topic, 0)
    await outcome(lambda on_done: broker.append([_write(house, partition)], on_done))
    prepared = _write(house, partition)
    end = partition.log_end_offset

    placement.give(ALL)

    refused = [
        lambda: broker.partition(topic, 0),
        lambda: broker.prepare(partition, sample_batch()),
        lambda: broker.append([prepared], _unexpected),
        lambda: broker.read(partition, 0, bytes_max=1),
        lambda: broker.truncate_before(partition, 1, _unexpected),
        lambda: Coalescer(broker).add(
            partition, RecordRun(None, (b"v",), NO_HEADERS, 0), _unexpected
        ),
    ]
    for ask in refused:
        with pytest.raises(NotLeader) as info:
            ask()
        assert (info.value.owner_id, info.value.epoch) == (placement.other.node_id, 6)
    assert partition.log_end_offset == end

    placement.take(ALL)
    await house.broker.shards.settled()
    back = broker.partition(topic, 0)
    assert back is not partition
    assert (back.leader_epoch, back.log_end_offset) == (7, end)
    await outcome(lambda on_done: broker.append([_write(house, back)], on_done))
    assert back.high_watermark == 2 * end


async def test_an_append_of_which_one_partition_has_moved_changes_none(
    house: House, placement: SettablePlacement
) -> None:
    topic = await house.topic("t", partitions=20)
    partitions = [house.broker.partition(topic, number) for number in range(20)]
    writes = [_write(house, partition) for partition in partitions]
    placement.give({partitions[-1].shard})

    with pytest.raises(NotLeader):
        house.broker.append(writes, _unexpected)
    assert {partition.log_end_offset for partition in partitions} == {0}


async def test_open_rounds_are_appended_before_their_shard_leaves(
    house: House, placement: SettablePlacement
) -> None:
    topic = await house.topic("t", partitions=2)
    coalescer = Coalescer(house.broker)
    results: list[object] = []
    gathered = [RecordRun(None, (b"gathered",), NO_HEADERS, 0)]

    def fill() -> None:
        if gathered:
            coalescer.add(partitions[1], gathered.pop(), results.append)

    partitions = [house.broker.partition(topic, number) for number in range(2)]
    coalescer.add(partitions[0], RecordRun(None, (b"open",), NO_HEADERS, 0), results.append)
    coalescer.before_seal.append(fill)

    placement.give(ALL)
    await outcome(house.broker.after_pending)

    assert results == [None, None]
    placement.take(ALL)
    await house.broker.shards.settled()
    back = [house.broker.partition(topic, number) for number in range(2)]
    assert [house.values(partition) for partition in back] == [[b"open"], [b"gathered"]]


async def test_a_waiter_is_woken_when_its_partition_moves(
    house: House, placement: SettablePlacement
) -> None:
    topic = await house.topic("t")
    partition = house.broker.partition(topic, 0)
    woken = asyncio.Event()
    house.broker.wait_readable([partition], bytes_min=1, on_ready=woken.set)

    placement.give(ALL)

    async with asyncio.timeout(60):
        await woken.wait()


async def test_a_tail_ends_with_the_move_after_what_it_had(
    house: House, placement: SettablePlacement
) -> None:
    topic = await house.topic("t")
    partition = house.broker.partition(topic, 0)
    receiver = _Receiver()
    house.broker.tail(partition, 0, receiver)
    await asyncio.sleep(0)
    await outcome(lambda on_done: house.broker.append([_write(house, partition)], on_done))

    placement.give(ALL)

    async with asyncio.timeout(60):
        error = await receiver.ended
    assert isinstance(error, NotLeader)
    assert receiver.count == 1


async def test_a_new_epoch_of_an_own_shard_reaches_live_partitions(
    house: House, placement: SettablePlacement
) -> None:
    topic = await house.topic("t")
    partition = house.broker.partition(topic, 0)
    placement.renew({partition.shard})

    assert house.broker.partition(topic, 0) is partition
    assert partition.leader_epoch == 6


def _unexpected(_error: object) -> None:
    raise AssertionError("nothing was to be done")


class _Receiver:
    """Counts batches until its tail ends."""

    def __init__(self) -> None:
        self.count = 0
        self.ended: asyncio.Future[GatewayError] = asyncio.get_running_loop().create_future()

    def on_batches(self, _partition: Partition, batches: object) -> bool:
        self.count += len(batches)  # type: ignore[arg-type]
        return True

    def on_writes(self, _partition: Partition, writes: object) -> bool:
        return self.on_batches(_partition, writes)

    def on_tail_error(self, _partition: Partition, error: GatewayError) -> None:
        self.ended.set_result(error)
