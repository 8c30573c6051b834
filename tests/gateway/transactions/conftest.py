"""A rig whose shards a test gives away."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.testing.placement import SettablePlacement
from tests.gateway.kernel_in_memory import running
from tests.gateway.transactions.rig import SHARDS, TransactionRig


@pytest.fixture
async def placement() -> SettablePlacement:
    """The placement of the rig's ``SHARDS`` shards, which has all of them at first."""
    return SettablePlacement(SHARDS)


@pytest.fixture
async def rig(tmp_path: Path, placement: SettablePlacement) -> AsyncIterator[TransactionRig]:
    """An open rig."""
    async with running(tmp_path, placement=placement) as house:
        one = TransactionRig(house)
        await one.open()
        yield one
        one.close()
