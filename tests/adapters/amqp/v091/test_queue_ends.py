"""Queues that end with their connection, are away, or are deleted twice."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapters.amqp.v091.errors import ReplyCode
from adapters.amqp.v091.fields import Field, Table
from adapters.amqp.v091.framing import encode_content, encode_method_frame
from adapters.amqp.v091.methods.basic import BasicPublish, BasicReturn
from adapters.amqp.v091.methods.connection import ConnectionClose
from adapters.amqp.v091.methods.exchange import ExchangeDeclareOk
from adapters.amqp.v091.methods.model import Method
from adapters.amqp.v091.methods.queue import QueueDeclareOk, QueueDeleteOk
from adapters.amqp.v091.properties import Properties, encode_properties
from gateway.model import TopicName
from tests.adapters.amqp.conformance.methods import (
    consume,
    declare,
    delete,
    exchange,
    get,
    table,
)
from tests.adapters.amqp.in_process import AmqpInProcess, amqp_in_process
from tests.support.waiting import turns, until


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[AmqpInProcess]:
    async with amqp_in_process(tmp_path) as one:
        yield one


async def test_an_exclusive_queue_made_after_its_connection_has_ended_goes(
    one: AmqpInProcess,
) -> None:
    await one.node.kernel.topics.create(TopicName("default", "q"))  # so that it is stored
    peer = await one.peer().open(1)
    peer.send(1, declare("q", exclusive=True))
    await until(lambda: bool(one.node.changes._tasks))

    peer.lose()

    await until(lambda: not one.node.changes._tasks)
    assert one.queue("q") is None
    assert not one.node._owners


async def test_exclusive_queues_of_other_connections_stay(one: AmqpInProcess) -> None:
    first, second = await one.peer().open(1), await one.peer().open(1)
    for peer, name in ((first, "q1"), (first, "q2"), (second, "q3")):
        peer.send(1, declare(name, exclusive=True))
        await peer.read(QueueDeclareOk)

    first.lose()

    await until(lambda: one.queue("q1") is None and one.queue("q2") is None)
    assert one.queue("q3") is not None


async def test_a_start_deletes_what_is_of_this_node_only(one: AmqpInProcess) -> None:
    peer = await one.peer().open(1)
    for name in ("own", "others", "durable"):
        peer.send(1, declare(name, durable=name == "durable"))
        await peer.read(QueueDeclareOk)
    others = one.queue("others")
    assert others is not None
    await one.node.kernel.queues.alter(
        others, attributes={**others.attributes, "amqp.node": "2"}
    )

    await one.node.delete_left_over()

    assert one.queue("own") is None
    assert one.queue("others") is not None
    assert one.queue("durable") is not None


@pytest.mark.parametrize("method", [consume("q"), get("q")])
async def test_a_queue_that_another_node_serves_is_refused(
    one: AmqpInProcess, method: Method
) -> None:
    peer = await one.peer().open(1)
    peer.send(1, declare("q"))
    await peer.read(QueueDeclareOk)
    queue = one.queue("q")
    assert queue is not None
    queue.leave_node()

    peer.send(1, method)

    closed = await peer.read(ConnectionClose)  # upon which clients connect again
    assert closed.reply_code == ReplyCode.CONNECTION_FORCED


async def test_both_who_delete_a_queue_at_once_are_answered(one: AmqpInProcess) -> None:
    peer = await one.peer().open(1, 2)
    peer.send(1, declare("q"))
    await peer.read(QueueDeclareOk)

    peer.send_bytes(encode_method_frame(1, delete("q")) + encode_method_frame(2, delete("q")))

    await until(lambda: one.queue("q") is None)
    await turns(20)
    assert [type(found) for found in await peer.methods()] == [QueueDeleteOk] * 2


async def test_a_message_that_waits_at_a_delayed_exchange_is_not_returned(
    one: AmqpInProcess,
) -> None:
    kernel = one.node.kernel
    kernel.publisher.delay_topic = await kernel.topics.create(
        TopicName("default", "waiting"),
        partitions=1,
        configs={"delay.enable": "true"},
    )
    peer = await one.peer().open(1)
    peer.send(1, exchange("later", "x-delayed-message", table("x-delayed-type", "S", "fanout")))
    await peer.read(ExchangeDeclareOk)

    for delay_ms in (60_000, 0):
        properties = encode_properties(
            Properties(headers=Table([("x-delay", Field("I", delay_ms))]))
        )
        publish = BasicPublish(0, "later", "k", mandatory=True, immediate=False)
        content = encode_content(1, properties, b"a", 131_072)
        peer.send_bytes(encode_method_frame(1, publish) + b"".join(content))

    await turns(20)
    returned = [found for found in await peer.methods() if isinstance(found, BasicReturn)]
    assert len(returned) == 1
