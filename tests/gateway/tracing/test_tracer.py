"""Spans of sampled messages: found in batches of any form, remembered within a bound."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.config.otel import OtelConfig
from gateway.partition import Write
from gateway.queues.model import Outcome
from gateway.tracing.span import Span
from gateway.tracing.tracer import SPANS_PER_BATCH_MAX, Tracer
from tests.gateway.queues.queue_node import World, running, settle, take
from tests.support.batches import sample_batch

TRACE = "0af7651916cd43dd8448eb211c80319c"
SAMPLED = (("traceparent", f"00-{TRACE}-b7ad6b7169203331-01".encode()),)
NOT_SAMPLED = (("traceparent", f"00-{TRACE}-b7ad6b7169203331-00".encode()),)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running(tmp_path) as one:
        yield one


def traced(world: World, **config: int) -> list[Span]:
    """Turn traces on; return the spans, as they come."""
    spans: list[Span] = []
    settings = OtelConfig.model_validate(config)
    world.broker.append_queue.tracer = Tracer(world.clock, settings, spans.append)
    return spans


async def append(world: World, count: int, *, codec: int) -> None:
    """Append a batch of sampled messages as a client has encoded it."""
    topic = await world.topic("orders")
    write = world.broker.prepare(
        world.broker.partition(topic, 0),
        sample_batch(
            count=count,
            compression=codec,
            headers=SAMPLED,
            timestamp_unix_ms=world.clock.unix_ms(),
        ),
    )
    assert isinstance(write, Write)
    done: list[object] = []
    world.broker.append([write], done.append)
    await world.until(lambda: bool(done))


def seen(spans: list[Span]) -> list[tuple[str, int, str]]:
    return [(one.name, one.offset, one.outcome) for one in spans]


async def test_a_sampled_message_has_a_span_for_each_thing_that_happens_to_it(
    world: World,
) -> None:
    queue = await world.queue()
    spans = traced(world)
    await world.send(queue, b"plain")
    await world.send(queue, b"quiet", headers=NOT_SAMPLED)
    await world.send(queue, b"sampled", headers=SAMPLED)
    deliveries = await take(queue)
    world.clock.advance(1_500)
    await settle(queue, deliveries)

    assert seen(spans) == [("publish work", 2, ""), ("receive work", 2, ""),
                           ("settle work", 2, "ack")]  # fmt: skip
    assert {one.parent.trace_id.hex() for one in spans} == {TRACE}
    assert spans[2].ended_unix_ns - spans[2].begun_unix_ns == 1_500_000_000


async def test_a_dead_letter_keeps_its_trace(world: World) -> None:
    dead = await world.queue("dead")
    queue = await world.queue(dead_letter_topic="dead", attempts_max=3)
    spans = traced(world)
    await world.send(queue, b"poison", headers=SAMPLED)
    await settle(queue, await take(queue), Outcome.REJECT)
    await world.until(lambda: bool(dead.counts().ready))

    assert ("settle work", 0, "dead_letter") in seen(spans)
    assert ("publish dead", 0, "") in seen(spans)
    assert {one.parent.trace_id.hex() for one in spans} == {TRACE}


async def test_only_so_many_messages_are_remembered(world: World) -> None:
    queue = await world.queue()
    spans = traced(world, messages_remembered_max=2)
    for _ in range(4):
        await world.send(queue, b"v", headers=SAMPLED)
    spans.clear()
    await take(queue)

    assert [one.offset for one in spans] == [2, 3]
    tracer = world.broker.append_queue.tracer
    assert tracer is not None
    assert len(tracer._order) == sum(map(len, tracer._by_partition.values())) == 2


async def test_internal_topics_and_requeued_messages(world: World) -> None:
    queue = await world.queue()
    spans = traced(world)
    await world.send(queue, b"v", headers=SAMPLED)
    await settle(queue, await take(queue), Outcome.RELEASE)
    await settle(queue, await take(queue))

    assert [name for name, _, _ in seen(spans)] == [
        "publish work", "receive work", "receive work", "settle work",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "codec", [0, 1, 2, 3, 4], ids=["none", "gzip", "snappy", "lz4", "zstd"]
)
async def test_sampled_messages_of_a_client_batch_are_found(world: World, codec: int) -> None:
    spans = traced(world)
    await append(world, 3, codec=codec)

    assert [one.offset for one in spans] == [0, 1, 2]


async def test_a_batch_of_many_sampled_messages_has_a_bound(world: World) -> None:
    spans = traced(world)
    await append(world, SPANS_PER_BATCH_MAX + 5, codec=0)

    assert len(spans) == SPANS_PER_BATCH_MAX
