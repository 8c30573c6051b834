"""Queues with ``x-max-priority``: the highest first, in order within one priority."""

from adapters.amqp.v091.methods.basic import BasicAck, BasicConsumeOk, BasicNack
from adapters.amqp.v091.methods.confirm import ConfirmSelect, ConfirmSelectOk
from adapters.amqp.v091.methods.queue import QueueDeclareOk
from adapters.amqp.v091.properties import Properties, encode_properties
from tests.adapters.amqp.conformance.conftest import Rig
from tests.adapters.amqp.conformance.methods import consume, declare, table
from tests.support.amqp_raw import RawAmqp

FOUR_LEVELS = table("x-max-priority", "I", 3)


def publish_all(client: RawAmqp, queue: str, messages: list[tuple[bytes, int | None]]) -> None:
    """Publish messages with priorities, and wait until all have arrived."""
    client.ask(1, ConfirmSelect(nowait=False), ConfirmSelectOk)
    for body, priority in messages:
        properties = encode_properties(Properties(priority=priority, delivery_mode=2))
        client.publish(1, queue, body, properties=properties)
    confirmed: set[int] = set()
    while len(confirmed) < len(messages):
        ack = client.read()
        assert isinstance(ack, BasicAck)
        first = 1 if ack.multiple else ack.delivery_tag
        confirmed.update(range(first, ack.delivery_tag + 1))


def bodies(client: RawAmqp, count: int) -> list[bytes]:
    return [client.read_message().body for _ in range(count)]


def test_the_highest_priority_is_delivered_first(rig: Rig) -> None:
    client, name = rig.client(), rig.name()
    client.ask(1, declare(name, FOUR_LEVELS), QueueDeclareOk)
    publish_all(
        client,
        name,
        [(b"a", None), (b"b", 1), (b"c", 200), (b"d", 3), (b"e", 1), (b"f", 0)],
    )
    client.send(1, consume(name, "c"))
    assert client.read() == BasicConsumeOk("c")
    assert bodies(client, 6) == [b"c", b"d", b"b", b"e", b"a", b"f"]


def test_messages_that_come_back_keep_their_priority(rig: Rig) -> None:
    client, name = rig.client(), rig.name()
    client.ask(1, declare(name, FOUR_LEVELS), QueueDeclareOk)
    publish_all(client, name, [(b"low", 1), (b"high", 2)])
    client.send(1, consume(name, "c"))
    assert client.read() == BasicConsumeOk("c")
    assert bodies(client, 2) == [b"high", b"low"]
    client.send(1, BasicNack(0, multiple=True, requeue=True))
    assert bodies(client, 2) == [b"high", b"low"]
