"""Stock Python clients: pika, aio-pika, py-amqp and kombu."""

import asyncio
from collections.abc import Iterator

import aio_pika
import kombu
import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.amqp_target import AmqpTarget

WITHIN_S = 30


@pytest.fixture
def channel(target: AmqpTarget) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(target.url))
    yield connection.channel()
    if connection.is_open:
        connection.close()


def test_pika_publishes_and_consumes(channel: BlockingChannel, stem: str) -> None:
    channel.queue_declare(stem, durable=True)
    channel.confirm_delivery()
    for number in range(10):
        channel.basic_publish(
            "",
            stem,
            b"%d" % number,
            pika.BasicProperties(headers={"n": number}),
            mandatory=True,
        )
    channel.basic_qos(prefetch_count=3)
    bodies: list[bytes] = []
    for method, properties, body in channel.consume(stem, inactivity_timeout=WITHIN_S):
        assert method is not None
        assert properties is not None
        assert properties.headers == {"n": len(bodies)}
        channel.basic_ack(method.delivery_tag)
        bodies.append(body)
        if len(bodies) == 10:
            break
    channel.cancel()
    assert bodies == [b"%d" % number for number in range(10)]
    assert channel.queue_delete(stem).method.message_count == 0


def test_pika_is_told_of_unroutable_messages(channel: BlockingChannel, stem: str) -> None:
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("", stem, b"lost", mandatory=True)


def test_pika_is_told_why_a_channel_closes(channel: BlockingChannel, stem: str) -> None:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.queue_declare(stem, passive=True)
    assert caught.value.reply_code == 404


async def test_aio_pika_publishes_through_an_exchange(target: AmqpTarget, stem: str) -> None:
    connection = await aio_pika.connect_robust(target.url)
    async with asyncio.timeout(WITHIN_S), connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=10)
        exchange = await channel.declare_exchange(
            stem, aio_pika.ExchangeType.TOPIC, durable=True
        )
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind(exchange, "orders.*")
        for number in range(5):
            message = aio_pika.Message(b"%d" % number, content_type="text/plain")
            await exchange.publish(message, routing_key=f"orders.{number}")
        found = []
        async with queue.iterator() as messages:
            async for one in messages:
                async with one.process():
                    found.append((one.routing_key, one.body))
                if len(found) == 5:
                    break
        assert found == [(f"orders.{n}", b"%d" % n) for n in range(5)]
        await exchange.delete()


async def test_aio_pika_commits_a_transaction(target: AmqpTarget, stem: str) -> None:
    connection = await aio_pika.connect(target.url)
    async with asyncio.timeout(WITHIN_S), connection:
        channel = await connection.channel(publisher_confirms=False)
        queue = await channel.declare_queue(stem, exclusive=True)
        async with channel.transaction():
            await channel.default_exchange.publish(aio_pika.Message(b"in"), routing_key=stem)
        transaction = channel.transaction()
        await transaction.select()
        await channel.default_exchange.publish(aio_pika.Message(b"out"), routing_key=stem)
        await transaction.rollback()
        got = await queue.get()
        assert got is not None
        assert got.body == b"in"
        await got.ack()
        assert await queue.get(fail=False) is None


def test_kombu_publishes_and_consumes(target: AmqpTarget, stem: str) -> None:
    with kombu.Connection(target.url) as connection:
        exchange = kombu.Exchange(stem, "direct", durable=True)
        queue = kombu.Queue(stem, exchange, routing_key="k")
        with connection.Producer(serializer="json") as producer:
            producer.publish({"n": 1}, exchange=exchange, routing_key="k", declare=[queue])
        found = []

        def on_message(body: object, message: kombu.Message) -> None:
            found.append(body)
            message.ack()

        with connection.Consumer(queue, callbacks=[on_message]):
            connection.drain_events(timeout=WITHIN_S)
        assert found == [{"n": 1}]


def test_kombu_simple_queue(target: AmqpTarget, stem: str) -> None:
    with kombu.Connection(target.url) as connection, connection.SimpleQueue(stem) as queue:
        queue.put({"hello": "world"})
        message = queue.get(timeout=WITHIN_S)
        assert message.payload == {"hello": "world"}
        message.ack()
        assert queue.qsize() == 0
