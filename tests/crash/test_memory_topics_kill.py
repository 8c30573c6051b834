"""Topics in memory with stock clients of all protocols; after a kill -9 they are empty."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import paho.mqtt.client as paho
import pika
import pika.exceptions
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from gateway.testing.gateway_process import to_toml
from gateway.testing.ports import free_port
from tests.support.gateway import Gateway
from tests.support.waiting import wait_until

pytestmark = pytest.mark.crash

WAIT_S = 30
TOPIC, WORK = "ticks", "work"
IN_MEMORY = {'"storage.class"': "memory"}


class Node:
    """A gateway with two topics in memory, and its clients."""

    def __init__(self, folder: Path) -> None:
        self.amqp_port, self.mqtt_port, self.sqs_port = free_port(), free_port(), free_port()
        self.gateway = Gateway(
            folder / "data",
            {
                "adapters.amqp.bind": f"127.0.0.1:{self.amqp_port}",
                "adapters.mqtt.bind": f"127.0.0.1:{self.mqtt_port}",
                "adapters.mqtt.websocket.enabled": False,
                "adapters.mqtt.routes": to_toml([{"filter": "ticks/#", "topic": TOPIC}]),
                "adapters.sqs.bind": f"127.0.0.1:{self.sqs_port}",
                "topics": to_toml(
                    [
                        {"name": TOPIC, "configs": IN_MEMORY},
                        {
                            "name": WORK,
                            "configs": {**IN_MEMORY, '"cleanup.policy"': "queue"},
                        },
                    ]
                ),
            },
        )

    def produce(self, *values: str) -> None:
        producer = Producer(
            {"bootstrap.servers": self.gateway.bootstrap, "enable.idempotence": True}
        )
        for value in values:
            producer.produce(TOPIC, value, key=f"ticks/{value}")
        assert producer.flush(WAIT_S) == 0

    def consume(self, count: int) -> list[str]:
        """Return records of a group that commits, from where it was."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.gateway.bootstrap,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([TOPIC])
        found: list[str] = []
        while len(found) < count:
            message = consumer.poll(WAIT_S)
            assert message is not None
            assert message.error() is None
            found.append((message.value() or b"").decode())
        consumer.commit(asynchronous=False)
        consumer.close()
        return found

    def sqs(self) -> tuple[Any, str]:
        client = boto3.client(
            "sqs",
            endpoint_url=f"http://127.0.0.1:{self.sqs_port}",
            region_name="us-east-1",
            aws_access_key_id="any",
            aws_secret_access_key="any",
        )
        return client, client.create_queue(QueueName=WORK)["QueueUrl"]

    def received(self) -> list[str]:
        """Receive all messages of the queue, without deleting them."""
        client, url = self.sqs()
        found: list[str] = []
        while messages := client.receive_message(
            QueueUrl=url, WaitTimeSeconds=1, MaxNumberOfMessages=10
        ).get("Messages"):
            found += [message["Body"] for message in messages]
        return found

    def subscribe(self, seen: list[bytes]) -> paho.Client:
        """Connect a subscriber with a session that stays."""
        client = paho.Client(CallbackAPIVersion.VERSION2, "reader", protocol=paho.MQTTv5)
        client.on_message = lambda _client, _data, message: seen.append(bytes(message.payload))
        ready: list[Any] = []
        client.on_subscribe = lambda *_args: ready.append(True)
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 3_600
        client.connect("127.0.0.1", self.mqtt_port, clean_start=False, properties=properties)
        client.loop_start()
        client.subscribe("ticks/#", qos=1)
        wait_until(lambda: bool(ready), within_s=WAIT_S, what="the subscription")
        return client

    def amqp(self) -> pika.BlockingConnection:
        url = f"amqp://guest:guest@127.0.0.1:{self.amqp_port}/%2F"
        return pika.BlockingConnection(pika.URLParameters(url))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    found = Node(tmp_path)
    with found.gateway:
        yield found


def test_all_protocols_share_it_and_a_kill_leaves_it_declared(node: Node) -> None:
    seen: list[bytes] = []
    subscriber = node.subscribe(seen)
    node.produce("1", "2", "3")
    wait_until(lambda: len(seen) == 3, within_s=WAIT_S, what="three messages")
    subscriber.publish("ticks/4", b"4", qos=1).wait_for_publish(WAIT_S)
    assert node.consume(4) == ["1", "2", "3", "4"]
    client, url = node.sqs()
    client.send_message(QueueUrl=url, MessageBody="by sqs")
    with node.amqp() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", WORK, b"by amqp")
    assert sorted(node.received()) == ["by amqp", "by sqs"]
    subscriber.disconnect()
    subscriber.loop_stop()

    node.gateway.kill()
    node.gateway.start()

    assert node.received() == []
    client, url = node.sqs()
    client.send_message(QueueUrl=url, MessageBody="after")
    assert node.received() == ["after"]
    again: list[bytes] = []
    subscriber = node.subscribe(again)
    node.produce("5", "6")
    assert node.consume(2) == ["5", "6"], "a position of before skips what is new"
    wait_until(lambda: len(again) >= 2, within_s=WAIT_S, what="the new messages")
    assert again == [b"5", b"6"]
    subscriber.disconnect()
    subscriber.loop_stop()


def test_transactions_are_refused(node: Node) -> None:
    producer = Producer({"bootstrap.servers": node.gateway.bootstrap, "transactional.id": "id"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(TOPIC, "1")
    with pytest.raises(KafkaException):
        producer.commit_transaction(WAIT_S)

    node.produce("2")
    assert node.consume(1) == ["2"]


def test_a_fan_out_to_a_durable_and_a_transient_queue_leaves_the_durable_one(
    node: Node,
) -> None:
    connection = node.amqp()
    channel = connection.channel()
    channel.confirm_delivery()
    transient = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_declare("kept", durable=True)
    for name in (transient, "kept"):
        channel.queue_bind(name, "amq.fanout")
    for number in range(100):
        channel.basic_publish("amq.fanout", "", b"%d" % number)
    for name in (transient, "kept"):
        assert channel.queue_declare(name, passive=True).method.message_count == 100
    assert node.gateway.metric("headgate_memory_partitions") == 3

    node.gateway.kill()
    with pytest.raises(pika.exceptions.AMQPError):
        connection.process_data_events(WAIT_S)
    node.gateway.start()

    assert node.gateway.metric("headgate_memory_partitions") == 2
    with node.amqp() as connection:
        channel = connection.channel()
        assert channel.queue_declare("kept", passive=True).method.message_count == 100
        bodies = [channel.basic_get("kept", auto_ack=True)[2] for _ in range(100)]
        assert bodies == [b"%d" % number for number in range(100)]
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
            channel.queue_declare(transient, passive=True)
        assert caught.value.reply_code == 404
