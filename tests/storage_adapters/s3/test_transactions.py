"""Readers among random transactions and restarts in S3, beside a plain model."""

from pathlib import Path

import pytest

from pipeline.log.options import parse_options
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

        url = f"sqlite:///{tmp_path}/memory/metadata.sqlite"
        config = place.config()
        options = {
            "catalog": url,
            "bucket": config.bucket,
            "prefix": config.prefix,
            "endpointUrl": config.endpoint_url,
            "topics": "t",
        }
        walk = Walk(house, seed, make, parse_options(options))
        await house.close()
        house.metadata_url = url
        house.storage = make()  # type: ignore[assignment]
        await house.open()
        await walk.start()
        await walk.run(60)
