"""Messages from publish to acknowledgement: order, confirms, returns, redelivery, prefetch."""

import pytest

from adapters.amqp.v091.fields import EMPTY, Field, Table
from adapters.amqp.v091.methods.basic import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsumeOk,
    BasicDeliver,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicQos,
    BasicQosOk,
    BasicRecover,
    BasicRecoverOk,
    BasicReject,
    BasicReturn,
)
from adapters.amqp.v091.methods.channel import (
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
)
from adapters.amqp.v091.methods.confirm import ConfirmSelect, ConfirmSelectOk
from adapters.amqp.v091.methods.exchange import (
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
)
from adapters.amqp.v091.methods.queue import (
    QueueBindOk,
    QueueDeclareOk,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    QueueUnbind,
    QueueUnbindOk,
)
from adapters.amqp.v091.methods.tx import (
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)
from adapters.amqp.v091.properties import Properties, decode_properties, encode_properties
from tests.adapters.amqp.conformance.conftest import Rig
from tests.adapters.amqp.conformance.methods import (
    bind,
    consume,
    declare,
    delete,
    exchange,
    get,
    table,
)
from tests.support.amqp_raw import Message, RawAmqp


@pytest.fixture
def client(rig: Rig) -> RawAmqp:
    return rig.client()


@pytest.fixture
def queue(rig: Rig, client: RawAmqp) -> str:
    """Name of a queue that ends with the client."""
    name = rig.name()
    client.ask(1, declare(name, exclusive=True), QueueDeclareOk)
    return name


def confirmed(client: RawAmqp, *publishes: tuple[str, bytes]) -> None:
    """Publish by the default exchange, and wait for the confirms."""
    client.ask(9, ChannelOpen(), ChannelOpenOk)
    client.ask(9, ConfirmSelect(nowait=False), ConfirmSelectOk)
    for key, body in publishes:
        client.publish(9, key, body)
    acked = 0
    while acked < len(publishes):
        answer = client.read()
        assert isinstance(answer, BasicAck)
        acked = max(acked, answer.delivery_tag)
    client.ask(9, ChannelClose(200, "", 0, 0), ChannelCloseOk)


def got(client: RawAmqp, queue: str, *, no_ack: bool = False) -> Message:
    client.send(1, get(queue, no_ack=no_ack))
    return client.read_message()


def ready(client: RawAmqp, queue: str) -> int:
    return client.ask(1, declare(queue, passive=True), QueueDeclareOk).message_count


def test_get_returns_messages_in_order_with_the_count_that_is_left(
    client: RawAmqp, queue: str
) -> None:
    confirmed(client, (queue, b"1"), (queue, b"2"), (queue, b""))
    found = [got(client, queue) for _ in range(3)]
    assert [one.body for one in found] == [b"1", b"2", b""]
    methods = [one.method for one in found]
    assert methods == [
        BasicGetOk(1, False, "", queue, 2),  # noqa: FBT003
        BasicGetOk(2, False, "", queue, 1),  # noqa: FBT003
        BasicGetOk(3, False, "", queue, 0),  # noqa: FBT003
    ]
    client.ask(1, get(queue), BasicGetEmpty)


def test_properties_come_back_byte_for_byte(client: RawAmqp, queue: str) -> None:
    headers = Table(
        [
            ("text", Field("S", "words")),
            ("bytes", Field("x", b"\xff\x00")),
            ("int", Field("I", -5)),
            ("long", Field("l", 1 << 40)),
            ("flag", Field("t", value=True)),
            ("nothing", Field("V", None)),
            ("inner", Field("F", Table([("a", Field("A", (Field("d", 1.5),)))]))),
            ("when", Field("T", 1_700_000_000)),
        ]
    )
    properties = encode_properties(
        Properties(
            "text/plain",
            "gzip",
            headers,
            2,
            7,
            "correlation",
            "answers",
            "60000",
            "id-1",
            1_700_000_000,
            "kind",
            "guest",
            "app",
        )
    )
    client.publish(1, queue, b"body", properties=properties)
    confirmed(client, (queue, b"next"))
    assert got(client, queue).properties == properties


