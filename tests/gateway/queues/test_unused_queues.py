"""Queues that end when nobody has used them for a while."""

import gc
import weakref
from pathlib import Path

import pytest

from gateway import deadlines
from gateway.model import TopicName
from tests.gateway.queues.queue_node import World, running, take
from tests.gateway.queues.test_consumers import Sink
from tests.gateway.queues.test_message_ttl import settled


def is_there(world: World) -> bool:
    return world.queues.find(TopicName("default", "work")) is not None


async def test_an_unused_queue_ends_in_its_millisecond_with_its_topic(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(expires_ms=1_000)
        await world.send(queue, b"m")
        world.advance(999)
        await settled(world)
        assert is_there(world)
        world.advance(1)
        await world.until(lambda: not is_there(world))
        assert world.topics.find(TopicName("default", "work")) is None
        await world.restart()
        assert not is_there(world)


async def test_a_receive_and_a_declaration_begin_the_span_anew(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(expires_ms=1_000)
        world.advance(900)
        assert await take(queue) == []
        world.advance(900)
        queue.usage.touch()
        world.advance(999)
        await settled(world)
        assert is_there(world)
        world.advance(1)
        await world.until(lambda: not is_there(world))


async def test_nothing_is_kept_of_a_deleted_queue_until_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "_STALE_MIN", 0)
    async with running(tmp_path) as world:
        for number in range(5):
            queue = await world.queue(f"q{number}", expires_ms=86_400_000)
            await world.queues.delete(queue)
        left = weakref.ref(queue)
        del queue
        await settled(world)
        gc.collect()
        assert left() is None


async def test_a_queue_with_a_consumer_stays_and_the_span_begins_when_it_leaves(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(expires_ms=1_000)
        sink = Sink(queue, world, credit=1)
        for _ in range(5):
            world.advance(900)
        sink.consumer.cancel()
        world.advance(999)
        await settled(world)
        assert is_there(world)
        world.advance(1)
        await world.until(lambda: not is_there(world))


async def test_the_span_begins_anew_with_a_start_of_the_node(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        await world.queue(expires_ms=1_000)
        world.advance(900)
        await world.close()
        world.clock.advance(5_000)
        await world.open()
        world.advance(999)
        await settled(world)
        assert is_there(world)
        world.advance(1)
        await world.until(lambda: not is_there(world))


async def test_the_setting_may_come_and_go(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        world.advance(10_000)
        changed = queue.settings.model_copy(update={"expires_ms": 1_000})
        await world.queues.alter(queue, settings=changed)
        world.advance(999)
        await world.queues.alter(
            queue, settings=queue.settings.model_copy(update={"expires_ms": 0})
        )
        world.advance(10_000)
        await settled(world)
        assert is_there(world)
