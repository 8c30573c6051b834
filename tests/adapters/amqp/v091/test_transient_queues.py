"""Queues that are not durable come and go at once, and leave nothing behind."""

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapters.amqp.v091.methods.channel import ChannelClose
from adapters.amqp.v091.methods.queue import QueueBindOk, QueueDeclareOk, QueueDeleteOk
from gateway.model import TopicName
from gateway.partition import Partition
from gateway.queues.lanes import QueueLane
from gateway.queues.manager import Queue
from gateway.topics.index import Topic
from tests.adapters.amqp.conformance.methods import bind, declare, delete
from tests.adapters.amqp.in_process import AmqpInProcess, amqp_in_process, published
from tests.support.waiting import until

CHURN = 300


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[AmqpInProcess]:
    async with amqp_in_process(tmp_path) as one:
        yield one


def instances() -> Counter[str]:
    gc.collect()
    kinds = (Queue, QueueLane, Partition, Topic)
    return Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, kinds))


async def test_it_waits_for_no_change_that_is_being_stored(one: AmqpInProcess) -> None:
    stored = asyncio.Event()
    one.node.changes.start(stored.wait)
    peer = await one.peer().open(1)

    peer.send(1, declare("q", durable=False))
    await peer.read(QueueDeclareOk)

    queue = one.queue("q")
    assert queue is not None
    assert queue.topic.is_transient
    stored.set()


async def test_declarations_with_bindings_leave_nothing(one: AmqpInProcess) -> None:
    peer = await one.peer().open(1)
    peer.send(1, declare("first", durable=False), delete("first"))
    await peer.read(QueueDeleteOk)
    before = instances()
    exchanges = one.node.kernel.publisher.exchanges

    for number in range(CHURN):
        name = f"q{number}"
        peer.send(1, declare(name, durable=False, exclusive=True), bind(name, "amq.topic", "a"))
        await peer.read(QueueBindOk)
        peer.send_bytes(published(1, "a", b"one", exchange="amq.topic"))
        peer.send(1, delete(name))
        await peer.read(QueueDeleteOk)

    assert exchanges.binding_count == 0
    assert not one.node._owners
    assert not any(one.node._owned.values())
    assert await one.node.kernel.metadata.queues() == []
    await until(lambda: instances() == before)


async def test_a_name_that_a_stored_topic_has_gets_a_stored_queue(one: AmqpInProcess) -> None:
    await one.node.kernel.topics.create(TopicName("default", "q"))
    peer = await one.peer().open(1)

    peer.send(1, declare("q", durable=False))
    await peer.read(QueueDeclareOk)

    queue = one.queue("q")
    assert queue is not None
    assert not queue.topic.is_transient


async def test_a_durable_declaration_meets_a_transient_queue(one: AmqpInProcess) -> None:
    peer = await one.peer().open(1)
    peer.send(1, declare("q", durable=False))
    await peer.read(QueueDeclareOk)

    peer.send(1, declare("q"))

    assert (await peer.read(ChannelClose)).reply_code == 406
