"""Faults of clients get RabbitMQ's code, text and culprit, on the channel or the connection."""

from collections.abc import Callable

import pytest

from adapters.amqp.queue_arguments import NOT_SERVED
from adapters.amqp.v091.fields import EMPTY, Table
from adapters.amqp.v091.framing import encode_frame, encode_method_frame
from adapters.amqp.v091.methods.basic import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsumeOk,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicRecover,
    BasicReject,
)
from adapters.amqp.v091.methods.channel import ChannelCloseOk, ChannelFlow, ChannelOpen
from adapters.amqp.v091.methods.confirm import ConfirmSelect, ConfirmSelectOk
from adapters.amqp.v091.methods.exchange import (
    ExchangeBind,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
)
from adapters.amqp.v091.methods.model import Method
from adapters.amqp.v091.methods.queue import (
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
    QueueDeleteOk,
    QueuePurge,
)
from adapters.amqp.v091.methods.tx import TxCommit, TxSelect, TxSelectOk
from adapters.amqp.v091.properties import Properties, encode_properties
from tests.adapters.amqp.conformance.conftest import Rig
from tests.adapters.amqp.conformance.methods import (
    consume,
    declare,
    delete,
    exchange,
    table,
)
from tests.support.amqp_target import NEWER, OWN

QUORUM = table("x-queue-type", "S", "quorum")
NO_QUEUE = "channel 404 NOT_FOUND - no queue 'nope' in vhost '/' "
REFUSED = "channel 403 ACCESS_REFUSED - "
FAILED = "channel 406 PRECONDITION_FAILED - "
NO_EXCHANGE = "channel 404 NOT_FOUND - no exchange 'nope' in vhost '/' "

ONE_METHOD: list[tuple[Method, str]] = [
    (declare("nope", passive=True), NO_QUEUE + "(50,10)"),
    (
        declare("amq.mine"),
        REFUSED + "queue name 'amq.mine' contains reserved prefix 'amq.*' (50,10)",
    ),
    (exchange("nope", passive=True), NO_EXCHANGE + "(40,10)"),
    (
        exchange("amq.mine"),
        REFUSED + "exchange name 'amq.mine' contains reserved prefix 'amq.*' (40,10)",
    ),
    (
        exchange(""),
        REFUSED + "operation not permitted on the default exchange (40,10)",
    ),
    (
        ExchangeDelete(0, "amq.topic", if_unused=False, nowait=False),
        REFUSED + "deletion of system exchange 'amq.topic' in vhost '/' not allowed (40,20)",
    ),
    (
        ExchangeBind(0, "amq.topic", "nope", "k", nowait=False, arguments=EMPTY),
        NO_EXCHANGE + "(40,30)",
    ),
    (
        QueueBind(0, "nope", "amq.topic", "k", nowait=False, arguments=EMPTY),
        NO_QUEUE + "(50,20)",
    ),
    (
        QueueBind(0, "", "amq.topic", "k", nowait=False, arguments=EMPTY),
        "channel 404 NOT_FOUND - no previously declared queue (50,20)",
    ),
    (QueuePurge(0, "nope", nowait=False), NO_QUEUE + "(50,30)"),
    (consume("nope"), NO_QUEUE + "(60,20)"),
    (
        BasicAck(1, multiple=False),
        FAILED + "unknown delivery tag 1 (60,80)",
    ),
    (
        BasicNack(7, multiple=True, requeue=True),
        FAILED + "unknown delivery tag 7 (60,120)",
    ),
    (
        BasicReject(7, requeue=True),
        FAILED + "unknown delivery tag 7 (60,90)",
    ),
    (
        BasicQos(1, 1, global_=False),
        "connection 540 NOT_IMPLEMENTED - prefetch_size!=0 (1) (60,10)",
    ),
    (BasicRecover(requeue=False), "connection 540 NOT_IMPLEMENTED - requeue=false (60,110)"),
    (ChannelFlow(active=False), "connection 540 NOT_IMPLEMENTED - active=false (20,20)"),
    (
        ChannelOpen(),
        "connection 504 CHANNEL_ERROR - second 'channel.open' seen (20,10)",
    ),
    (
        TxCommit(),
        FAILED + "channel is not transactional (90,20)",
    ),
]


