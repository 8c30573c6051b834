"""Number of shards: a property of the data directory, which the config may only confirm."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.config.base import InvalidSettings
from gateway.shard_count import SHARD_COUNT, shard_count_of
from tests.gateway.kernel_in_memory import House, running


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with running(tmp_path) as one:
        yield one


async def count(house: House, wanted: int | None = None) -> int:
    return await shard_count_of(house.metadata, house.topics, wanted)


async def test_a_new_directory_has_one_shard(house: House) -> None:
    assert await count(house) == 1


async def test_a_new_directory_gets_the_number_of_the_config_and_keeps_it(house: House) -> None:
    assert await count(house, 64) == 64
    assert await count(house) == 64


async def test_a_directory_of_before_has_one_shard(house: House) -> None:
    await house.groups()  # makes an internal topic with one partition

    with pytest.raises(InvalidSettings, match=r"64, but the data directory has 1; .*reshard"):
        await count(house, 64)
    assert await count(house) == 1


async def test_a_recovered_directory_has_the_shards_that_its_topics_show(house: House) -> None:
    house.shard_count = 37  # partitions that the log has seen, of 64
    await house.restart()
    await house.groups()

    assert await count(house) == 64


async def test_the_config_has_to_agree_with_the_directory(house: House) -> None:
    await house.metadata.set_value(SHARD_COUNT, "64")

    assert await count(house, 64) == 64
    with pytest.raises(InvalidSettings, match=r"node\.shards: 1, but"):
        await count(house, 1)
