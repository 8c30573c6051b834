"""Queues that end with their connection or their consumer, by pika: no file, no SQL, no trace."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pika
import pika.exceptions
import pytest
from confluent_kafka import Consumer, TopicPartition

from gateway.testing.ports import free_port
from tests.support.amqp_target import IS_RABBITMQ
from tests.support.gateway import Gateway
from tests.support.waiting import wait_until

WAIT_S = 30

pytestmark = pytest.mark.skipif(IS_RABBITMQ, reason="what only a gateway has")


class Node:
    """A gateway of this module's own, whose folder is looked into."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.gateway = Gateway(
            folder / "data",
            {
                "adapters.amqp.bind": f"127.0.0.1:{self.port}",
                "storage.flush": "never",
                "metadata.url": f"sqlite:///{folder / 'metadata.db'}",
            },
        )
        self._database = folder / "metadata.db"

    def connect(self) -> pika.BlockingConnection:
        url = f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"
        return pika.BlockingConnection(pika.URLParameters(url))

    @property
    def rows(self) -> dict[str, int]:
        """Number of rows of each table of the metadata store."""
        with sqlite3.connect(f"file:{self._database}?mode=ro", uri=True) as connection:
            names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            return {
                name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]  # noqa: S608
                for (name,) in names.fetchall()
            }

    @property
    def queue_count(self) -> int:
        return int(self.gateway.metric("headgate_memory_partitions"))

    def wait_for_queues(self, count: int) -> None:
        wait_until(lambda: self.queue_count == count, within_s=WAIT_S, what=f"{count} queues")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    found = Node(tmp_path_factory.mktemp("transient"))
    with found.gateway:
        yield found


def test_requests_are_answered_by_a_reply_queue(node: Node, stem: str) -> None:
    with node.connect() as connection:
        channel = connection.channel()
        before = node.rows
        written = node.gateway.metric("headgate_wal_written_bytes_total")
        channel.confirm_delivery()
        replies = channel.queue_declare("", exclusive=True).method.queue
        work = channel.queue_declare(stem, auto_delete=True).method.queue
        for number in range(20):
            channel.basic_publish(
                "", work, b"%d" % number, pika.BasicProperties(reply_to=replies)
            )
            method, properties, body = channel.basic_get(work)
            assert method is not None
            assert properties is not None
            channel.basic_publish("", properties.reply_to or "", body or b"")
            channel.basic_ack(method.delivery_tag)
            assert channel.basic_get(replies, auto_ack=True)[2] == b"%d" % number
        assert node.rows == before
        assert node.gateway.metric("headgate_wal_written_bytes_total") == written
        channel.queue_delete(work)
    node.wait_for_queues(0)


def test_an_exclusive_queue_is_its_connections_own_and_ends_with_it(
    node: Node, stem: str
) -> None:
    connection = node.connect()
    connection.channel().queue_declare(stem, exclusive=True)
    with node.connect() as other:
        for kwargs in ({"exclusive": True}, {"passive": True}):
            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
                other.channel().queue_declare(stem, **kwargs)
            assert caught.value.reply_code == 405
        connection.close()
        node.wait_for_queues(0)
        other.channel().queue_declare(stem, exclusive=True)
    node.wait_for_queues(0)


def test_an_auto_delete_queue_goes_with_its_last_consumer(node: Node, stem: str) -> None:
    with node.connect() as connection:
        channel = connection.channel()
        channel.queue_declare(stem, auto_delete=True)
        channel.queue_bind(stem, "amq.topic", "a.#")
        tags = [channel.basic_consume(stem, lambda *_: None) for _ in range(2)]
        channel.basic_cancel(tags[0])
        assert node.queue_count == 1
        channel.basic_cancel(tags[1])
        node.wait_for_queues(0)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
            channel.queue_declare(stem, passive=True)
        assert caught.value.reply_code == 404


def test_many_come_and_go(node: Node, stem: str) -> None:
    before = node.rows
    with node.connect() as connection:
        channel = connection.channel()
        for number in range(500):
            name = channel.queue_declare(f"{stem}-{number}", exclusive=True).method.queue
            channel.queue_bind(name, "amq.topic", f"a.{number}")
            channel.queue_delete(name)
        assert node.queue_count == 0
    assert node.rows == before
    assert node.gateway.metric("headgate_memory_bytes") == 0


def test_kafka_reads_a_transient_queue(node: Node, stem: str) -> None:
    with node.connect() as connection:
        channel = connection.channel()
        channel.queue_declare(stem, auto_delete=True)
        channel.confirm_delivery()
        channel.basic_publish("", stem, b"hello")
        consumer = Consumer(
            {
                "bootstrap.servers": node.gateway.bootstrap,
                "group.id": stem,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.assign([TopicPartition(stem, 0)])
        message = consumer.poll(WAIT_S)
        consumer.close()
        assert message is not None
        assert message.error() is None
        assert message.value() == b"hello"
        channel.queue_delete(stem)
    node.wait_for_queues(0)
