"""Responses are freed by reference count: no cycle keeps their bytes until a collection."""

import gc
from pathlib import Path

from tests.adapters.kafka.running_adapter import fetch, produce, running
from tests.support.batches import sample_batch


async def test_requests_leave_no_cycles(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        for number in range(2):
            client.send(produce(number, sample_batch(value=bytes(100_000))))
            await client.answer()
        gc.collect()
        gc.disable()
        try:
            for number in range(10):
                client.send(produce(number, sample_batch()), fetch(number, 0), fetch(number, 2))
                for _ in range(3):
                    await client.answer()
            assert gc.collect() == 0
        finally:
            gc.enable()
