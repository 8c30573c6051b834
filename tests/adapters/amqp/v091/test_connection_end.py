"""Ends of connections and channels: messages that were sent before are not lost."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapters.amqp.v091.framing import CONTENT_HEADER, METHOD, encode_frame, encode_method_frame
from adapters.amqp.v091.methods.basic import BasicAck
from adapters.amqp.v091.methods.channel import ChannelClose, ChannelCloseOk, ChannelOpen
from adapters.amqp.v091.methods.confirm import ConfirmSelect
from adapters.amqp.v091.methods.connection import ConnectionClose, ConnectionCloseOk
from adapters.amqp.v091.methods.queue import QueueDeclareOk
from adapters.amqp.v091.methods.tx import TxCommit, TxCommitOk, TxSelect
from tests.adapters.amqp.conformance.methods import declare
from tests.adapters.amqp.in_process import AmqpInProcess, Peer, amqp_in_process, published
from tests.support.waiting import until

CLOSE = encode_method_frame(0, ConnectionClose(200, "bye", 0, 0))


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[AmqpInProcess]:
    async with amqp_in_process(tmp_path) as one:
        yield one


async def with_queue(one: AmqpInProcess) -> Peer:
    peer = await one.peer().open(1, 2)
    peer.send(1, declare("q"))
    await peer.read(QueueDeclareOk)
    return peer


async def test_publishes_before_a_connection_close_in_one_read_are_stored(
    one: AmqpInProcess,
) -> None:
    peer = await with_queue(one)

    peer.send_bytes(published(1, "q", b"a", b"b") + CLOSE)

    await peer.read(ConnectionCloseOk)
    await until(lambda: one.ready_count("q") == 2)


async def test_publishes_behind_a_declaration_precede_the_answer_to_a_close(
    one: AmqpInProcess,
) -> None:
    peer = await one.peer().open(1)

    peer.send_bytes(
        encode_method_frame(1, declare("later", nowait=True))
        + published(1, "later", b"a")
        + CLOSE
    )

    await peer.read(ConnectionCloseOk)
    await until(lambda: one.ready_count("later") == 1)


@pytest.mark.parametrize(
    "fault",
    [
        encode_method_frame(1, BasicAck(7, multiple=False)),  # 406, of the channel
        encode_frame(CONTENT_HEADER, 1, b""),  # 505, of the connection
        encode_frame(METHOD, 2, b"\0\x63\0\1"),  # 540, of another channel
        encode_frame(METHOD, 1, b"")[:-1] + b"\0",  # 501, of the frame
    ],
)
async def test_publishes_before_a_fault_in_one_read_are_stored(
    one: AmqpInProcess, fault: bytes
) -> None:
    peer = await with_queue(one)

    peer.send_bytes(published(1, "q", b"a") + fault)

    found = await peer.methods()
    assert isinstance(found[-1], ChannelClose | ConnectionClose)
    await until(lambda: one.ready_count("q") == 1)


async def test_a_fault_before_another_is_the_one_that_is_told(one: AmqpInProcess) -> None:
    peer = await with_queue(one)

    peer.send_bytes(
        published(1, "k", b"a", exchange="missing")
        + encode_method_frame(1, BasicAck(7, multiple=False))
    )

    closes = [found for found in await peer.methods() if isinstance(found, ChannelClose)]
    assert [(one.reply_code, one.method_id) for one in closes] == [(404, 40)]


async def test_a_closed_channel_confirms_nothing_to_its_successor(one: AmqpInProcess) -> None:
    peer = await with_queue(one)
    peer.send(1, ConfirmSelect(nowait=True))
    one.storage.held = True
    peer.send_bytes(published(1, "q", b"a"))
    peer.send(1, ChannelClose(200, "", 0, 0))
    await peer.read(ChannelCloseOk)
    peer.send(1, ChannelOpen(), ConfirmSelect(nowait=True))

    one.storage.release()

    await until(lambda: one.ready_count("q") == 1)
    assert not [found for found in await peer.methods() if isinstance(found, BasicAck)]


async def test_a_drain_confirms_before_it_closes(one: AmqpInProcess) -> None:
    peer = await with_queue(one)
    peer.send(1, ConfirmSelect(nowait=True))
    one.storage.held = True
    peer.send_bytes(published(1, "q", b"a"))

    peer.connection.hurry()
    assert peer.connection.has_unsaved_work()
    one.storage.release()

    await until(lambda: one.ready_count("q") == 1)
    kinds = [type(found) for found in await peer.methods()]
    assert kinds == [BasicAck, ConnectionClose]


async def test_a_drain_answers_a_commit_before_it_closes(one: AmqpInProcess) -> None:
    peer = await with_queue(one)
    peer.send(1, TxSelect())
    peer.send_bytes(published(1, "q", b"a"))
    one.storage.held = True
    peer.send(1, TxCommit())
    await peer.frames()

    peer.connection.hurry()
    assert peer.connection.has_unsaved_work()
    one.storage.release()

    await until(lambda: not peer.connection.has_unsaved_work())
    kinds = [type(found) for found in await peer.methods()]
    assert kinds == [TxCommitOk, ConnectionClose]