@pytest.mark.parametrize(("method", "expected"), ONE_METHOD, ids=lambda one: str(one)[:50])
def test_one_method_at_fault(rig: Rig, method: Method, expected: str) -> None:
    assert rig.client().fault(1, method) == expected


@NEWER
def test_an_unknown_type_of_exchange(rig: Rig) -> None:
    """3.10 closes the connection with 503 instead."""
    assert rig.client().fault(1, exchange(rig.name(), "foo")) == (
        FAILED + "unknown exchange type 'foo' (40,10)"
    )


INEQUIVALENT: list[tuple[QueueDeclare, QueueDeclare, str]] = [
    (
        declare("Q"),
        declare("Q", durable=False),
        "'durable' for R: received 'false' but current is 'true'",
    ),
    (
        declare("Q"),
        declare("Q", auto_delete=True),
        "'auto_delete' for R: received 'true' but current is 'false'",
    ),
    (
        declare("Q", table("x-queue-version", "I", 2)),
        declare("Q"),
        "'x-queue-version' for R: received none but current is the value '2' of type 'signedint'",
    ),
    (
        declare("Q"),
        declare("Q", table("x-queue-version", "l", 2)),
        "'x-queue-version' for R: received the value '2' of type 'long' but current is none",
    ),
    (
        declare("Q", table("x-queue-version", "I", 2)),
        declare("Q", table("x-queue-version", "l", 1)),
        "'x-queue-version' for R: received '1' but current is '2'",
    ),
    (
        declare("Q", table("x-message-ttl", "I", 1_000)),
        declare("Q", table("x-message-ttl", "l", 2_000)),
        "'x-message-ttl' for R: received '2000' but current is '1000'",
    ),
    (
        declare("Q", table("x-expires", "I", 60_000)),
        declare("Q"),
        "'x-expires' for R: received none but current is the value '60000' of type 'signedint'",
    ),
    (
        declare("Q", table("x-overflow", "S", "reject-publish")),
        declare("Q", table("x-overflow", "S", "drop-head")),
        "'x-overflow' for R: received 'drop-head' but current is 'reject-publish'",
    ),
    (
        declare("Q"),
        declare("Q", table("x-max-length-bytes", "l", 5)),
        "'x-max-length-bytes' for R: received the value '5' of type 'long' but current is none",
    ),
]


@pytest.mark.parametrize(("first", "second", "expected"), INEQUIVALENT)
def test_a_queue_is_declared_differently(
    rig: Rig, first: QueueDeclare, second: QueueDeclare, expected: str
) -> None:
    name = rig.name()
    client = rig.client()
    client.ask(1, _named(first, name), QueueDeclareOk)
    resource = f"queue '{name}' in vhost '/'"
    wrong = expected.replace("for R:", f"for {resource}:")
    assert client.fault(1, _named(second, name)) == (
        FAILED + f"inequivalent arg {wrong} (50,10)"
    )
    client.send(1, ChannelCloseOk())
    client.channel(1)
    client.ask(1, delete(name), QueueDeleteOk)