@pytest.mark.parametrize("mode", [None, 1, 2])
def test_plain_properties_come_back(client: RawAmqp, queue: str, mode: int | None) -> None:
    table_ = Table([("one", Field("S", "1")), ("two", Field("S", "2"))])
    properties = encode_properties(Properties(delivery_mode=mode, headers=table_))
    client.publish(1, queue, b"body", properties=properties)
    confirmed(client, (queue, b"next"))
    assert got(client, queue).properties == properties


def test_a_large_body_is_cut_into_frames(client: RawAmqp, queue: str) -> None:
    body = bytes(range(256)) * 4_000
    client.publish(1, queue, body)
    client.send(1, consume(queue, "c", no_ack=True))
    assert client.read() == BasicConsumeOk("c")
    assert client.read_message().body == body


def test_consume_ok_comes_before_the_first_delivery(client: RawAmqp, queue: str) -> None:
    confirmed(client, *[(queue, b"%d" % n) for n in range(5)])
    client.send(1, consume(queue, "c"))
    assert client.read() == BasicConsumeOk("c")
    found = [client.read_message() for _ in range(5)]
    assert [one.method for one in found] == [
        BasicDeliver("c", tag, False, "", queue)  # noqa: FBT003
        for tag in range(1, 6)
    ]
    assert [one.body for one in found] == [b"0", b"1", b"2", b"3", b"4"]


def test_prefetch_bounds_what_is_not_acknowledged(client: RawAmqp, queue: str) -> None:
    confirmed(client, *[(queue, b"%d" % n) for n in range(5)])
    client.ask(1, BasicQos(0, 2, global_=False), BasicQosOk)
    client.send(1, consume(queue, "c"))
    assert client.read() == BasicConsumeOk("c")
    assert [client.read_message().body for _ in range(2)] == [b"0", b"1"]
    assert ready(client, queue) == 3
    client.send(1, BasicAck(1, multiple=False))
    assert client.read_message().body == b"2"
    client.send(1, BasicAck(3, multiple=True))
    assert [client.read_message().body for _ in range(2)] == [b"3", b"4"]


def test_a_requeued_message_comes_back_to_its_place(client: RawAmqp, queue: str) -> None:
    confirmed(client, *[(queue, b"%d" % n) for n in range(3)])
    assert [got(client, queue).body for _ in range(2)] == [b"0", b"1"]
    client.send(1, BasicNack(2, multiple=True, requeue=True))
    again = [got(client, queue) for _ in range(3)]
    assert [one.body for one in again] == [b"0", b"1", b"2"]
    redelivered = [getattr(one.method, "redelivered", None) for one in again]
    assert redelivered == [True, True, False]


def test_a_rejected_message_is_gone(client: RawAmqp, queue: str) -> None:
    confirmed(client, (queue, b"0"), (queue, b"1"))
    got(client, queue)
    client.send(1, BasicReject(1, requeue=False))
    assert got(client, queue).body == b"1"
    client.ask(1, get(queue), BasicGetEmpty)


def test_recover_requeues_all_of_the_channel(client: RawAmqp, queue: str) -> None:
    confirmed(client, (queue, b"0"), (queue, b"1"))
    got(client, queue)
    got(client, queue)
    client.ask(1, BasicRecover(requeue=True), BasicRecoverOk)
    assert [got(client, queue).body for _ in range(2)] == [b"0", b"1"]


def test_a_closed_channel_requeues_what_it_had(client: RawAmqp, queue: str) -> None:
    confirmed(client, (queue, b"0"))
    client.channel(2)
    client.send(2, get(queue))
    client.read_message()
    client.ask(2, ChannelClose(200, "", 0, 0), ChannelCloseOk)
    assert got(client, queue).body == b"0"


def test_a_lost_connection_requeues_what_it_had(rig: Rig, client: RawAmqp) -> None:
    name = rig.name()
    client.ask(1, declare(name), QueueDeclareOk)
    confirmed(client, (name, b"0"))
    other = rig.client()
    got(other, name)
    other.close()
    client.send(1, consume(name, "c"))
    assert client.read() == BasicConsumeOk("c")
    again = client.read_message()
    assert again.body == b"0"
    assert getattr(again.method, "redelivered", None) is True
    client.send(1, BasicAck(1, multiple=False))
    client.ask(1, delete(name), QueueDeleteOk)


