"""One empty endpoint per test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.adapters.sqs.handlers.serving import Live, running


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    async with running(tmp_path) as found:
        yield found
