"""Streams: consumers that read from a position, and take nothing out."""

from collections.abc import Iterator

import pytest

from adapters.amqp.v091.fields import EMPTY, Field, Table
from adapters.amqp.v091.methods.basic import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicNack,
    BasicQos,
    BasicQosOk,
)
from adapters.amqp.v091.methods.channel import ChannelCloseOk
from adapters.amqp.v091.methods.confirm import ConfirmSelect, ConfirmSelectOk
from adapters.amqp.v091.methods.queue import (
    QueueBindOk,
    QueueDeclareOk,
    QueueDeleteOk,
    QueuePurge,
)
from adapters.amqp.v091.properties import Properties, decode_properties, encode_properties
from tests.adapters.amqp.conformance.conftest import Rig
from tests.adapters.amqp.conformance.methods import (
    bind,
    consume,
    declare,
    delete,
    get,
    table,
)
from tests.support.amqp_raw import Message, RawAmqp
from tests.support.amqp_target import NEWER, OWN

STREAM = table("x-queue-type", "S", "stream")
FAILED = "channel 406 PRECONDITION_FAILED - "


@pytest.fixture
def client(rig: Rig) -> RawAmqp:
    client = rig.raw().open(properties=_telling())
    client.channel(1)
    return client


@pytest.fixture
def stream(rig: Rig, client: RawAmqp) -> Iterator[str]:
    """Name of a stream, deleted at the end."""
    name = rig.name("stream")
    client.ask(1, declare(name, STREAM), QueueDeclareOk)
    yield name
    last = rig.client()
    last.ask(1, delete(name), QueueDeleteOk)


def _telling() -> Table:
    capabilities = Table([("consumer_cancel_notify", Field("t", value=True))])
    return Table([("capabilities", Field("F", capabilities))])


def publish(rig: Rig, stream: str, *bodies: bytes, values: tuple[str, ...] = ()) -> None:
    """Publish, each with a filter value where there are any, and wait for the confirms."""
    publisher = rig.client()
    publisher.ask(1, ConfirmSelect(nowait=False), ConfirmSelectOk)
    for index, body in enumerate(bodies):
        headers = table("x-stream-filter-value", "S", values[index]) if values else EMPTY
        properties = encode_properties(Properties(headers=headers)) if headers else b"\0\0"
        publisher.publish(1, stream, body, properties=properties)
    acked = 0
    while acked < len(bodies):
        answer = publisher.read()
        assert isinstance(answer, BasicAck)
        acked = max(acked, answer.delivery_tag)
    publisher.close()


def begin(
    client: RawAmqp,
    stream: str,
    offset: Field | None = None,
    *,
    prefetch: int = 100,
    **more: Field,
) -> None:
    """Start a consumer."""
    client.ask(1, BasicQos(0, prefetch, global_=False), BasicQosOk)
    pairs = [(f"x-stream-{name.replace('_', '-')}", field) for name, field in more.items()]
    if offset is not None:
        pairs.append(("x-stream-offset", offset))
    method = BasicConsume(
        0,
        stream,
        "c",
        no_local=False,
        no_ack=False,
        exclusive=False,
        nowait=False,
        arguments=Table(pairs),
    )
    client.ask(1, method, BasicConsumeOk)


def bodies(client: RawAmqp, count: int) -> list[bytes]:
    return [client.read_message().body for _ in range(count)]


def offset_of(message: Message) -> object:
    return decode_properties(message.properties).table.value("x-stream-offset")


def is_quiet(client: RawAmqp) -> bool:
    """Say whether nothing comes before the answer to a method."""
    client.send(1, BasicQos(0, 100, global_=False))
    return isinstance(client.read(), BasicQosOk)


def test_every_consumer_reads_from_the_start(rig: Rig, stream: str) -> None:
    publish(rig, stream, b"0", b"1", b"2")
    for _ in range(2):
        client = rig.client()
        begin(client, stream, Field("S", "first"))
        messages = [client.read_message() for _ in range(3)]
        assert [one.body for one in messages] == [b"0", b"1", b"2"]
        assert [offset_of(one) for one in messages] == [0, 1, 2]
        methods = [one.method for one in messages]
        assert methods == [BasicDeliver("c", tag, False, "", stream) for tag in (1, 2, 3)]  # noqa: FBT003


def test_without_an_offset_only_new_messages_come(
    rig: Rig, client: RawAmqp, stream: str
) -> None:
    publish(rig, stream, b"old")
    begin(client, stream)
    publish(rig, stream, b"new")
    assert bodies(client, 1) == [b"new"]


