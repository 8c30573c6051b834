"""Transactions whose groups have moved to another node meanwhile."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.errors import NotLeader
from gateway.groups.model import GroupName
from gateway.slots import shard_of_group, shard_of_transactional_id
from gateway.testing.placement import SettablePlacement
from tests.gateway.kernel_in_memory import running
from tests.gateway.transactions.rig import NAME, TransactionRig

SHARDS = 4
AWAY = next(
    name
    for name in (GroupName("default", f"group-{number}") for number in range(100))
    if shard_of_group(*name, SHARDS) not in {0, shard_of_transactional_id(NAME.name, SHARDS)}
)
"""Group of another shard than the transactional id, and than the topic."""


@pytest.fixture
async def placement() -> SettablePlacement:
    return SettablePlacement(SHARDS)


@pytest.fixture
async def rig(tmp_path: Path, placement: SettablePlacement) -> AsyncIterator[TransactionRig]:
    async with running(tmp_path, placement=placement) as house:
        one = TransactionRig(house)
        await one.open()
        yield one
        one.close()


async def test_commit_waits_for_the_offsets_of_a_group_that_moved(
    rig: TransactionRig, placement: SettablePlacement
) -> None:
    partition = await rig.house.partition("t")
    value = await rig.init()
    await rig.commit_offset(value, partition, 7, AWAY)
    shard = shard_of_group(*AWAY, SHARDS)
    placement.give([shard])
    await rig.house.broker.shards.settled()

    with pytest.raises(NotLeader):
        await rig.end(value)

    placement.take([shard])
    with pytest.raises(NotLeader):  # it is being loaded
        await rig.end(value)
    await rig.house.broker.shards.settled()
    await rig.end(value)
    assert (rig.offset(partition, AWAY), rig.is_unstable(partition, AWAY)) == (7, False)


async def test_abort_does_not_wait_for_a_group_that_moved(
    rig: TransactionRig, placement: SettablePlacement
) -> None:
    partition = await rig.house.partition("t")
    value = await rig.init()
    await rig.commit_offset(value, partition, 7, AWAY)
    placement.give([shard_of_group(*AWAY, SHARDS)])
    await rig.house.broker.shards.settled()

    await rig.end(value, is_commit=False)

    assert not rig.coordinator.find(NAME).groups
