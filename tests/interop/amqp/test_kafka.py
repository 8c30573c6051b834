"""A queue of AMQP is a topic: Kafka clients read and write the same messages."""

import pika
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.amqp_target import OWN, AmqpTarget

pytestmark = OWN
WITHIN_S = 30


def test_kafka_reads_from_offset_0_what_amqp_publishes(target: AmqpTarget, stem: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(target.url)) as connection:
        channel = connection.channel()
        channel.queue_declare(stem, durable=True)
        channel.confirm_delivery()
        properties = pika.BasicProperties(
            content_type="text/plain", headers={"plain": "text", "number": 5}
        )
        channel.basic_publish("", stem, b"hello", properties)
    consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": stem})
    consumer.assign([TopicPartition(stem, 0, 0)])
    message = consumer.poll(WITHIN_S)
    consumer.close()
    assert message is not None
    assert message.error() is None
    assert message.value() == b"hello"
    headers = dict(message.headers() or [])
    assert headers["content-type"] == b"text/plain"
    assert headers["plain"] == b"text"
    assert headers["number"] == b"5"


def test_amqp_receives_what_kafka_produces(target: AmqpTarget, stem: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(target.url)) as connection:
        channel = connection.channel()
        channel.queue_declare(stem, durable=True)
        producer = Producer({"bootstrap.servers": target.bootstrap})
        headers = [("content-type", b"text/plain"), ("plain", b"text"), ("raw", b"\xff")]
        producer.produce(stem, b"hello", b"key", headers=headers)
        assert producer.flush(WITHIN_S) == 0
        for method, properties, body in channel.consume(stem, inactivity_timeout=WITHIN_S):
            assert method is not None
            assert properties is not None
            assert (method.exchange, method.routing_key, body) == ("", stem, b"hello")
            assert properties.content_type == "text/plain"
            assert properties.headers == {"plain": "text", "raw": b"\xff"}
            channel.basic_ack(method.delivery_tag)
            break
        channel.cancel()
