"""A target without room keeps a message from nobody else."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from features.routing.model import Binding, Destination, Message
from gateway.config.exchanges import ExchangeConfig
from gateway.errors import Overloaded, PolicyViolation, PublishRefused, StorageUnavailable
from gateway.exchanges.manager import Exchanges
from gateway.exchanges.model import ExchangeName
from gateway.exchanges.publisher import Publication, Publisher
from gateway.model import TopicName
from gateway.queues.manager import Queue
from gateway.queues.model import Overflow, QueueSettings
from gateway.queues.transient import CONFIGS, TransientQueues
from tests.gateway.queues.queue_node import World, running, settle, take

MIB = 1024 * 1024
FANOUT = ExchangeName("default", "amq.fanout")


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setitem(CONFIGS, "memory.bytes.max", str(MIB))
    async with running(tmp_path) as found:
        yield found


async def open_publisher(world: World, *queues: str) -> Publisher:
    """A publisher with those queues bound to the fanout exchange."""
    exchanges = await Exchanges.open(
        world.metadata, world.topics, world.clock, ExchangeConfig()
    )
    for queue in queues:
        await exchanges.bind("default", Binding(FANOUT.name, Destination(queue)))
    queues_of = world.queues
    return Publisher(
        exchanges,
        world.topics,
        world.broker,
        queues_of.coalescer,
        queues_of.transfers,
        world.clock,
    )


async def publish(
    publisher: Publisher, value: bytes, exchange: ExchangeName = FANOUT, key: str = ""
) -> StorageUnavailable | None:
    answer: asyncio.Future[StorageUnavailable | None] = asyncio.Future()
    publisher.publish(exchange, Publication(Message([key]), (value,), []), answer.set_result)
    return await answer


async def held_queue(world: World, name: str = "stuck", **settings: Any) -> Queue:
    """A transient queue whose bytes are all held by messages that nobody acknowledges."""
    maker = TransientQueues(world.queues, world.topics, world.broker, world.clock)
    queue = maker.create(
        TopicName("default", name),
        QueueSettings(**settings),
        attributes={},
    )

    async def fill() -> None:
        for _ in range(20):
            await world.send(queue, bytes(128 * 1024))
            assert await take(queue, lease_ms=3_600_000)

    with pytest.raises(Overloaded):
        await fill()
    assert queue.counts() == (0, 8, 0)
    return queue


async def test_one_that_drops_its_oldest_drops_what_others_get(world: World) -> None:
    stuck = await held_queue(world)
    work = await world.queue("work")
    publisher = await open_publisher(world, "stuck", "work")

    assert await publish(publisher, b"new") is None

    await world.until(lambda: work.counts().ready == 1)
    assert stuck.counts() == (0, 8, 0)
    assert stuck.counters.dropped == 1


async def test_one_with_dead_letters_moves_it_there(world: World) -> None:
    dead = await world.queue("dead")
    stuck = await held_queue(world, dead_letter_topic="dead")
    work = await world.queue("work")
    publisher = await open_publisher(world, "stuck", "work")

    assert await publish(publisher, b"new") is None

    await world.until(lambda: work.counts().ready == dead.counts().ready == 1)
    [letter] = await take(dead)
    assert letter.record.value == b"new"
    assert dict(letter.record.headers)["dlq.reason"] == b"maxlen"
    assert (stuck.counters.dropped, stuck.counters.dead_lettered) == (0, 1)


async def test_one_that_refuses_lets_the_others_have_it(world: World) -> None:
    stuck = await held_queue(
        world, overflow=Overflow.REJECT_PUBLISH, length_bytes_max=100 * MIB
    )
    work = await world.queue("work")
    publisher = await open_publisher(world, "stuck", "work")

    assert isinstance(await publish(publisher, b"new"), PublishRefused)

    await world.until(lambda: work.counts().ready == 1)
    assert stuck.counts() == (0, 8, 0)
    assert stuck.counters.refused == 1


async def test_there_is_room_again_when_messages_are_settled(world: World) -> None:
    stuck = await held_queue(world)
    work = await world.queue("work")
    publisher = await open_publisher(world, "stuck", "work")
    world.advance(3_600_001)
    await settle(stuck, await take(stuck, 8, bytes_max=1 << 30))

    assert await publish(publisher, b"new") is None

    await world.until(lambda: work.counts().ready == stuck.counts().ready == 1)
    assert stuck.counters.dropped == 0


async def test_a_publish_to_it_alone_is_refused(world: World) -> None:
    await held_queue(world)
    publisher = await open_publisher(world)

    with pytest.raises(Overloaded):
        await publish(publisher, b"new", ExchangeName("default", ""), "stuck")


async def test_a_durable_topic_that_its_holders_fill_refuses_for_itself_only(
    world: World,
) -> None:
    topic = await world.topic("full", hold_bytes_max=str(64 * 1024))
    full = await world.queues.create(topic, QueueSettings(), owns_topic=True)
    work = await world.queue("work")
    publisher = await open_publisher(world, "full", "work")

    async def fill() -> None:
        for _ in range(20):
            await world.send(full, bytes(32 * 1024))

    with pytest.raises(PolicyViolation):
        await fill()
    count = full.counts().ready

    assert isinstance(await publish(publisher, b"new"), PublishRefused)

    await world.until(lambda: work.counts().ready == 1)
    assert full.counts().ready == count > 0
