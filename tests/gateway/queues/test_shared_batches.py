"""A batch that was stored once for many queues is cached once, and counted once."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from gateway import fan_out_write
from gateway.errors import StorageUnavailable
from gateway.queues.manager import Queue
from gateway.queues.message_cache import MessageCache
from gateway.records.codec import encode_headers
from gateway.records.record_run import RecordRun
from tests.gateway.queues.queue_node import World, is_fed, running, settle, take, values

VALUE = b"v" * 20_000
QUEUES = 50


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running(tmp_path) as found:
        yield found


async def fan_out(world: World, queues: Sequence[Queue], *values: bytes) -> None:
    """Append one run to all queues, and wait until they are fed."""
    coalescer = world.queues.coalescer
    group = coalescer.group([queue.lanes[0].partition for queue in queues])
    run = RecordRun(b"k", values, encode_headers([("h", b"1")]), world.clock.unix_ms())
    done: asyncio.Future[StorageUnavailable | None] = asyncio.Future()
    coalescer.add_many([(group, run)], done.set_result)
    assert await done is None
    await world.until(lambda: all(map(is_fed, queues)))


async def queues_of(world: World) -> list[Queue]:
    return [await world.queue(f"q{number}") for number in range(QUEUES)]


def cache_of(world: World) -> MessageCache:
    return world.queues._context.message_cache


async def test_a_fan_out_is_cached_and_counted_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = await queues_of(world)
    copied: list[object] = []
    monkeypatch.setattr(fan_out_write, "bytearray", copied.append, raising=False)
    await fan_out(world, queues, VALUE, VALUE)

    cache = cache_of(world)
    assert len(cache._batches) == QUEUES
    assert 2 * len(VALUE) < cache.kept_bytes < 3 * len(VALUE) + QUEUES * 400
    assert copied == []
    for queue in queues:
        got = await take(queue)
        assert values(got) == [VALUE, VALUE]
        assert [one.record.offset for one in got] == [0, 1]
        assert got[0].record.value is VALUE
    assert cache.kept_bytes < 3 * len(VALUE) + QUEUES * 1_200


async def test_what_is_shared_counts_until_the_last_is_dropped(world: World) -> None:
    queues = await queues_of(world)
    await world.send(queues[0], b"first")  # the offsets are not the same everywhere
    await fan_out(world, queues, VALUE)
    cache = cache_of(world)

    for queue in queues[1:]:
        await settle(queue, await take(queue))
    await world.queues.upkeep.hold_all()
    assert cache.kept_bytes > len(VALUE)
    assert values(await take(queues[0])) == [b"first", VALUE]
    cache.forget([queues[0].lanes[0].partition.partition_id])

    assert (cache.kept_bytes, len(cache._batches)) == (0, 0)


async def test_a_small_cache_keeps_one_large_batch_for_many_queues(world: World) -> None:
    queues = await queues_of(world)
    cache = cache_of(world)
    cache._bytes_max = 3 * len(VALUE) + QUEUES * 1_200

    for _ in range(2):
        await fan_out(world, queues, VALUE)

    assert len(cache._batches) == 2 * QUEUES
    for queue in queues:
        assert values(await take(queue)) == [VALUE, VALUE]
