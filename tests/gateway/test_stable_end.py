"""Readers see what is below a partition's stable end, and the rest when it moves on."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.model import parse_batch_header
from gateway.partition import Partition
from gateway.record_search import Query, RecordSearch, SearchPosition
from tests.gateway.kernel_in_memory import House, running
from tests.gateway.test_tail import (
    Watcher,
    start_append,
)
from tests.support.batches import NOW_UNIX_MS
from tests.support.waiting import turns


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with running(tmp_path) as house:
        yield house


async def held_back(house: House) -> Partition:
    """Return a partition with offsets 0 to 3, of which all but the first are not stable."""
    partition = await house.partition("t")
    for _ in range(4):
        start_append(house, partition)
    await turns()
    assert (partition.stable_end, partition.high_watermark) == (4, 4)
    partition.stable_end = 1
    return partition


async def test_the_stable_end_is_the_high_watermark_without_transactions(house: House) -> None:
    partition = await house.partition("t")
    assert partition.stable_end == 0

    start_append(house, partition, count=3)
    assert (partition.stable_end, partition.log_end_offset) == (0, 3)
    await turns()

    assert partition.stable_end == partition.high_watermark == 3


async def test_a_read_ends_at_the_stable_end(house: House) -> None:
    partition = await held_back(house)
    reader = house.broker.reader

    for batches in (
        reader.read(partition, 0, bytes_max=1 << 20),
        await reader.read_disk(partition, 0, bytes_max=1 << 20),
    ):
        assert batches is not None
        assert [parse_batch_header(batch).base_offset for batch in batches] == [0]
    assert reader.read(partition, 1, bytes_max=1 << 20) == ()
    assert await reader.read_disk(partition, 3, bytes_max=1 << 20) == ()


async def test_a_time_is_not_found_above_the_stable_end(house: House) -> None:
    partition = await held_back(house)
    partition.stable_end = 0

    assert await house.broker.offset_for_time(partition, NOW_UNIX_MS) is None
    partition.stable_end = 4
    assert await house.broker.offset_for_time(partition, NOW_UNIX_MS) is not None


async def test_a_search_ends_at_the_stable_end(house: House) -> None:
    partition = await held_back(house)

    step = await RecordSearch(house.broker).step(
        partition.topic, Query(b"key"), start=SearchPosition(0)
    )

    assert [match.record.offset for match in step.matches] == [0]
    assert step.next is None


async def test_a_tail_waits_at_the_stable_end_and_goes_on_behind_it(house: House) -> None:
    partition = await held_back(house)
    watcher = Watcher()
    house.broker.tail(partition, 0, watcher)
    await turns()
    assert watcher.offsets == [0]

    start_append(house, partition)  # until there are transactions, it moves the stable end
    await turns(12)

    assert partition.stable_end == 5
    assert watcher.offsets == [0, 1, 2, 3, 4]