def _named(method: QueueDeclare, name: str) -> QueueDeclare:
    return QueueDeclare(
        0,
        name,
        method.passive,
        method.durable,
        method.exclusive,
        method.auto_delete,
        method.nowait,
        method.arguments,
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (table("x-message-ttl", "I", -1), "'x-message-ttl' for R: {value_negative,-1}"),
        (table("x-expires", "I", 0), "'x-expires' for R: {value_zero,0}"),
        (table("x-max-priority", "I", 256), "'x-max-priority' for R: {max_value_exceeded,256}"),
        (
            table("x-dead-letter-routing-key", "S", "k"),
            "'x-dead-letter-routing-key' for R: routing_key_but_no_dlx_defined",
        ),
        (table("x-overflow", "S", "foo"), "'x-overflow' for R: invalid_overflow"),
        (
            table("x-message-ttl", "S", "1"),
            "'x-message-ttl' for R: \"expected integer, got longstr\"",
        ),
        (
            table("x-expires", "l", 315_360_000_001),
            "'x-expires' for R: {value_too_large,315360000001}",
        ),
        (
            table("x-max-length-bytes", "I", -1),
            "'x-max-length-bytes' for R: {value_negative,-1}",
        ),
    ],
)
def test_invalid_arguments_of_a_queue(rig: Rig, arguments: Table, expected: str) -> None:
    name = rig.name()
    found = rig.client().fault(1, declare(name, arguments))
    resource = f"queue '{name}' in vhost '/'"
    assert found.replace(resource, "R") == (FAILED + f"invalid arg {expected} (50,10)")


@OWN
@pytest.mark.parametrize("name", sorted(NOT_SERVED))
def test_arguments_without_effect_are_refused(rig: Rig, name: str) -> None:
    arguments = Table([*QUORUM, *table(name, "I", 5)])
    found = rig.client().fault(1, declare(rig.name(), arguments))
    assert found.endswith("not served (50,10)")


def test_another_connections_exclusive_queue(rig: Rig) -> None:
    name = rig.name()
    rig.client().ask(1, declare(name, exclusive=True, durable=False), QueueDeclareOk)
    text = (
        "channel 405 RESOURCE_LOCKED - cannot obtain exclusive access to locked queue "
        f"'{name}' in "
        "vhost '/'. It could be originally declared on another connection or the exclusive "
        "property value does not match that of the original declaration. (50,10)"
    )
    assert rig.client().fault(1, declare(name, exclusive=True, durable=False)) == text
    assert rig.client().fault(1, declare(name, passive=True)) == text


def test_a_consumer_tag_is_used_twice(rig: Rig) -> None:
    name = rig.name()
    client = rig.client()
    client.ask(1, declare(name, exclusive=True), QueueDeclareOk)
    client.ask(1, consume(name, "t"), BasicConsumeOk)
    assert client.fault(1, consume(name, "t")) == (
        "connection 530 NOT_ALLOWED - attempt to reuse consumer tag 't' (60,20)"
    )


def test_an_exclusive_consumer_is_alone(rig: Rig) -> None:
    name = rig.name()
    client = rig.client()
    client.ask(1, declare(name, exclusive=True), QueueDeclareOk)
    client.ask(1, consume(name, "a", exclusive=True), BasicConsumeOk)
    assert client.fault(1, consume(name, "b")) == (
        f"channel 403 ACCESS_REFUSED - queue '{name}' in vhost '/' in exclusive use (60,20)"
    )


def test_cancel_of_an_unknown_consumer_is_answered(rig: Rig) -> None:
    answer = rig.client().ask(1, BasicCancel("nobody", nowait=False), BasicCancelOk)
    assert answer.consumer_tag == "nobody"


def test_confirm_and_tx_exclude_each_other(rig: Rig) -> None:
    client = rig.client()
    client.ask(1, ConfirmSelect(nowait=False), ConfirmSelectOk)
    assert client.fault(1, TxSelect()) == (
        FAILED + "cannot switch from confirm to tx mode (90,10)"
    )
    client.send(1, ChannelCloseOk())
    client.channel(1)
    client.ask(1, TxSelect(), TxSelectOk)
    assert client.fault(1, ConfirmSelect(nowait=False)) == (
        FAILED + "cannot switch from tx to confirm mode (85,10)"
    )