def test_consumer_begins_at_an_offset(rig: Rig, client: RawAmqp, stream: str) -> None:
    publish(rig, stream, *(b"%d" % number for number in range(10)))
    begin(client, stream, Field("l", 7))
    assert bodies(client, 3) == [b"7", b"8", b"9"]


def test_offset_that_is_not_there_yet(rig: Rig, client: RawAmqp, stream: str) -> None:
    publish(rig, stream, b"0")
    begin(client, stream, Field("l", 2))
    publish(rig, stream, b"1", b"2", b"3")
    assert bodies(client, 2) == [b"2", b"3"]


@pytest.mark.parametrize("offset", [Field("T", 1), Field("S", "1h"), Field("S", "last")])
def test_consumer_begins_at_a_time_or_at_the_last_batch(
    rig: Rig, client: RawAmqp, stream: str, offset: Field
) -> None:
    publish(rig, stream, b"only")
    begin(client, stream, offset)
    assert bodies(client, 1) == [b"only"]


def test_time_in_the_future(rig: Rig, client: RawAmqp, stream: str) -> None:
    publish(rig, stream, b"old")
    begin(client, stream, Field("T", 1 << 33))
    assert is_quiet(client)
    publish(rig, stream, b"new")
    assert bodies(client, 1) == [b"new"]


@NEWER  # 3.10 delivers all of a batch once it has credit for one message
@pytest.mark.parametrize("settle", ["ack", "nack"])
def test_settling_gives_credit_and_keeps_the_messages(
    rig: Rig, client: RawAmqp, stream: str, settle: str
) -> None:
    publish(rig, stream, *(b"%d" % number for number in range(5)))
    begin(client, stream, Field("S", "first"), prefetch=2)
    assert bodies(client, 2) == [b"0", b"1"]
    assert is_quiet(client)
    if settle == "ack":
        client.send(1, BasicAck(2, multiple=True))
    else:
        client.send(1, BasicNack(2, multiple=True, requeue=True))
    assert bodies(client, 2) == [b"2", b"3"]
    client.ask(1, BasicCancel("c", nowait=False), BasicCancelOk)
    begin(client, stream, Field("S", "first"))
    assert bodies(client, 5) == [b"0", b"1", b"2", b"3", b"4"]


def test_properties_and_routing_key_come_with_the_offset(client: RawAmqp, stream: str) -> None:
    client.ask(1, bind(stream, "amq.topic", f"{stream}.#"), QueueBindOk)
    headers = Table([("n", Field("I", 5)), ("x-stream-offset", Field("S", "mine"))])
    properties = Properties(content_type="a/b", headers=headers, message_id="m", priority=3)
    data = encode_properties(properties)
    client.publish(1, f"{stream}.k", b"body", exchange="amq.topic", properties=data)
    begin(client, stream, Field("S", "first"))
    found = client.read_message()
    method = found.method
    assert isinstance(method, BasicDeliver)
    assert (method.exchange, method.routing_key) == ("amq.topic", f"{stream}.k")
    shown = decode_properties(found.properties)
    assert shown.table.find("n") == Field("I", 5)
    assert shown.table.find("x-stream-offset") == Field("l", 0)
    assert shown._replace(headers=None) == properties._replace(headers=None)


@NEWER
def test_filter_takes_messages_by_their_value(rig: Rig, client: RawAmqp, stream: str) -> None:
    values = ("a", "b", "a", "c")
    publish(rig, stream, b"0", b"1", b"2", b"3", values=values)
    publish(rig, stream, b"4")
    wanted = Field("A", (Field("S", "a"), Field("S", "c")))
    begin(client, stream, Field("S", "first"), filter=wanted)
    assert bodies(client, 3) == [b"0", b"2", b"3"]
    assert is_quiet(client)
    other = rig.client()
    begin(
        other,
        stream,
        Field("S", "first"),
        filter=Field("S", "b"),
        match_unfiltered=Field("t", value=True),
    )
    assert bodies(other, 2) == [b"1", b"4"]


def test_deletion_ends_consumers(rig: Rig, client: RawAmqp, stream: str) -> None:
    begin(client, stream)
    rig.client().ask(1, delete(stream), QueueDeleteOk)
    assert client.read() == BasicCancel("c", nowait=True)


def test_count_of_a_stream(rig: Rig, client: RawAmqp, stream: str) -> None:
    assert client.ask(1, declare(stream, STREAM), QueueDeclareOk).message_count == 0
    publish(rig, stream, b"0", b"1")
    begin(client, stream)
    found = client.ask(1, declare(stream, passive=True), QueueDeclareOk)
    assert found.consumer_count == 0


