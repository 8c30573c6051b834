"""Dead letters through an exchange: to all bound queues at once, and cycles end as RabbitMQ's."""

from pathlib import Path
from typing import Any

import pytest

from features.dead_letter_history import Death, history_of
from features.routing.model import Binding, Destination
from gateway.config.exchanges import ExchangeConfig
from gateway.errors import StorageUnavailable
from gateway.exchanges.manager import Exchanges
from gateway.exchanges.model import ExchangeName
from gateway.exchanges.publisher import Publisher
from gateway.queues import move_retries
from gateway.queues.manager import Queue
from gateway.queues.model import Outcome
from tests.gateway.queues.queue_node import (
    World,
    headers_of,
    is_fed,
    running,
    settle,
    take,
    try_settle,
    values,
)

DLX = "dlx"


async def open_exchanges(world: World) -> Exchanges:
    """Open exchanges, with dead letters routed by them, and a direct exchange ``dlx``."""
    exchanges = await Exchanges.open(
        world.metadata, world.topics, world.clock, ExchangeConfig(targets_max=100)
    )
    world.queues.dead_letters.routes = Publisher(
        exchanges,
        world.topics,
        world.broker,
        world.queues.coalescer,
        world.queues.transfers,
        world.clock,
    )
    if exchanges.find(ExchangeName("default", DLX)) is None:
        await exchanges.declare(ExchangeName("default", DLX), "direct")
    return exchanges


async def bind(exchanges: Exchanges, key: str, *queues: str) -> None:
    for queue in queues:
        await exchanges.bind("default", Binding(DLX, Destination(queue), key))


async def reject(queue: Queue, reason: str = "rejected", **how: Any) -> None:
    await settle(queue, await take(queue, **how), Outcome.REJECT, reason=reason)


async def test_a_dead_letter_goes_to_every_bound_queue_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        exchanges = await open_exchanges(world)
        queue = await world.queue(dead_letter_exchange=DLX)
        first, second = await world.queue("first"), await world.queue("second", 4)
        await world.queue("third")
        await bind(exchanges, "k", "first", "second")
        await bind(exchanges, "other", "third")
        await world.send(queue, b"bad", key=b"k", headers=[("a", b"1")])
        world.advance(60_000)

        await reject(queue)

        await world.until(lambda: first.counts().ready == second.counts().ready == 1)
        live = world.storage._appender.active.live
        assert live is not None
        size_bytes = world.broker.size_bytes(first.lanes[0].partition)
        assert live.repeated_bytes == size_bytes > 0, "stored once"
        (letter,) = await take(first)
        assert values(await take(second)) == [b"bad"]
    record = letter.record
    assert (record.key, record.value, record.headers[0]) == (b"k", b"bad", ("a", b"1"))
    now = world.clock.unix_ms()
    assert record.timestamp_unix_ms == now
    said = headers_of(record)
    assert (said["dlq.reason"], said["amqp.exchange"]) == (b"rejected", b"dlx")
    assert history_of(record.headers) == [
        Death("work", "rejected", 1, now, now, "", ("k",), -1)
    ]


