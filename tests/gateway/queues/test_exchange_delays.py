"""Messages of a delayed exchange are routed when they are due, by the bindings of then, once."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

from features.routing.model import Binding, Destination, Message, Value
from gateway.config.exchanges import ExchangeConfig
from gateway.config.queues import DelayConfig
from gateway.delays.sharded import ShardedDelays
from gateway.exchanges.manager import Exchanges
from gateway.exchanges.model import ExchangeName
from gateway.exchanges.publisher import Publication, Publisher
from gateway.model import TopicName
from gateway.queues.exchange_delays import TOPIC
from gateway.queues.starting import start_routing
from gateway.records.codec import decode_batch
from tests.gateway.kernel_in_memory import outcome
from tests.gateway.queues.queue_node import World, running
from tests.support.waiting import until

LATER = ExchangeName("default", "later")


class Delayed:
    """A world with delays and exchanges, and the exchange ``later`` of type topic."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.stack = AsyncExitStack()

    @classmethod
    async def open(cls, world: World) -> Self:
        one = cls(world)
        one.delays = await ShardedDelays.open(
            world.broker, world.topics, world.clock, DelayConfig()
        )
        one.stack.callback(one.delays.close)
        one.exchanges = await Exchanges.open(
            world.metadata, world.topics, world.clock, ExchangeConfig()
        )
        one.publisher = Publisher(
            one.exchanges,
            world.topics,
            world.broker,
            world.queues.coalescer,
            world.queues.transfers,
            world.clock,
        )
        await start_routing(world.queues, world.topics, world.broker, one.publisher, one.stack)
        one.delays.start()
        await one.exchanges.declare(LATER, "x-delayed-message", {"x-delayed-type": "topic"})
        return one

    delays: ShardedDelays
    exchanges: Exchanges
    publisher: Publisher

    async def bind(self, *topics: str, key: str = "#") -> None:
        for topic in topics:
            await self.exchanges.bind("default", Binding("later", Destination(topic), key))

    async def publish(self, value: bytes, x_delay: Value, key: str = "k") -> list[str]:
        message = Message([key], {"x-delay": x_delay})
        publication = Publication(message, [value], [("x-delay", str(x_delay).encode())])
        topics: list[str] = []

        def start(on_done: object) -> None:
            found = self.publisher.publish(LATER, publication, on_done)  # type: ignore[arg-type]
            topics.extend(topic.name.name for topic in found)

        assert await outcome(start) is None
        return topics

    def values(self, topic: str) -> list[bytes | None]:
        found = self.world.find(topic).topic
        partition = self.world.broker.partition(found, 0)
        batches = self.world.broker.read(partition, 0, bytes_max=1 << 20) or ()
        return [record.value for batch in batches for record in decode_batch(batch)]

    async def pass_time(self, ms: int) -> None:
        self.world.clock.advance(ms)
        self.delays.run()
        for _ in range(20):
            await self.world.turn()


async def test_a_message_is_routed_when_it_is_due_by_the_bindings_of_then(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        for name in ("early", "late"):
            await world.queue(name)
        one = await Delayed.open(world)
        await one.bind("early")

        assert await one.publish(b"1", 60_000) == []
        await one.exchanges.unbind("default", Binding("later", Destination("early"), "#"))
        await one.bind("late")
        await one.pass_time(59_000)
        assert (one.values("early"), one.values("late")) == ([], [])
        await one.pass_time(1_000)

        await world.until(lambda: one.values("late") == [b"1"])
        assert one.values("early") == []
        (batch,) = (
            world.broker.read(
                world.broker.partition(world.find("late").topic, 0), 0, bytes_max=1 << 20
            )
            or ()
        )
        (record,) = decode_batch(batch)
        said = dict(record.headers)
        assert said.pop("message-id")
        assert (record.key, said) == (b"k", {"x-delay": b"-60000"})
        await one.stack.aclose()


async def test_without_a_delay_it_is_routed_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        await world.queue("now")
        one = await Delayed.open(world)
        await one.bind("now")
        assert await one.publish(b"1", 0) == await one.publish(b"2", -5) == ["now"]
        assert one.values("now") == [b"1", b"2"]
        await one.stack.aclose()


async def test_what_nothing_is_bound_for_is_dropped_when_due(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        one = await Delayed.open(world)
        await one.publish(b"1", 1_000)
        await one.exchanges.delete(LATER)
        await one.pass_time(2_000)
        await world.until(lambda: world.queues._context.counters.dropped == 1)
        assert one.delays.total == 0
        await one.stack.aclose()


async def test_a_message_without_a_key_is_routed_to_a_compacted_topic(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        await world.topic("table", cleanup_policy="compact")
        one = await Delayed.open(world)
        await one.bind("table")
        await one.publish(b"1", 1_000, key="")
        await one.pass_time(2_000)
        topic = world.topics.get(TopicName("default", "table"))
        partition = world.broker.partition(topic, 0)
        await world.until(lambda: partition.high_watermark == 1)
        (batch,) = world.broker.read(partition, 0, bytes_max=1 << 20) or ()
        (record,) = decode_batch(batch)
        assert record.key
        assert record.value == b"1"
        await one.stack.aclose()


async def test_a_queue_that_is_gone_is_not_asked_all_the_time(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        one = await Delayed.open(world)
        await world.until(lambda: world.queues.find(TOPIC) is not None)
        await world.turn()  # in which it is asked for messages
        queue = world.queues.find(TOPIC)
        assert queue is not None
        asked = 0
        receive = queue.receive

        def count(*args: Any, **how: Any) -> object:
            nonlocal asked
            asked += 1
            return receive(*args, **how)

        queue.receive = count  # type: ignore[method-assign, assignment]
        await world.queues.delete(queue)
        for _ in range(20):
            await world.turn()
        assert asked <= 1
        await one.stack.aclose()


async def test_it_waits_over_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        for name in ("a", "b"):
            await world.queue(name)
        one = await Delayed.open(world)
        await one.bind("a", "b")
        for number in range(20):
            await one.publish(b"%d" % number, 1_000 + number * 100)
        await one.stack.aclose()
        await world.restart()
        one = await Delayed.open(world)

        await one.pass_time(2_000)
        await one.pass_time(2_000)

        everything = [b"%d" % number for number in range(20)]
        await world.until(lambda: one.values("a") == one.values("b") == everything)
        await one.stack.aclose()


async def test_a_start_does_not_wait_until_the_queue_is_made(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        await world.queue("a")
        is_stored = asyncio.Event()
        world.queues._changes.start(is_stored.wait)  # the change before it takes long
        try:
            one = await asyncio.wait_for(Delayed.open(world), 10)
            await one.bind("a")
            await one.publish(b"1", 1_000)
            await one.pass_time(2_000)
            assert world.queues.find(TOPIC) is None
        finally:
            is_stored.set()

        await until(lambda: one.values("a") == [b"1"])  # SQL has a thread of its own
        await one.stack.aclose()