def test_channel_without_a_prefetch(client: RawAmqp, stream: str) -> None:
    found = client.fault(1, consume(stream))
    assert found.startswith(FAILED + "consumer prefetch count is not set for ")
    assert found.endswith("(60,20)")


def test_consumer_without_acknowledgements(client: RawAmqp, stream: str) -> None:
    client.ask(1, BasicQos(0, 1, global_=False), BasicQosOk)
    found = client.fault(1, consume(stream, no_ack=True))
    assert found.startswith(
        "connection 540 NOT_IMPLEMENTED - automatic acknowledgement not supported by stream "
    )


def test_prefetch_of_the_channel(client: RawAmqp, stream: str) -> None:
    client.ask(1, BasicQos(0, 1, global_=False), BasicQosOk)
    client.ask(1, BasicQos(0, 5, global_=True), BasicQosOk)
    assert client.fault(1, consume(stream)) == (
        f"connection 540 NOT_IMPLEMENTED - queue '{stream}' in vhost '/' does not support "
        "global qos (60,20)"
    )


def test_get_from_a_stream(client: RawAmqp, stream: str) -> None:
    assert client.fault(1, get(stream)) == (
        "connection 540 NOT_IMPLEMENTED - basic.get not supported by stream queues "
        f"queue '{stream}' in vhost '/' (60,70)"
    )


def test_purge_of_a_stream(client: RawAmqp, stream: str) -> None:
    found = client.fault(1, QueuePurge(0, stream, nowait=False))
    assert found.startswith("connection 540 NOT_IMPLEMENTED - queue.purge not supported by ")


@OWN
def test_offset_that_is_none(client: RawAmqp, stream: str) -> None:
    client.ask(1, BasicQos(0, 1, global_=False), BasicQosOk)
    arguments = table("x-stream-offset", "S", "yesterday")
    method = BasicConsume(
        0,
        stream,
        "c",
        no_local=False,
        no_ack=False,
        exclusive=False,
        nowait=False,
        arguments=arguments,
    )
    assert client.fault(1, method) == (
        FAILED + "invalid arg 'x-stream-offset' for consumer: {invalid_offset_arg,yesterday} "
        "(60,20)"
    )


@pytest.mark.parametrize("kind", ["quorum", "stream"])
@pytest.mark.parametrize(
    ("flag", "value", "property_name"),
    [
        ("durable", False, "non-durable"),
        ("exclusive", True, "exclusive-owner"),
        ("auto_delete", True, "auto-delete"),
    ],
)
def test_flags_that_a_replicated_queue_has_not(  # noqa: PLR0917 - one for each column
    rig: Rig,
    client: RawAmqp,
    kind: str,
    flag: str,
    value: bool,  # noqa: FBT001
    property_name: str,
) -> None:
    name = rig.name()
    method = declare(name, table("x-queue-type", "S", kind), **{flag: value})
    assert client.fault(1, method) == (
        FAILED + f"invalid property '{property_name}' for queue '{name}' in vhost '/' (50,10)"
    )


@pytest.mark.parametrize(
    ("name", "field", "text"),
    [
        pytest.param(
            "x-max-age",
            Field("S", "week"),
            "invalid arg 'x-max-age' for R: invalid_max_age",
            marks=OWN,  # RabbitMQ fails with 541
        ),
        ("x-max-age", Field("S", "0D"), "invalid arg 'x-max-age' for R: invalid_max_age"),
        (
            "x-stream-max-segment-size-bytes",
            Field("l", 3_000_000_001),
            "Exceeded max value for x-stream-max-segment-size-bytes",
        ),
    ],
)
def test_arguments_that_no_stream_has(
    rig: Rig, client: RawAmqp, name: str, field: Field, text: str
) -> None:
    queue = rig.name()
    found = client.fault(1, declare(queue, Table([*STREAM, (name, field)])))
    resource = f"queue '{queue}' in vhost '/'"
    assert found == FAILED + text.replace("R:", f"{resource}:") + " (50,10)"


def test_stream_is_declared_differently(client: RawAmqp, stream: str) -> None:
    other = Table([*STREAM, ("x-max-age", Field("S", "7D"))])
    assert client.fault(1, declare(stream, other)) == (
        FAILED
        + f"inequivalent arg 'x-max-age' for queue '{stream}' in vhost '/': received the "
        "value '7D' of type 'longstr' but current is none (50,10)"
    )
    client.send(1, ChannelCloseOk())
    client.channel(1)
    client.ask(1, declare(stream, STREAM), QueueDeclareOk)
