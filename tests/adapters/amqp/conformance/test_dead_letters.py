"""Dead letters of rejected messages: where they go, and what they say of their deaths."""

import pytest

from adapters.amqp.v091.fields import Field, Table
from adapters.amqp.v091.methods.basic import BasicConsumeOk, BasicGetOk, BasicReject
from adapters.amqp.v091.methods.exchange import (
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
)
from adapters.amqp.v091.methods.queue import QueueBindOk, QueueDeclareOk
from adapters.amqp.v091.properties import Properties, decode_properties, encode_properties
from tests.adapters.amqp.conformance.conftest import Rig
from tests.adapters.amqp.conformance.methods import bind, consume, declare, exchange
from tests.support.amqp_raw import Message, RawAmqp


@pytest.fixture
def client(rig: Rig) -> RawAmqp:
    return rig.client()


def text(value: str) -> Field:
    return Field("S", value)


def reject_one(client: RawAmqp, queue: str) -> Message:
    """Consume one message of a queue and reject it."""
    client.channel(7)
    client.send(7, consume(queue, "rejecting"))
    assert client.read() == BasicConsumeOk("rejecting")
    found = client.read_message()
    client.send(7, BasicReject(1, requeue=False))
    return found


def next_of(client: RawAmqp, queue: str, channel: int) -> Message:
    client.channel(channel)
    client.send(channel, consume(queue, "c", no_ack=True))
    assert client.read() == BasicConsumeOk("c")
    return client.read_message()


def test_a_rejected_message_goes_to_the_exchange_with_its_history(
    rig: Rig, client: RawAmqp
) -> None:
    work, dead, name = rig.name("work"), rig.name("dead"), rig.name("dlx")
    client.ask(1, exchange(name), ExchangeDeclareOk)
    arguments = Table(
        [("x-dead-letter-exchange", text(name)), ("x-dead-letter-routing-key", text("k"))]
    )
    client.ask(1, declare(work, arguments, exclusive=True), QueueDeclareOk)
    client.ask(1, declare(dead, exclusive=True), QueueDeclareOk)
    client.ask(1, bind(dead, name, "k"), QueueBindOk)
    headers = Table([("plain", text("kept")), ("n", Field("I", 5))])
    properties = encode_properties(Properties(headers=headers, delivery_mode=2))
    client.publish(1, work, b"bad", properties=properties)
    reject_one(client, work)
    found = next_of(client, dead, 2)
    assert found.body == b"bad"
    assert not isinstance(found.method, BasicGetOk)
    assert (found.method.exchange, found.method.routing_key) == (name, "k")  # type: ignore[attr-defined]
    table = decode_properties(found.properties).table
    assert table.find("plain") == text("kept")
    assert table.find("n") == Field("I", 5)
    assert table.find("x-first-death-reason") == text("rejected")
    assert table.find("x-first-death-queue") == text(work)
    assert table.find("x-first-death-exchange") == text("")
    deaths = table.value("x-death")
    assert isinstance(deaths, tuple)
    [death] = deaths
    assert isinstance(death, Field)
    assert isinstance(death.value, Table)
    shown = {key: field for key, field in death.value if key != "time"}
    assert shown == {
        "count": Field("l", 1),
        "reason": text("rejected"),
        "queue": text(work),
        "exchange": text(""),
        "routing-keys": Field("A", (text(work),)),
    }
    client.ask(1, ExchangeDelete(0, name, if_unused=False, nowait=False), ExchangeDeleteOk)


def test_the_default_exchange_is_a_dead_letter_exchange(rig: Rig, client: RawAmqp) -> None:
    work, dead = rig.name("work"), rig.name("dead")
    arguments = Table(
        [("x-dead-letter-exchange", text("")), ("x-dead-letter-routing-key", text(dead))]
    )
    client.ask(1, declare(work, arguments, exclusive=True), QueueDeclareOk)
    client.ask(1, declare(dead, exclusive=True), QueueDeclareOk)
    client.publish(1, work, b"bad")
    reject_one(client, work)
    found = next_of(client, dead, 2)
    assert found.body == b"bad"
    assert (found.method.exchange, found.method.routing_key) == ("", dead)  # type: ignore[attr-defined]


def test_a_message_may_die_and_come_back_many_times(rig: Rig, client: RawAmqp) -> None:
    """Rejected, dead-lettered to its own queue, and rejected again: each time is counted."""
    work = rig.name("work")
    arguments = Table(
        [("x-dead-letter-exchange", text("")), ("x-dead-letter-routing-key", text(work))]
    )
    client.ask(1, declare(work, arguments, exclusive=True), QueueDeclareOk)
    client.publish(1, work, b"again")
    client.send(1, consume(work, "c"))
    assert client.read() == BasicConsumeOk("c")
    for tag in range(1, 31):
        found = client.read_message()
        client.send(1, BasicReject(tag, requeue=False))
    deaths = decode_properties(found.properties).table.value("x-death")
    assert isinstance(deaths, tuple)
    [death] = deaths
    assert isinstance(death, Field)
    assert isinstance(death.value, Table)
    assert death.value.value("count") == 29
