"""Senders and receivers of queues, which wait as a test does."""

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.errors import StorageUnavailable
from gateway.kernel import Kernel
from gateway.model import TopicName
from gateway.queues.manager import Queue
from gateway.queues.model import Delivery, DeliveryId, Outcome
from gateway.records.codec import NO_HEADERS
from gateway.records.record_run import RecordRun

DEADLINE_S: Final = 60


def found(kernel: Kernel, name: str) -> Queue:
    queue = kernel.queues.find(TopicName("default", name))
    assert queue is not None
    return queue


async def kept(begin: Callable[[Callable[[StorageUnavailable | None], None]], object]) -> None:
    done: asyncio.Future[StorageUnavailable | None] = asyncio.get_running_loop().create_future()
    begin(done.set_result)
    async with asyncio.timeout(DEADLINE_S):
        assert await done is None


async def send(kernel: Kernel, queue: Queue, *values: bytes, key: bytes | None = None) -> None:
    run = RecordRun(key, values, NO_HEADERS, kernel.clock.unix_ms() - 60_000)
    place = queue.partition_for(key)
    await kept(lambda on_done: kernel.queues.coalescer.add(place, run, on_done))


async def take(queue: Queue, count: int) -> list[Delivery]:
    taken: asyncio.Future[list[Delivery]] = asyncio.get_running_loop().create_future()
    queue.receive(count, bytes_max=1 << 20, on_done=taken.set_result, wait_ms=10_000)
    async with asyncio.timeout(DEADLINE_S):
        return await taken


async def settle(queue: Queue, ids: list[DeliveryId], outcome: Outcome, reason: str) -> None:
    done: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def on_done(results: object, error: StorageUnavailable | None) -> None:
        done.set_result((results, error))

    queue.settle([(one, outcome) for one in ids], on_done, reason=reason)
    async with asyncio.timeout(DEADLINE_S):
        await done