def test_an_unroutable_message_is_returned_before_its_confirm(client: RawAmqp) -> None:
    client.ask(1, ConfirmSelect(nowait=False), ConfirmSelectOk)
    client.publish(1, "nobody", b"lost", mandatory=True)
    found = client.read_message()
    assert found.method == BasicReturn(312, "NO_ROUTE", "", "nobody")
    assert found.body == b"lost"
    assert client.read() == BasicAck(1, multiple=False)
    client.publish(1, "nobody", b"lost")
    assert client.read() == BasicAck(2, multiple=False)


def test_cancel_ok_comes_after_the_last_delivery(client: RawAmqp, queue: str) -> None:
    confirmed(client, (queue, b"0"))
    client.send(1, consume(queue, "c"))
    assert client.read() == BasicConsumeOk("c")
    client.read_message()
    client.ask(1, BasicCancel("c", nowait=False), BasicCancelOk)
    confirmed(client, (queue, b"1"))
    assert ready(client, queue) == 1
    client.send(1, BasicAck(1, multiple=False))
    assert got(client, queue).body == b"1"


def test_purge_leaves_what_is_in_flight(client: RawAmqp, queue: str) -> None:
    confirmed(client, *[(queue, b"%d" % n) for n in range(3)])
    got(client, queue)
    assert client.ask(1, QueuePurge(0, queue, nowait=False), QueuePurgeOk).message_count == 2
    client.send(1, BasicReject(1, requeue=True))
    assert got(client, queue).body == b"0"


# --- exchanges


@pytest.mark.parametrize(
    ("kind", "binding_key", "binding_arguments", "key", "headers"),
    [
        ("direct", "k", EMPTY, "k", EMPTY),
        ("fanout", "", EMPTY, "anything", EMPTY),
        ("topic", "a.*.#", EMPTY, "a.b.c.d", EMPTY),
        ("headers", "", table("n", "I", 5), "", table("n", "l", 5)),
    ],
)
def test_an_exchange_routes(  # noqa: PLR0917 - one row of the table
    rig: Rig,
    client: RawAmqp,
    queue: str,
    kind: str,
    binding_key: str,
    binding_arguments: Table,
    key: str,
    headers: Table,
) -> None:
    name = rig.name("ex")
    client.ask(1, exchange(name, kind), ExchangeDeclareOk)
    client.ask(1, bind(queue, name, binding_key, binding_arguments), QueueBindOk)
    properties = encode_properties(Properties(headers=headers or None))
    client.publish(1, key, b"routed", exchange=name, properties=properties)
    confirmed(client, (queue, b"direct"))
    first = got(client, queue)
    assert first.body == b"routed"
    assert isinstance(first.method, BasicGetOk)
    assert (first.method.exchange, first.method.routing_key) == (name, key)
    assert got(client, queue).method == BasicGetOk(2, False, "", queue, 0)  # noqa: FBT003
    unbind = QueueUnbind(0, queue, name, binding_key, binding_arguments)
    client.ask(1, unbind, QueueUnbindOk)
    client.ask(1, unbind, QueueUnbindOk)
    client.ask(1, ExchangeDelete(0, name, if_unused=True, nowait=False), ExchangeDeleteOk)


def test_a_message_comes_once_whatever_its_ways(rig: Rig, client: RawAmqp, queue: str) -> None:
    """Two bindings, an exchange behind an exchange, and a CC header: one delivery."""
    first, second = rig.name("one"), rig.name("two")
    for name in (first, second):
        client.ask(1, exchange(name, "fanout"), ExchangeDeclareOk)
        client.ask(1, bind(queue, name, "x"), QueueBindOk)
        client.ask(1, bind(queue, name, "y"), QueueBindOk)
    client.ask(
        1, ExchangeBind(0, second, first, "", nowait=False, arguments=EMPTY), ExchangeBindOk
    )
    cc = table("CC", "A", (Field("S", "more"),))
    properties = encode_properties(Properties(headers=cc))
    client.publish(1, "k", b"once", exchange=first, properties=properties)
    confirmed(client, (queue, b"end"))
    assert [got(client, queue).body for _ in range(2)] == [b"once", b"end"]
    for name in (first, second):
        client.ask(1, ExchangeDelete(0, name, if_unused=False, nowait=False), ExchangeDeleteOk)