def test_an_exchange_is_in_use(rig: Rig) -> None:
    queue, name = rig.name(), rig.name("ex")
    client = rig.client()
    client.ask(1, declare(queue, exclusive=True), QueueDeclareOk)
    client.ask(1, exchange(name), ExchangeDeclareOk)
    client.send(1, QueueBind(0, queue, name, "k", nowait=True, arguments=EMPTY))
    assert client.fault(1, ExchangeDelete(0, name, if_unused=True, nowait=False)) == (
        FAILED + f"exchange '{name}' in vhost '/' in use (40,20)"
    )
    client.send(1, ChannelCloseOk())
    client.channel(1)
    client.ask(1, ExchangeDelete(0, name, if_unused=False, nowait=False), ExchangeDeleteOk)
    client.ask(1, ExchangeDelete(0, name, if_unused=False, nowait=False), ExchangeDeleteOk)


# --- publishing


@pytest.mark.parametrize(
    ("publish", "expected"),
    [
        ({"exchange": "nope"}, NO_EXCHANGE + "(60,40)"),
        (
            {"immediate": True},
            "connection 540 NOT_IMPLEMENTED - immediate=true (60,40)",
        ),
        (
            {"properties": Properties(user_id="bob")},
            FAILED + "user_id property set to 'bob' but authenticated user was 'guest' (60,40)",
        ),
        (
            {"properties": Properties(expiration="1x")},
            FAILED + "invalid expiration '1x': {leftover_string,\"x\"} (60,40)",
        ),
    ],
)
def test_a_publish_at_fault(rig: Rig, publish: dict[str, object], expected: str) -> None:
    client = rig.client()
    if isinstance(properties := publish.get("properties"), Properties):
        publish = {**publish, "properties": encode_properties(properties)}
    client.publish(1, "k", b"x", **publish)  # type: ignore[arg-type]
    assert client.closed() == expected


# --- frames


def _bad_end(_rig: Rig) -> bytes:
    return encode_method_frame(1, ConfirmSelect(nowait=False))[:-1] + b"\x00"


def _body_first(_rig: Rig) -> bytes:
    return encode_frame(3, 1, b"x")


def _no_header(_rig: Rig) -> bytes:
    publish = BasicPublish(0, "", "k", mandatory=False, immediate=False)
    return encode_method_frame(1, publish) + encode_method_frame(1, ChannelFlow(active=True))


def _too_much_body(_rig: Rig) -> bytes:
    publish = BasicPublish(0, "", "k", mandatory=False, immediate=False)
    header = encode_frame(2, 1, b"\x00\x3c\x00\x00" + (1).to_bytes(8, "big") + b"\x00\x00")
    return encode_method_frame(1, publish) + header + encode_frame(3, 1, b"xy")


def _closed_channel(_rig: Rig) -> bytes:
    return encode_method_frame(9, ConfirmSelect(nowait=False))


def _heartbeat_on_a_channel(_rig: Rig) -> bytes:
    return b"\x08\x00\x01\x00\x00\x00\x00\xce"


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        (_bad_end, 501),
        (_body_first, 505),
        (_no_header, 505),
        pytest.param(_too_much_body, 501, marks=OWN),  # RabbitMQ 3.10 waits for more
        (_closed_channel, 504),
        (_heartbeat_on_a_channel, 505),
    ],
)
def test_bad_frames(rig: Rig, frames: Callable[[Rig], bytes], code: int) -> None:
    client = rig.client()
    client.send_bytes(frames(rig))
    assert client.closed().startswith(f"connection {code} ")


@pytest.mark.parametrize("header", [b"AMQP\x00\x00\x09\x09", b"HTTP/1.1"])
def test_an_unknown_protocol_header_is_answered_with_ours(rig: Rig, header: bytes) -> None:
    client = rig.raw()
    client.send_bytes(header)
    assert client.read_bytes() == b"AMQP\x00\x00\x09\x01"
