"""kill -9 while messages expire: each is in its queue or in the dead letters, and never in both."""

from pathlib import Path

import pytest

from adapters.amqp.v091.fields import Field, Table
from adapters.amqp.v091.methods.basic import BasicAck, BasicConsumeOk
from adapters.amqp.v091.methods.confirm import ConfirmSelect, ConfirmSelectOk
from adapters.amqp.v091.methods.queue import QueueDeclareOk
from gateway.testing.ports import free_port
from tests.adapters.amqp.conformance.methods import consume, declare
from tests.crash.kill_schedule import how_often, small_segments
from tests.support.amqp_raw import RawAmqp
from tests.support.gateway import Gateway
from tests.support.waiting import wait_until

MESSAGES = 6_000
TTL_MS = 300
WORK = Table(
    [
        ("x-message-ttl", Field("I", TTL_MS)),
        ("x-dead-letter-exchange", Field("S", "")),
        ("x-dead-letter-routing-key", Field("S", "dead")),
    ]
)

pytestmark = pytest.mark.crash


def connect(port: int) -> RawAmqp:
    client = RawAmqp(port).open()
    client.channel(1)
    return client


def publish(client: RawAmqp, first: int, end: int) -> None:
    """Publish numbered messages and wait for their confirms."""
    client.channel(2)
    client.ask(2, ConfirmSelect(nowait=False), ConfirmSelectOk)
    for number in range(first, end):
        client.publish(2, "work", b"%d" % number)
    confirmed = 0
    while confirmed < end - first:
        answer = client.read()
        assert isinstance(answer, BasicAck)
        confirmed = max(confirmed, answer.delivery_tag)


def count(client: RawAmqp, name: str) -> int:
    return client.ask(1, declare(name, passive=True), QueueDeclareOk).message_count


@how_often(1, 25)
def test_each_message_expires_once(tmp_path: Path, kills: int) -> None:
    port = free_port()
    settings = {
        **small_segments("group", 1 << 20),
        "adapters.amqp.bind": f"127.0.0.1:{port}",
    }
    with Gateway(tmp_path / "data", settings) as gateway:
        client = connect(port)
        client.ask(1, declare("dead"), QueueDeclareOk)
        client.ask(1, declare("work", WORK), QueueDeclareOk)
        for kill in range(kills):
            publish(client, kill * MESSAGES, (kill + 1) * MESSAGES)
            before = kill * MESSAGES
            wait_until(
                lambda client=client, before=before: count(client, "dead") > before,  # type: ignore[misc]
                within_s=60,
                what="the first dead letters",
            )
            gateway.kill()
            client.close()
            gateway.restart()
            client = connect(port)
            total = before + MESSAGES
            wait_until(
                lambda client=client, total=total: count(client, "dead") >= total,  # type: ignore[misc]
                within_s=60,
                what="all dead letters",
            )
            assert count(client, "work") == 0
        client.send(1, consume("dead", "c", no_ack=True))
        assert client.read() == BasicConsumeOk("c")
        total = kills * MESSAGES
        assert [client.read_message().body for _ in range(total)] == [
            b"%d" % number for number in range(total)
        ]
        client.close()
