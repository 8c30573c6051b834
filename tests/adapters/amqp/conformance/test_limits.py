"""Bounds of queues by their arguments: time to live, length, and the life of unused queues."""

import time

import pytest

from adapters.amqp.v091.fields import Field, Table
from adapters.amqp.v091.methods.basic import (
    BasicAck,
    BasicConsumeOk,
    BasicGetEmpty,
    BasicNack,
    BasicReject,
)
from adapters.amqp.v091.methods.confirm import ConfirmSelect, ConfirmSelectOk
from adapters.amqp.v091.methods.exchange import (
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
)
from adapters.amqp.v091.methods.queue import QueueBindOk, QueueDeclareOk
from adapters.amqp.v091.methods.tx import TxCommit, TxSelect, TxSelectOk
from adapters.amqp.v091.properties import Properties, decode_properties, encode_properties
from tests.adapters.amqp.conformance.conftest import Rig
from tests.adapters.amqp.conformance.methods import bind, consume, declare, exchange, get
from tests.support.amqp_raw import Message, RawAmqp
from tests.support.amqp_target import OWN

WITHIN_S = 20.0


@pytest.fixture
def client(rig: Rig) -> RawAmqp:
    return rig.client()


def arguments(*pairs: tuple[str, str, object]) -> Table:
    return Table([(name, Field(kind, value)) for name, kind, value in pairs])  # type: ignore[arg-type]


def ready(client: RawAmqp, queue: str) -> int:
    return client.ask(1, declare(queue, passive=True), QueueDeclareOk).message_count


def until_ready(client: RawAmqp, queue: str, count: int) -> None:
    """Ask until a queue has so many ready messages."""
    deadline = time.monotonic() + WITHIN_S
    while ready(client, queue) != count:
        assert time.monotonic() < deadline


def dead_letter_queue(rig: Rig, client: RawAmqp) -> tuple[str, Table]:
    """Make a queue for dead letters; return it and the arguments that name it."""
    dead = rig.name("dead")
    client.ask(1, declare(dead, exclusive=True), QueueDeclareOk)
    return dead, arguments(
        ("x-dead-letter-exchange", "S", ""), ("x-dead-letter-routing-key", "S", dead)
    )


def next_of(client: RawAmqp, queue: str, channel: int) -> Message:
    client.channel(channel)
    client.send(channel, consume(queue, "c", no_ack=True))
    assert client.read() == BasicConsumeOk("c")
    return client.read_message()


def death_of(found: Message) -> dict[str, Field]:
    deaths = decode_properties(found.properties).table.value("x-death")
    assert isinstance(deaths, tuple)
    [death] = deaths
    assert isinstance(death, Field)
    assert isinstance(death.value, Table)
    return dict(death.value)


def expiring(ms: str) -> bytes:
    return encode_properties(Properties(expiration=ms, delivery_mode=2))


def outcomes(client: RawAmqp, queue: str, bodies: list[bytes]) -> dict[int, bool]:
    """Publish with confirms in one piece; return whether each number was acknowledged."""
    client.channel(9)
    client.ask(9, ConfirmSelect(nowait=False), ConfirmSelectOk)
    for body in bodies:
        client.publish(9, queue, body)
    found: dict[int, bool] = {}
    while len(found) < len(bodies):
        answer = client.read()
        assert isinstance(answer, BasicAck | BasicNack)
        first = 1 if answer.multiple else answer.delivery_tag
        for tag in range(first, answer.delivery_tag + 1):
            found.setdefault(tag, isinstance(answer, BasicAck))
    return found


def test_messages_die_of_the_queues_ttl(rig: Rig, client: RawAmqp) -> None:
    dead, letters = dead_letter_queue(rig, client)
    work = rig.name("work")
    table = Table([*letters, *arguments(("x-message-ttl", "I", 200))])
    client.ask(1, declare(work, table, exclusive=True), QueueDeclareOk)
    client.publish(1, work, b"m")
    found = next_of(client, dead, 2)
    assert found.body == b"m"
    death = death_of(found)
    assert death["reason"] == Field("S", "expired")
    assert death["count"] == Field("l", 1)
    assert death["queue"] == Field("S", work)
    assert "original-expiration" not in death
    assert ready(client, work) == 0


def test_messages_die_of_their_own_expiration(rig: Rig, client: RawAmqp) -> None:
    dead, letters = dead_letter_queue(rig, client)
    work = rig.name("work")
    table = Table([*letters, *arguments(("x-message-ttl", "I", 3_600_000))])
    client.ask(1, declare(work, table, exclusive=True), QueueDeclareOk)
    client.publish(1, work, b"m", properties=expiring("150"))
    found = next_of(client, dead, 2)
    assert death_of(found)["original-expiration"] == Field("S", "150")
    properties = decode_properties(found.properties)
    assert properties.expiration is None
    assert properties.table.find("x-last-death-reason") in {Field("S", "expired"), None}