def test_bcc_is_taken_out_and_cc_stays(rig: Rig, client: RawAmqp, queue: str) -> None:
    other = rig.name("other")
    client.ask(1, declare(other, exclusive=True), QueueDeclareOk)
    headers = Table(
        [("BCC", Field("A", (Field("S", other),))), ("CC", Field("A", (Field("S", other),)))]
    )
    client.publish(1, queue, b"x", properties=encode_properties(Properties(headers=headers)))
    confirmed(client, (queue, b"end"))
    for name in (queue, other):
        found = got(client, name)
        shown = decode_properties(found.properties).table
        assert [key for key, _ in shown] == ["CC"]
        assert isinstance(found.method, BasicGetOk)
        assert found.method.routing_key == queue


# --- transactions


def test_a_transaction_takes_effect_at_its_commit(client: RawAmqp, queue: str) -> None:
    confirmed(client, (queue, b"first"))
    client.ask(1, TxSelect(), TxSelectOk)
    got(client, queue)
    client.publish(1, queue, b"second")
    client.send(1, BasicAck(1, multiple=False))
    assert ready(client, queue) == 0
    client.ask(1, TxCommit(), TxCommitOk)
    assert ready(client, queue) == 1
    assert got(client, queue).body == b"second"


def test_a_rollback_forgets_publishes_and_acknowledgements(client: RawAmqp, queue: str) -> None:
    confirmed(client, (queue, b"first"))
    client.ask(1, TxSelect(), TxSelectOk)
    got(client, queue)
    client.publish(1, queue, b"second")
    client.send(1, BasicAck(1, multiple=False))
    client.ask(1, TxRollback(), TxRollbackOk)
    assert ready(client, queue) == 0
    client.send(1, BasicReject(1, requeue=True))
    client.ask(1, TxCommit(), TxCommitOk)
    assert got(client, queue).body == b"first"
    client.ask(1, get(queue), BasicGetEmpty)


# --- queues


def test_an_exclusive_queue_ends_with_its_connection(rig: Rig) -> None:
    name = rig.name()
    owner = rig.client()
    owner.ask(1, declare(name, exclusive=True), QueueDeclareOk)
    owner.close()
    again = rig.client()
    for _ in range(100):
        again.send(1, declare(name, exclusive=True))
        answer = again.read()
        if isinstance(answer, QueueDeclareOk):
            return
        again.send(1, ChannelCloseOk())
        again.channel(1)
    raise AssertionError(answer)


def test_an_auto_delete_queue_goes_with_its_last_consumer(rig: Rig, client: RawAmqp) -> None:
    name = rig.name()
    client.ask(1, declare(name, auto_delete=True), QueueDeclareOk)
    client.send(1, consume(name, "c"))
    assert client.read() == BasicConsumeOk("c")
    client.ask(1, BasicCancel("c", nowait=False), BasicCancelOk)
    assert "404" in client.fault(1, declare(name, passive=True))


def test_names_are_made_up(client: RawAmqp) -> None:
    name = client.ask(1, declare("", exclusive=True), QueueDeclareOk).queue
    assert name.startswith("amq.gen-")
    client.send(1, consume(name))
    tag = client.read()
    assert isinstance(tag, BasicConsumeOk)
    assert tag.consumer_tag.startswith("amq.ctag-")


@pytest.mark.parametrize("name", ["with space", "a/b/c", "ümläut", "x" * 255])
def test_any_name_will_do(rig: Rig, client: RawAmqp, name: str) -> None:
    name = f"{name}{rig.stem}"[-255:]
    client.ask(1, declare(name, exclusive=True), QueueDeclareOk)
    confirmed(client, (name, b"there"))
    found = got(client, name)
    assert found.body == b"there"
    assert isinstance(found.method, BasicGetOk)
    assert found.method.routing_key == name


def test_deleting_returns_the_count_and_cancels_consumers(rig: Rig) -> None:
    name = rig.name()
    capabilities = table(
        "capabilities", "F", Table([("consumer_cancel_notify", Field("t", value=True))])
    )
    client = rig.raw().open(properties=capabilities)
    client.channel(1)
    client.ask(1, declare(name), QueueDeclareOk)
    client.ask(1, BasicQos(0, 1, global_=False), BasicQosOk)
    client.send(1, consume(name, "c"))
    assert client.read() == BasicConsumeOk("c")
    client.channel(2)
    client.send(2, delete(name))
    found = [client.read(), client.read()]
    assert BasicCancel("c", nowait=True) in found
    assert QueueDeleteOk(0) in found
