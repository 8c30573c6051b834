"""Committed positions, groups and producers' states are closed and loaded by shard."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from features.dedup import ProducerSequences
from gateway.config.settings import BrokerConfig
from gateway.errors import CoordinatorLoading, NotCoordinator, NotLeader
from gateway.groups.cursors import Commit, CursorManager
from gateway.groups.model import GroupName
from gateway.producers import ProducerStates, open_producers
from gateway.slots import shard_of_group
from gateway.streams import Item
from gateway.testing.placement import SettablePlacement
from gateway.topics.manager import Topic
from gateway.writer import Duplicate, Write
from tests.gateway.kernel_in_memory import House, outcome, running
from tests.gateway.test_broker import append
from tests.support.batches import sample_batch

SHARDS = 64
GROUPS = [GroupName("default", f"group-{number}") for number in range(100)]
PARTITIONS = 16


@pytest.fixture
async def placement() -> SettablePlacement:
    return SettablePlacement(SHARDS)


@pytest.fixture
async def house(tmp_path: Path, placement: SettablePlacement) -> AsyncIterator[House]:
    async with running(tmp_path, placement=placement) as one:
        yield one


def shard_of(name: GroupName) -> int:
    return shard_of_group(*name, SHARDS)


async def committed(house: House) -> tuple[CursorManager, Topic]:
    """Commit offset n of group n."""
    _, cursors = await house.groups()
    topic = await house.topic("orders")
    for number, name in enumerate(GROUPS):
        commit = Commit(topic.uuid, 0, number)
        assert await outcome(partial(cursors.commit, name, [commit])) is None
    return cursors, topic


def offsets(cursors: CursorManager, topic: Topic) -> dict[GroupName, int]:
    found = {name: cursors.fetch(name, topic.uuid, 0) for name in GROUPS}
    return {name: cursor.offset for name, cursor in found.items() if cursor is not None}


async def test_positions_leave_and_come_back_with_their_shard(
    house: House, placement: SettablePlacement
) -> None:
    cursors, topic = await committed(house)
    before = offsets(cursors, topic)
    away = range(SHARDS // 2, SHARDS)
    placement.give(away)
    await house.broker.shards.settled()
    assert {*offsets(cursors, topic)} == {one for one in GROUPS if shard_of(one) not in away}
    assert {*cursors.groups()} == {*offsets(cursors, topic)}
    for shard in away:
        placement.take([shard])
        await house.broker.shards.settled()
        found = {one for one in GROUPS if shard_of(one) <= shard}
        assert {*offsets(cursors, topic)} == {*cursors.groups()} == found
    assert offsets(cursors, topic) == before


async def test_a_group_is_loading_from_the_turn_in_which_its_shard_comes(
    house: House, placement: SettablePlacement
) -> None:
    groups, _ = await house.groups()
    name = GROUPS[0]
    placement.give([shard_of(name)])
    with pytest.raises(NotCoordinator):
        groups.has(name)
    placement.take([shard_of(name)])
    with pytest.raises(CoordinatorLoading):
        groups.has(name)
    assert not groups.owners.owns(name)
    await house.broker.shards.settled()
    assert not groups.has(name)


async def test_a_start_reads_no_positions_of_another_node(house: House) -> None:
    cursors, topic = await committed(house)
    before = offsets(cursors, topic)
    away = [shard_of(GROUPS[0]), shard_of(GROUPS[1]), 0]
    await house.close()
    house.placement = SettablePlacement(SHARDS)
    house.placement.give(away)
    await house.open()
    _, cursors = await house.groups()
    left = {one: at for one, at in before.items() if shard_of(one) not in away}
    assert offsets(cursors, topic) == left
    assert cursors.open_shards == set(range(SHARDS)).difference(away)
    house.placement.take(away)
    await house.broker.shards.settled()
    assert offsets(cursors, topic) == before


async def test_a_position_of_a_shard_that_is_away_is_refused(
    house: House, placement: SettablePlacement
) -> None:
    cursors, topic = await committed(house)
    placement.give([shard_of(GROUPS[0])])
    answers: list[Item] = []
    for _ in range(2):  # before its state is closed, and afterwards
        with pytest.raises(NotLeader):
            cursors.commit(
                GROUPS[0], [Commit(topic.uuid, 0, 9)], lambda _: answers.append((b"", None))
            )
        await house.broker.shards.settled()
    assert answers == []


# --- producers


def batch(sequence: int) -> bytearray:
    return sample_batch(count=10, producer_id=77, producer_epoch=1, base_sequence=sequence)


async def producers(house: House) -> ProducerStates:
    stream = await open_producers(house.broker, house.topics, house.clock)
    states = ProducerStates(stream, house.broker, house.topics, house.clock, BrokerConfig())
    await states.load()
    return states


async def produce(house: House, topic: Topic, number: int, sequence: int) -> int:
    """Send a batch; return its offset, also when it was sent before."""
    prepared = house.broker.prepare(house.broker.partition(topic, number), batch(sequence))
    if isinstance(prepared, Write):
        await append(house, prepared)
    return prepared.base_offset


async def test_sequences_leave_and_come_back_with_their_shard(
    house: House, placement: SettablePlacement
) -> None:
    states = await producers(house)
    topic = await house.topic("orders", PARTITIONS)
    for number in range(PARTITIONS):
        assert [await produce(house, topic, number, at) for at in (0, 10)] == [0, 10]
    # What is in no snapshot leaves with the shard: nothing is read from the log.
    house.storage.release_scans_before(house.storage.next_sequence)

    placement.give(range(SHARDS))
    placement.take(range(SHARDS))
    with pytest.raises(NotLeader):
        house.broker.partition(topic, 0)  # another sequence could come in between
    assert not house.broker.owns(topic, 0)
    await house.broker.shards.settled()

    for number in range(PARTITIONS):
        partition = house.broker.partition(topic, number)
        assert isinstance(partition.producers, ProducerSequences)
        again = house.broker.prepare(partition, batch(10))
        assert isinstance(again, Duplicate)
        assert again.base_offset == 10
        assert await produce(house, topic, number, 20) == 20
    states.stop()


async def test_a_start_without_shard_0_knows_all_sequences(house: House) -> None:
    states = await producers(house)
    topic = await house.topic("orders", PARTITIONS)
    for number in range(PARTITIONS):
        await produce(house, topic, number, 0)
    states.close()
    for number in range(PARTITIONS):
        await produce(house, topic, number, 10)
    states.stop()
    for _ in range(
        2
    ):  # with a snapshot of a node that has all shards, then of one that has not
        await house.close()
        house.placement = SettablePlacement(SHARDS)
        house.placement.give([0])
        await house.open()
        states = await producers(house)
        topic = house.topics.get(topic.name)
        for number in range(PARTITIONS):
            if house.broker.owns(topic, number):
                assert [await produce(house, topic, number, at) for at in (0, 10)] == [0, 10]
        states.close()