def test_a_message_waits_behind_one_that_lives_longer(rig: Rig, client: RawAmqp) -> None:
    dead, letters = dead_letter_queue(rig, client)
    work = rig.name("work")
    client.ask(1, declare(work, letters, exclusive=True), QueueDeclareOk)
    client.publish(1, work, b"head")
    client.publish(1, work, b"behind", properties=expiring("1"))
    until_ready(client, work, 2)
    client.send(1, get(work))
    assert client.read_message().body == b"head"
    assert next_of(client, dead, 2).body == b"behind"


def test_a_ttl_of_0_delivers_at_once_or_never(rig: Rig, client: RawAmqp) -> None:
    work = rig.name("work")
    table = arguments(("x-message-ttl", "I", 0))
    client.ask(1, declare(work, table, exclusive=True), QueueDeclareOk)
    client.channel(3)
    client.ask(3, ConfirmSelect(nowait=False), ConfirmSelectOk)
    client.publish(3, work, b"nobody waits")
    assert client.read() == BasicAck(1, multiple=False)  # it is there, and its time is over
    client.send(1, get(work))
    assert isinstance(client.read(), BasicGetEmpty)
    client.channel(2)
    client.send(2, consume(work, "c"))
    assert client.read() == BasicConsumeOk("c")
    client.publish(1, work, b"now")
    assert client.read_message().body == b"now"


def test_retries_by_a_ttl_queue_go_round_and_are_counted(rig: Rig, client: RawAmqp) -> None:
    """Rejected, waiting in a queue with a TTL, and back: the usual retry, each time counted."""
    work, wait, name = rig.name("work"), rig.name("wait"), rig.name("dlx")
    client.ask(1, exchange(name), ExchangeDeclareOk)
    to_wait = arguments(
        ("x-dead-letter-exchange", "S", name), ("x-dead-letter-routing-key", "S", "wait")
    )
    to_work = arguments(
        ("x-dead-letter-exchange", "S", name),
        ("x-dead-letter-routing-key", "S", "work"),
        ("x-message-ttl", "I", 5),
    )
    client.ask(1, declare(work, to_wait, exclusive=True), QueueDeclareOk)
    client.ask(1, declare(wait, to_work, exclusive=True), QueueDeclareOk)
    client.ask(1, bind(work, name, "work"), QueueBindOk)
    client.ask(1, bind(wait, name, "wait"), QueueBindOk)
    client.publish(1, work, b"again")
    client.send(1, consume(work, "c"))
    assert client.read() == BasicConsumeOk("c")
    for tag in range(1, 41):
        found = client.read_message()
        if tag < 40:
            client.send(1, BasicReject(tag, requeue=False))
    deaths = decode_properties(found.properties).table.value("x-death")
    assert isinstance(deaths, tuple)
    tables = [one.value for one in deaths if isinstance(one, Field)]
    counts = {
        (one.value("queue"), one.value("reason")): one.value("count")
        for one in tables
        if isinstance(one, Table)
    }
    assert counts == {(work, "rejected"): 39, (wait, "expired"): 39}
    client.ask(1, ExchangeDelete(0, name, if_unused=False, nowait=False), ExchangeDeleteOk)


def test_a_circle_of_ttl_queues_ends(rig: Rig, client: RawAmqp) -> None:
    one, two = rig.name("one"), rig.name("two")
    for name, other in ((one, two), (two, one)):
        table = arguments(
            ("x-dead-letter-exchange", "S", ""),
            ("x-dead-letter-routing-key", "S", other),
            ("x-message-ttl", "I", 5),
        )
        client.ask(1, declare(name, table, exclusive=True), QueueDeclareOk)
    client.publish(1, one, b"round")
    until_ready(client, one, 0)
    until_ready(client, two, 0)
    until_ready(client, one, 0)


def test_a_full_queue_nacks_what_it_does_not_take(rig: Rig, client: RawAmqp) -> None:
    work = rig.name("work")
    table = arguments(("x-max-length", "I", 2), ("x-overflow", "S", "reject-publish"))
    client.ask(1, declare(work, table, exclusive=True), QueueDeclareOk)
    found = outcomes(client, work, [b"%d" % n for n in range(5)])
    assert found == {1: True, 2: True, 3: False, 4: False, 5: False}
    assert ready(client, work) == 2
    client.send(1, get(work, no_ack=True))
    assert client.read_message().body == b"0"


