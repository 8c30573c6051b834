"""The ``rig`` fixture of the handler tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.adapters.kafka.handlers.handler_fixture import Rig, running


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running(tmp_path) as one:
        yield one
