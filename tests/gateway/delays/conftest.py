"""A node's delays over a real log, with a clock that stands still."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateway.delays.delay_node import World, running


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running(tmp_path) as one:
        yield one
