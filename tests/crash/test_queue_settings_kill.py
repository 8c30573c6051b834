"""kill -9: a queue's priorities, counts of deliveries, limit and delays are the same after it."""

from pathlib import Path

import pytest

from adapters.amqp.v091.fields import Field, Table
from adapters.amqp.v091.methods.basic import (
    BasicConsumeOk,
    BasicGetEmpty,
    BasicNack,
    BasicReject,
)
from adapters.amqp.v091.methods.queue import QueueDeclareOk
from adapters.amqp.v091.properties import Properties, encode_properties
from gateway.testing.ports import free_port
from tests.adapters.amqp.conformance.methods import consume, declare, get
from tests.support.amqp_raw import RawAmqp
from tests.support.gateway import Gateway

pytestmark = pytest.mark.crash

PRIORITIES = Table([("x-max-priority", Field("I", 5))])
LIMITED = Table(
    [
        ("x-queue-type", Field("S", "quorum")),
        ("x-delivery-limit", Field("I", 1)),
    ]
)
DELAYED = Table(
    [
        ("x-queue-type", Field("S", "quorum")),
        ("x-delayed-retry-type", Field("S", "all")),
        ("x-delayed-retry-min", Field("l", 3_600_000)),
    ]
)


def connect(port: int) -> RawAmqp:
    client = RawAmqp(port).open()
    client.channel(1)
    return client


def start(client: RawAmqp, channel: int, queue: str) -> None:
    client.channel(channel)
    client.send(channel, consume(queue, "c"))
    assert client.read() == BasicConsumeOk("c")


def test_settings_of_queues_hold_after_a_kill(tmp_path: Path) -> None:
    port = free_port()
    settings = {"storage.flush": "group", "adapters.amqp.bind": f"127.0.0.1:{port}"}
    with Gateway(tmp_path / "data", settings) as gateway:
        client = connect(port)
        queues = {"first": PRIORITIES, "limited": LIMITED, "delayed": DELAYED}
        for name, arguments in queues.items():
            client.ask(1, declare(name, arguments), QueueDeclareOk)
        for priority in (0, 1, 5, 2, 5):
            properties = encode_properties(Properties(priority=priority, delivery_mode=2))
            client.publish(1, "first", b"%d" % priority, properties=properties)
        client.publish(1, "limited", b"m")
        client.publish(1, "delayed", b"m")
        start(client, 2, "limited")
        client.read_message()
        client.send(2, BasicNack(1, multiple=False, requeue=True))
        client.read_message()
        client.send(2, BasicReject(2, requeue=True))
        client.read_message()
        start(client, 3, "delayed")
        client.read_message()
        client.send(3, BasicNack(1, multiple=False, requeue=True))
        for name, arguments in queues.items():  # answered when all before it is in the log
            client.ask(1, declare(f"{name}-2", arguments), QueueDeclareOk)
        gateway.kill()
        client.close()
        gateway.restart()

        client = connect(port)
        client.ask(1, get("delayed"), BasicGetEmpty)
        start(client, 2, "first")
        assert [client.read_message().body for _ in range(5)] == [b"5", b"5", b"2", b"1", b"0"]
        # It was with a consumer at the kill, which is its second failure: it has died.
        client.ask(1, get("limited"), BasicGetEmpty)
        client.close()