async def test_the_queues_routing_key_replaces_the_messages(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        await open_exchanges(world)
        queue = await world.queue(
            dead_letter_exchange="amq.default", dead_letter_routing_key="dead"
        )
        dead = await world.queue("dead")
        await world.send(queue, b"bad", key=b"k")
        await reject(queue)
        await world.until(lambda: dead.counts().ready == 1)
        (letter,) = await take(dead)
    assert letter.record.key == b"dead"
    assert "amqp.exchange" not in headers_of(letter.record)
    (death,) = history_of(letter.record.headers)
    assert death.routing_keys == ("k",)


async def test_a_message_published_with_an_empty_routing_key_keeps_it(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        exchanges = await open_exchanges(world)
        queue = await world.queue(dead_letter_exchange=DLX)
        dead, other = await world.queue("dead"), await world.queue("other")
        await bind(exchanges, "", "dead")
        await bind(exchanges, "work", "other")
        await world.send(queue, b"by an exchange", headers=[("amqp.exchange", b"logs")])
        await reject(queue)
        await world.send(queue, b"to the queue")
        await reject(queue)
        await world.until(lambda: dead.counts().ready == other.counts().ready == 1)
        (letter,), (second,) = await take(dead), await take(other)
    assert (letter.record.value, second.record.value) == (b"by an exchange", b"to the queue")
    keys = [history_of(one.record.headers)[0].routing_keys for one in (letter, second)]
    assert keys == [("",), ("work",)]


async def test_a_delayed_exchange_routes_a_dead_letter_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        exchanges = await open_exchanges(world)
        later = ExchangeName("default", "later")
        await exchanges.declare(later, "x-delayed-message", {"x-delayed-type": "direct"})
        queue, dead = await world.queue(dead_letter_exchange="later"), await world.queue("dead")
        await exchanges.bind("default", Binding("later", Destination("dead"), "k"))
        await world.send(queue, b"bad", key=b"k", headers=[("x-delay", b"60000")])
        await reject(queue)
        await world.until(lambda: dead.counts().ready == 1)
        assert world.queues._context.counters.dropped == 0


@pytest.mark.parametrize("exchange", [DLX, "missing"])
async def test_without_a_route_it_is_dropped(tmp_path: Path, exchange: str) -> None:
    async with running(tmp_path) as world:
        await open_exchanges(world)
        queue = await world.queue(dead_letter_exchange=exchange)
        await world.send(queue, b"bad")
        await reject(queue)
        assert queue.counts() == (0, 0, 0)
        counters = world.queues._context.counters
        assert (counters.dead_lettered, counters.dropped) == (0, 1)


async def test_it_waits_until_exchanges_are_loaded(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(dead_letter_exchange=DLX)
        dead = await world.queue("dead")
        await world.send(queue, b"bad", key=b"k")
        _, error = await try_settle(queue, await take(queue), Outcome.REJECT)
        assert isinstance(error, StorageUnavailable)
        await bind(await open_exchanges(world), "k", "dead")
        world.advance(move_retries.RETRY_MS)
        await world.until(lambda: dead.counts().ready == 1)
        assert queue.counts() == (0, 0, 0)


async def test_work_retry_and_rejection_go_on_for_ever(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        exchanges = await open_exchanges(world)
        work = await world.queue(dead_letter_exchange=DLX, dead_letter_routing_key="retry")
        retry = await world.queue(
            "retry", dead_letter_exchange=DLX, dead_letter_routing_key="work"
        )
        await bind(exchanges, "retry", "retry")
        await bind(exchanges, "work", "work")
        await world.send(work, b"job", key=b"work")
        for _ in range(200):
            await reject(work)
            await world.until(lambda: retry.counts().ready == 1 and is_fed(retry))
            await reject(retry, "expired")
            await world.until(lambda: work.counts().ready == 1 and is_fed(work))
        (letter,) = await take(work)
    history = history_of(letter.record.headers)
    assert [(one.queue, one.reason, one.times) for one in history] == [
        ("retry", "expired", 200),
        ("work", "rejected", 200),
    ]


async def test_a_cycle_without_a_rejection_is_dropped(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        exchanges = await open_exchanges(world)
        one = await world.queue("one", dead_letter_exchange=DLX, dead_letter_routing_key="b")
        two = await world.queue("two", dead_letter_exchange=DLX, dead_letter_routing_key="a")
        await bind(exchanges, "a", "one")
        await bind(exchanges, "b", "two")
        await world.send(one, b"looping")
        await reject(one, "expired")
        await world.until(lambda: two.counts().ready == 1 and is_fed(two))

        await reject(two, "expired")

        assert (one.counts(), two.counts()) == ((0, 0, 0), (0, 0, 0))
        assert world.queues._context.counters.dropped == 1


async def test_a_restart_amid_moves_leaves_each_message_once(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        exchanges = await open_exchanges(world)
        queue = await world.queue(dead_letter_exchange=DLX)
        await world.queue("dead")
        await bind(exchanges, "k", "dead")
        await world.send(queue, *[b"%d" % number for number in range(20)], key=b"k")
        got = await take(queue, 10)
        queue.settle([(one.delivery_id, Outcome.REJECT) for one in got], lambda *_: None)
        await world.restart()
        await open_exchanges(world)
        queue, dead = world.find(), world.find("dead")
        world.advance(60_000)
        await world.until(lambda: is_fed(queue) and is_fed(dead))
        dead_values = values(await take(dead, 20))
        work_values = values(await take(queue, 20))
    assert sorted(map(int_of, dead_values + work_values)) == list(range(20))


def int_of(value: bytes | None) -> int:
    assert value is not None
    return int(value)