def test_a_full_queue_drops_in_silence_without_confirms(rig: Rig, client: RawAmqp) -> None:
    work = rig.name("work")
    table = arguments(("x-max-length", "I", 1), ("x-overflow", "S", "reject-publish"))
    client.ask(1, declare(work, table, exclusive=True), QueueDeclareOk)
    for number in range(4):
        client.publish(1, work, b"%d" % number)
    until_ready(client, work, 1)
    client.send(1, get(work, no_ack=True))
    assert client.read_message().body == b"0"
    client.send(1, get(work))
    assert isinstance(client.read(), BasicGetEmpty)


def test_the_other_queues_have_what_a_full_one_refuses(rig: Rig, client: RawAmqp) -> None:
    full, other, name = rig.name("full"), rig.name("other"), rig.name("fan")
    table = arguments(("x-max-length", "I", 1), ("x-overflow", "S", "reject-publish"))
    client.ask(1, exchange(name, "fanout"), ExchangeDeclareOk)
    client.ask(1, declare(full, table, exclusive=True), QueueDeclareOk)
    client.ask(1, declare(other, exclusive=True), QueueDeclareOk)
    client.ask(1, bind(full, name), QueueBindOk)
    client.ask(1, bind(other, name), QueueBindOk)
    client.channel(9)
    client.ask(9, ConfirmSelect(nowait=False), ConfirmSelectOk)
    client.publish(9, "", b"1", exchange=name)
    assert client.read() == BasicAck(1, multiple=False)
    client.publish(9, "", b"2", exchange=name)
    refused = client.read()
    assert isinstance(refused, BasicNack)
    assert refused.delivery_tag == 2
    assert (ready(client, full), ready(client, other)) == (1, 2)
    client.ask(1, ExchangeDelete(0, name, if_unused=False, nowait=False), ExchangeDeleteOk)


def test_what_a_full_queue_refuses_may_be_a_dead_letter(rig: Rig, client: RawAmqp) -> None:
    dead, letters = dead_letter_queue(rig, client)
    work = rig.name("work")
    limits = arguments(("x-max-length", "I", 1), ("x-overflow", "S", "reject-publish-dlx"))
    client.ask(1, declare(work, Table([*letters, *limits]), exclusive=True), QueueDeclareOk)
    assert outcomes(client, work, [b"1", b"2"]) == {1: True, 2: False}
    found = next_of(client, dead, 2)
    assert found.body == b"2"
    assert death_of(found)["reason"] == Field("S", "maxlen")
    assert ready(client, work) == 1


def test_bytes_of_a_queue_are_bounded(rig: Rig, client: RawAmqp) -> None:
    work = rig.name("work")
    table = arguments(("x-max-length-bytes", "I", 100), ("x-overflow", "S", "reject-publish"))
    client.ask(1, declare(work, table, exclusive=True), QueueDeclareOk)
    found = outcomes(client, work, [b"a" * 60, b"b" * 41, b"c" * 40, b"d"])
    assert found == {1: True, 2: False, 3: True, 4: False}


def test_the_oldest_go_above_the_bytes(rig: Rig, client: RawAmqp) -> None:
    work = rig.name("work")
    client.ask(
        1,
        declare(work, arguments(("x-max-length-bytes", "I", 30)), exclusive=True),
        QueueDeclareOk,
    )
    for letter in (b"a", b"b", b"c", b"d"):
        client.publish(1, work, letter * 10)
    until_ready(client, work, 3)
    client.send(1, get(work, no_ack=True))
    assert client.read_message().body == b"b" * 10


@OWN  # RabbitMQ publishes a part
def test_a_transaction_with_a_full_queue_is_refused(rig: Rig, client: RawAmqp) -> None:
    work = rig.name("work")
    table = arguments(("x-max-length", "I", 1), ("x-overflow", "S", "reject-publish"))
    client.ask(1, declare(work, table, exclusive=True), QueueDeclareOk)
    client.publish(1, work, b"full")
    until_ready(client, work, 1)
    client.channel(2)
    client.ask(2, TxSelect(), TxSelectOk)
    client.publish(2, work, b"more")
    assert client.fault(2, TxCommit()).startswith("channel 406 PRECONDITION_FAILED")
    assert ready(client, work) == 1


def test_an_unused_queue_is_deleted(rig: Rig, client: RawAmqp) -> None:
    work = rig.name("work")
    table = arguments(("x-expires", "I", 300))
    client.ask(1, declare(work, table), QueueDeclareOk)
    client.ask(1, ConfirmSelect(nowait=False), ConfirmSelectOk)
    deadline = time.monotonic() + WITHIN_S
    client.publish(1, work, b"", mandatory=True)
    while isinstance(client.read(), BasicAck):  # a publish is no use of the queue
        assert time.monotonic() < deadline
        client.publish(1, work, b"", mandatory=True)
    missing = rig.client().fault(1, declare(work, passive=True))
    assert missing.startswith("channel 404 NOT_FOUND")
