"""An ended connection is freed by reference count, without the garbage collector."""

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.kafka.connection import KafkaConnection
from adapters.kafka.session import Session
from gateway.length_framer import LengthFramer
from tests.adapters.kafka.running_adapter import DEADLINE_S, fetch, produce, running
from tests.support.batches import sample_batch

KINDS = (KafkaConnection, LengthFramer, Session)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Disable the garbage collector."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def left() -> list[str]:
    return [type(one).__name__ for one in gc.get_objects() if isinstance(one, KINDS)]


@pytest.mark.usefixtures("no_collector")
async def test_connections_leave_nothing_behind(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        for number in range(3):
            client = await live.client()  # not kept beyond its turn
            client.send(produce(number, sample_batch()), fetch(number, 0))
            await client.answer()
            await client.answer()
            client.writer.close()

        async with asyncio.timeout(DEADLINE_S):
            while left():  # the loop lets go of a connection some turns after its end
                await asyncio.get_running_loop().run_in_executor(None, int)
