"""Quorum queues: counts of deliveries, the delivery limit, and delays of what comes back."""

import pytest

from adapters.amqp.v091.fields import Field, Table
from adapters.amqp.v091.methods.basic import (
    BasicConsumeOk,
    BasicGetEmpty,
    BasicNack,
    BasicReject,
)
from adapters.amqp.v091.methods.channel import ChannelClose, ChannelCloseOk
from adapters.amqp.v091.methods.queue import QueueDeclareOk
from adapters.amqp.v091.properties import decode_properties
from tests.adapters.amqp.conformance.conftest import Rig
from tests.adapters.amqp.conformance.methods import consume, declare, get, table
from tests.support.amqp_raw import Message, RawAmqp
from tests.support.amqp_target import NEWER, OWN

pytestmark = NEWER
QUORUM = table("x-queue-type", "S", "quorum")
COUNTS = ("x-acquired-count", "x-delivery-count")


@pytest.fixture
def client(rig: Rig) -> RawAmqp:
    return rig.client()


def quorum(client: RawAmqp, name: str, *arguments: tuple[str, Field]) -> None:
    client.ask(1, declare(name, Table([*QUORUM, *arguments])), QueueDeclareOk)


def start(client: RawAmqp, name: str, channel: int = 1) -> None:
    client.send(channel, consume(name, "c"))
    assert client.read() == BasicConsumeOk("c")


def counts_of(message: Message) -> list[object]:
    headers = decode_properties(message.properties).table
    return [headers.value(name) for name in COUNTS]


def test_a_nack_counts_as_a_delivery_and_a_reject_as_a_failed_one(
    rig: Rig, client: RawAmqp
) -> None:
    name = rig.name()
    quorum(client, name)
    client.publish(1, name, b"m")
    start(client, name)
    seen = []
    seen.append(counts_of(client.read_message()))
    client.send(1, BasicNack(1, multiple=False, requeue=True))
    seen.append(counts_of(client.read_message()))
    client.send(1, BasicReject(2, requeue=True))
    found = client.read_message()
    seen.append(counts_of(found))
    assert seen == [[None, None], [1, None], [2, 1]]
    assert getattr(found.method, "redelivered", None) is True


@OWN
def test_a_classic_queue_shows_no_counts(rig: Rig, client: RawAmqp) -> None:
    name = rig.name()
    client.ask(1, declare(name), QueueDeclareOk)
    client.publish(1, name, b"m")
    start(client, name)
    client.read_message()
    client.send(1, BasicReject(1, requeue=True))
    assert counts_of(client.read_message()) == [None, None]


def test_the_end_of_a_channel_is_a_failure(rig: Rig, client: RawAmqp) -> None:
    name = rig.name()
    quorum(client, name)
    client.publish(1, name, b"m")
    client.channel(2)
    start(client, name, 2)
    client.read_message()
    client.ask(2, ChannelClose(200, "", 0, 0), ChannelCloseOk)
    start(client, name)
    assert counts_of(client.read_message()) == [1, 1]


def test_a_message_beyond_the_limit_goes_to_the_exchange(rig: Rig, client: RawAmqp) -> None:
    name, dead = rig.name(), rig.name("dead")
    client.ask(1, declare(dead), QueueDeclareOk)
    quorum(
        client,
        name,
        ("x-delivery-limit", Field("I", 1)),
        ("x-dead-letter-exchange", Field("S", "")),
        ("x-dead-letter-routing-key", Field("S", dead)),
    )
    client.publish(1, name, b"m")
    start(client, name)
    for tag in (1, 2):
        client.read_message()
        client.send(1, BasicReject(tag, requeue=True))
    client.channel(2)
    client.send(2, consume(dead, "d", no_ack=True))
    assert client.read() == BasicConsumeOk("d")
    headers = decode_properties(client.read_message().properties).table
    assert headers.value("x-first-death-reason") == "delivery_limit"
    assert headers.value("x-first-death-queue") == name


def test_a_message_beyond_the_limit_is_dropped_without_an_exchange(
    rig: Rig, client: RawAmqp
) -> None:
    name = rig.name()
    quorum(client, name, ("x-delivery-limit", Field("I", 0)))
    client.publish(1, name, b"bad")
    client.publish(1, name, b"good")
    start(client, name)
    assert client.read_message().body == b"bad"
    assert client.read_message().body == b"good"
    client.send(1, BasicReject(1, requeue=True))
    client.send(1, BasicReject(2, requeue=True))
    client.channel(2)
    client.ask(2, get(name), BasicGetEmpty)


def test_what_comes_back_waits_for_its_delay(rig: Rig, client: RawAmqp) -> None:
    name = rig.name()
    quorum(
        client,
        name,
        ("x-delayed-retry-type", Field("S", "all")),
        ("x-delayed-retry-min", Field("l", 60_000)),
    )
    client.publish(1, name, b"bad")
    start(client, name)
    assert client.read_message().body == b"bad"
    client.send(1, BasicNack(1, multiple=False, requeue=True))
    client.publish(1, name, b"good")
    assert client.read_message().body == b"good"
