"""Readers among random transactions and restarts in S3, beside a plain model."""

from pathlib import Path

import pytest

from storage_adapters.s3.adapter import S3Storage
from tests.gateway.kernel_in_memory import running
from tests.gateway.transaction_walk import Walk
from tests.storage_adapters.s3.s3_nodes import NodeBucket, place

__all__ = ["place"]


@pytest.mark.parametrize("seed", [20, 21])
async def test_readers_see_what_is_committed(
    tmp_path: Path, place: NodeBucket, seed: int
) -> None:
    async with running(tmp_path / "memory") as house:

        def make() -> S3Storage:
            return S3Storage(place.config(), data_dir=tmp_path, clock=house.clock)

        walk = Walk(house, seed, make)
        await house.close()
        house.metadata_url = place.url
        house.storage = make()  # type: ignore[assignment]
        await house.open()
        await walk.start()
        await walk.run(60)
