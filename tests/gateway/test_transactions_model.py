"""Readers among random transactions, truncations and restarts, beside a plain model."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from features import open_transactions
from gateway.clock import SystemClock
from gateway.storage import StorageAdapter
from pipeline.log.options import parse_options
from storage_adapters.segment_log.adapter import SegmentLog
from storage_adapters.segment_log.config import SegmentLogConfig
from tests.gateway.kernel_in_memory import running
from tests.gateway.transaction_walk import Walk

STEPS = 120


@pytest.mark.parametrize("seed", range(12))
async def test_readers_see_what_is_committed_in_memory(tmp_path: Path, seed: int) -> None:
    async with running(tmp_path) as house:
        walk = Walk(house, seed)
        await walk.start()
        await walk.run(STEPS)


@pytest.mark.parametrize("seed", range(6))
async def test_readers_see_what_is_committed_in_a_segment_log(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_transactions, "CHUNK_RANGES", 4)
    async with walking(tmp_path, seed) as walk:
        await walk.run(STEPS)


async def test_a_reader_outside_knows_the_first_transaction(tmp_path: Path) -> None:
    async with walking(tmp_path, 0) as walk:
        await walk.plain()
        await walk.transactional()
        await walk.check_outside()
        await walk.plain()
        await walk.check_outside()


@asynccontextmanager
async def walking(folder: Path, seed: int) -> AsyncIterator[Walk]:
    """Yield a walk on a segment log, which a job reads too."""
    async with running(folder / "memory") as house:
        options = {"path": str(folder), "topics": "t", "includeUnsynced": "true"}
        walk = Walk(house, seed, new_log(folder), parse_options(options))
        await house.close()
        house.storage = new_log(folder)()  # type: ignore[assignment]
        await house.open()
        await walk.start()
        yield walk


def new_log(folder: Path) -> Callable[[], StorageAdapter]:
    def make() -> StorageAdapter:
        options = {"segment_bytes": 1 << 20, "reserve_bytes": 0, "settle_after_bytes": 0}
        config = SegmentLogConfig.model_validate(options)
        return SegmentLog(config, data_dir=folder, clock=SystemClock())

    return make
