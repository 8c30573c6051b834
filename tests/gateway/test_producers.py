"""Idempotent producers across restarts: from the log alone, from a snapshot, and from both."""

import pytest

from gateway import sharded_stream
from gateway.config.settings import BrokerConfig
from gateway.errors import OutOfOrderSequence
from gateway.futures import await_done
from gateway.model import TopicName
from gateway.partition import Partition
from gateway.producers import PRODUCERS_TOPIC, ProducerStates, open_producers
from gateway.sharded_stream import ShardedStream
from gateway.testing.placement import SettablePlacement
from gateway.writer import Duplicate, Write
from tests.gateway.kernel_in_memory import House
from tests.gateway.test_broker import append
from tests.support.batches import sample_batch

SHARDS = 8


async def states(house: House) -> ProducerStates:
    stream = await open_producers(house.broker, house.topics, house.clock)
    found = ProducerStates(stream, house.broker, house.topics, house.clock, BrokerConfig())
    await found.load()
    return found


def batch(sequence: int) -> bytearray:
    return sample_batch(count=10, producer_id=77, producer_epoch=1, base_sequence=sequence)


async def produce(house: House, partition: Partition, *sequences: int) -> None:
    for sequence in sequences:
        write = house.broker.prepare(partition, batch(sequence))
        assert isinstance(write, Write)
        await append(house, write)


def again(house: House, partition: Partition, sequence: int) -> int:
    """Send a batch again; return the offset it is answered with."""
    outcome = house.broker.prepare(partition, batch(sequence))
    assert isinstance(outcome, Duplicate)
    return outcome.base_offset


async def restarted(house: House, name: str) -> Partition:
    """Return a partition after a restart, with the producers' state loaded."""
    topic_name = next(t.name for t in house.topics.topics() if t.name.name == name)
    await house.restart()
    (await states(house)).stop()
    return house.broker.partition(house.topics.get(topic_name), 0)


@pytest.mark.parametrize("clean", [False, True])
async def test_a_restart_forgets_no_sequence(house: House, *, clean: bool) -> None:
    loaded = await states(house)
    await produce(house, await house.partition("orders"), 0, 10, 20)
    if clean:
        loaded.close()  # writes a snapshot
    else:
        loaded.stop()
    partition = await restarted(house, "orders")
    assert again(house, partition, 10) == 10
    with pytest.raises(OutOfOrderSequence):
        house.broker.prepare(partition, batch(40))
    await produce(house, partition, 30)


async def test_a_snapshot_and_what_came_after_it_are_put_together(house: House) -> None:
    loaded = await states(house)
    partition = await house.partition("orders")
    await produce(house, partition, 0, 10)
    loaded.close()
    await produce(house, partition, 20)
    partition = await restarted(house, "orders")
    assert [again(house, partition, sequence) for sequence in (0, 10, 20)] == [0, 10, 20]


async def test_a_deleted_topic_leaves_no_state_behind(house: House) -> None:
    loaded = await states(house)
    partition = await house.partition("orders")
    await produce(house, partition, 0)
    loaded.close()
    await house.topics.delete(partition.topic.name)
    await house.restart()
    (await states(house)).stop()
    partition = await house.partition("orders")
    assert isinstance(house.broker.prepare(partition, batch(500)), Write)


async def keys(house: House) -> set[bytes]:
    stream = await ShardedStream.open(PRODUCERS_TOPIC, house.broker, house.topics, house.clock)
    return set(await stream.load()) - {b"sequence"}


@pytest.mark.parametrize("is_told", [True, False])
async def test_snapshots_of_deleted_topics_go(house: House, *, is_told: bool) -> None:
    loaded = await states(house)
    partition = await house.partition("orders")
    await produce(house, partition, 0)
    loaded._snapshot()
    if is_told:
        house.broker.delete_topic(partition.topic, lambda _error: None)
    await house.topics.delete(partition.topic.name)
    loaded.close()
    await house.restart()
    (await states(house)).close()
    await house.restart()
    assert await keys(house) == set()


async def test_a_snapshot_too_large_for_one_append_is_written_in_parts(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sharded_stream._CONFIGS, "max.message.bytes", "400")
    loaded = await states(house)
    names = [f"orders-{number}" for number in range(8)]
    for name in names:
        await produce(house, await house.partition(name), 0)
    loaded._snapshot()
    partition = await house.partition("last")
    await produce(house, partition, 0)
    loaded.stop()
    await house.restart()
    assert len(await keys(house)) == 8
    (await states(house)).stop()
    for name in names:
        topic = house.topics.get(TopicName("default", name))
        assert again(house, house.broker.partition(topic, 0), 0) == 0


async def test_a_snapshot_amid_a_move_loses_no_sequence(house: House) -> None:
    """Shards have left, or are being opened, when a snapshot is due: it is taken later."""
    house.placement = placement = SettablePlacement(SHARDS)
    await house.restart()
    loaded = await states(house)
    names = [f"orders-{number}" for number in range(12)]
    for name in names:
        await produce(house, await house.partition(name), 0)
    partitions = [house.broker.partition(topic, 0) for topic in house.topics.topics()]
    left = partitions[0].shard
    opened = next(one.shard for one in partitions if one.shard != left)
    placement.give([opened])
    await house.broker.shards.settled()
    placement.take([opened])
    placement.give([left])
    loaded._snapshot()  # neither change is carried out yet
    await house.broker.shards.settled()
    placement.take([left])
    await house.broker.shards.settled()
    loaded._check()
    await settled(house)
    loaded.stop()
    await house.restart()
    (await states(house)).stop()
    for name in names:
        topic = house.topics.get(TopicName("default", name))
        assert again(house, house.broker.partition(topic, 0), 0) == 0, name


async def settled(house: House) -> None:
    await await_done(house.broker.after_pending)


async def test_scans_are_released_when_a_snapshot_is_durable(house: House) -> None:
    loaded = await states(house)
    partition = await house.partition("orders")
    await produce(house, partition, 0, 10)
    released = house.broker.storage.next_sequence
    assert len(list(house.broker.storage.scan(0))) == 2
    loaded._snapshot()
    assert len(list(house.broker.storage.scan(0))) == 2  # It is not durable yet.
    await produce(house, partition, 20)
    assert next(house.broker.storage.scan(0)).sequence == released
    partition = await restarted(house, "orders")
    assert [again(house, partition, sequence) for sequence in (0, 10, 20)] == [0, 10, 20]


async def test_scans_are_released_where_nobody_is_idempotent(house: House) -> None:
    loaded = await states(house)
    partition = await house.partition("orders")
    for _ in range(3):
        write = house.broker.prepare(partition, sample_batch(count=1))
        assert isinstance(write, Write)
        await append(house, write)
    loaded._snapshot()
    assert list(house.broker.storage.scan(0)) == []
    loaded.stop()
