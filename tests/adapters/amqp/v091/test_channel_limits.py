"""Bounds of channels: credit that is shared, transactions, contents, a client that reads slowly."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapters.amqp.v091.fields import EMPTY
from adapters.amqp.v091.framing import (
    BODY,
    METHOD,
    PROTOCOL_HEADER,
    encode_content,
    encode_frame,
    encode_method_frame,
)
from adapters.amqp.v091.methods.basic import (
    BasicAck,
    BasicDeliver,
    BasicGetOk,
    BasicPublish,
    BasicQos,
)
from adapters.amqp.v091.methods.channel import ChannelClose
from adapters.amqp.v091.methods.codec import decode_method
from adapters.amqp.v091.methods.confirm import ConfirmSelect
from adapters.amqp.v091.methods.connection import (
    ConnectionClose,
    ConnectionStartOk,
    ConnectionTune,
)
from adapters.amqp.v091.methods.queue import QueueDeclareOk
from adapters.amqp.v091.methods.tx import TxCommit, TxCommitOk, TxSelect
from adapters.amqp.v091.properties import Properties, encode_properties
from tests.adapters.amqp.conformance.methods import consume, declare, exchange, get
from tests.adapters.amqp.in_process import AmqpInProcess, Peer, amqp_in_process, published
from tests.support.waiting import turns, until


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[AmqpInProcess]:
    async with amqp_in_process(
        tmp_path, transaction_bytes_max=1 << 20, message_bytes_max=1 << 16
    ) as one:
        yield one


async def with_queues(one: AmqpInProcess, *names: str) -> Peer:
    peer = await one.peer().open(1, 2)
    for name in names:
        peer.send(1, declare(name))
        await peer.read(QueueDeclareOk)
    return peer


async def test_a_shared_prefetch_of_one_reaches_the_queue_that_has_messages(
    one: AmqpInProcess,
) -> None:
    peer = await with_queues(one, "empty", "full")
    peer.send(1, BasicQos(0, 1, global_=True), consume("empty", "a"), consume("full", "b"))
    await turns()

    peer.send_bytes(published(1, "full", b"1", b"2"))

    first = await peer.read(BasicDeliver)
    assert first.consumer_tag == "b"
    await turns()
    assert not [found for found in await peer.methods() if isinstance(found, BasicDeliver)]
    peer.send(1, BasicAck(1, multiple=False))
    assert (await peer.read(BasicDeliver)).delivery_tag == 2


async def test_a_consumer_that_starts_while_the_client_does_not_read_waits(
    one: AmqpInProcess,
) -> None:
    peer = await with_queues(one, "q")
    peer.send_bytes(published(1, "q", b"a"))
    await until(lambda: one.ready_count("q") == 1)
    peer.connection.pause_writing()

    peer.send(1, consume("q", "c", no_ack=True))
    await turns(20)
    assert one.ready_count("q") == 1

    peer.connection.resume_writing()
    assert (await peer.read(BasicDeliver)).consumer_tag == "c"


async def test_consumers_of_many_queues_pause_when_much_is_queued(one: AmqpInProcess) -> None:
    peer = await with_queues(one, "q0", "q1", "q2", "q3", "q4")
    bodies = [bytes(60_000)] * 17
    for number in range(5):
        for body in bodies:
            peer.send_bytes(published(1, f"q{number}", body))
    await until(lambda: all(one.ready_count(f"q{number}") == 17 for number in range(5)))
    queued: list[int] = []
    flush = peer.connection.flush

    def look() -> None:
        queued.append(peer.connection.out_bytes)
        flush()

    peer.connection.flush = look  # type: ignore[method-assign]

    peer.send(1, *[consume(f"q{number}", f"c{number}", no_ack=True) for number in range(5)])
    await until(lambda: all(one.ready_count(f"q{number}") == 0 for number in range(5)))

    assert max(queued) < 2_300_000


async def test_a_commit_that_is_refused_returns_what_it_would_acknowledge(
    one: AmqpInProcess,
) -> None:
    peer = await with_queues(one, "q")
    peer.send(1, exchange("inside", "fanout", internal=True))
    await turns()
    peer.send_bytes(published(1, "q", b"a"))
    await until(lambda: one.ready_count("q") == 1)
    peer.send(1, get("q"))
    tag = (await peer.read(BasicGetOk)).delivery_tag
    await turns()
    peer.send(1, TxSelect(), BasicAck(tag, multiple=False))
    peer.send_bytes(published(1, "", b"b", exchange="inside"))

    peer.send(1, TxCommit())

    assert (await peer.read(ChannelClose)).reply_code == 403
    assert one.ready_count("q") == 1


async def test_a_transaction_is_bounded_over_all_channels(one: AmqpInProcess) -> None:
    peer = await with_queues(one, "q")
    for channel in (1, 2):
        peer.send(channel, TxSelect())
    body = bytes(60_000)
    for _ in range(8):
        peer.send_bytes(published(1, "q", body))
        peer.send_bytes(published(2, "q", body))
    peer.send_bytes(published(2, "q", body))
    peer.send_bytes(published(2, "q", body))

    assert (await peer.read(ChannelClose)).reply_code == 406
    peer.send(1, TxCommit())
    await peer.read(TxCommitOk)
    assert peer.connection.transaction_room.size_bytes == 0
    await until(lambda: one.ready_count("q") == 8)


async def test_an_expiration_in_a_transaction_is_checked_when_it_is_published(
    one: AmqpInProcess,
) -> None:
    peer = await with_queues(one, "q")
    peer.send(1, TxSelect())

    properties = encode_properties(Properties(expiration="soon"))
    peer.send_bytes(published(1, "q", b"a", properties=properties))

    close = await peer.read(ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (406, 60, 40)


async def test_an_internal_exchange_refuses_also_in_confirm_mode(one: AmqpInProcess) -> None:
    peer = await with_queues(one)
    peer.send(1, exchange("inside", "fanout", internal=True), ConfirmSelect(nowait=True))
    await turns()

    peer.send_bytes(published(1, "", b"b", exchange="inside"))

    assert (await peer.read(ChannelClose)).reply_code == 403


def begun(channel: int, body_bytes: int, *pieces: bytes) -> bytes:
    """Return a publish of which only some of the body is sent."""
    publish = BasicPublish(0, "", "q", mandatory=False, immediate=False)
    header = encode_content(channel, b"\0\0", bytes(body_bytes), 131_072)[0]
    bodies = b"".join(encode_frame(BODY, channel, piece) for piece in pieces)
    return encode_method_frame(channel, publish) + header + bodies


async def test_empty_body_frames_keep_nothing(one: AmqpInProcess) -> None:
    peer = await with_queues(one, "q")

    peer.send_bytes(begun(1, 2, b"", b"a", *[b""] * 1_000))
    assert peer.connection.kept.size_bytes < 100
    peer.send_bytes(encode_frame(BODY, 1, b"b"))

    await until(lambda: one.ready_count("q") == 1)
    assert peer.connection.kept.size_bytes == 0


async def test_many_small_body_frames_count_for_their_memory(one: AmqpInProcess) -> None:
    peer = await with_queues(one, "q")

    peer.send_bytes(begun(1, 60_000, *[b"ab"] * 1_000))

    assert peer.connection.kept.size_bytes >= 60_000


async def test_incomplete_contents_of_many_channels_are_bounded(tmp_path: Path) -> None:
    async with amqp_in_process(
        tmp_path, request_bytes_budget=67_108_864, message_bytes_max=16 << 20
    ) as one:
        peer = await one.peer().open(1, 2, 3, 4)
        piece = bytes(131_064)
        other = await one.peer().open(1)
        for channel in (1, 2, 3):
            peer.send_bytes(begun(channel, 16 << 20))
            for _ in range(86):
                peer.send_bytes(encode_frame(BODY, channel, piece))

        closes = [found for found in await peer.methods() if isinstance(found, ConnectionClose)]
        assert [close.reply_code for close in closes] == [506]
        assert one.node.body_budget.bytes_taken < 34 << 20
        other.send_bytes(begun(1, 5, b"abc"))
        assert not other.connection.is_held_but_for("writes")


async def test_a_login_that_ends_behind_a_fault_opens_nothing(one: AmqpInProcess) -> None:
    peer = one.peer()
    peer.send_bytes(PROTOCOL_HEADER)
    peer.send_bytes(
        encode_method_frame(0, ConnectionStartOk(EMPTY, "PLAIN", b"\0guest\0guest", "en_US"))
        + encode_frame(METHOD, 1, b"\0\x14\0\x0a\0")
    )

    frames = [decode_method(frame.payload) for frame in await peer.frames()]
    assert [type(frame) for frame in frames][1:] == [ConnectionClose]
    assert not any(isinstance(frame, ConnectionTune) for frame in frames)
