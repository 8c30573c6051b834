"""Answers by direct reply-to are bounded, and belong to one vhost."""

from pathlib import Path

from adapters.amqp.replies import REPLY_TO
from adapters.amqp.v091.fields import EMPTY
from adapters.amqp.v091.methods.basic import BasicConsume, BasicConsumeOk
from gateway.connection import WRITE_HIGH_BYTES
from tests.adapters.amqp.in_process import AmqpInProcess, Peer, amqp_in_process, published


async def requester(amqp: AmqpInProcess) -> Peer:
    peer = await amqp.peer().open(1)
    flags = dict.fromkeys(("no_local", "no_ack", "exclusive", "nowait"), False)
    peer.send(1, BasicConsume(0, REPLY_TO, "r", arguments=EMPTY, **{**flags, "no_ack": True}))
    await peer.read(BasicConsumeOk)
    return peer


def address_of(peer: Peer) -> str:
    channel = peer.connection.channels.find(1)
    assert channel is not None
    assert channel.reply_address is not None
    return channel.reply_address


async def test_answers_to_a_client_that_does_not_read_are_dropped(tmp_path: Path) -> None:
    async with amqp_in_process(tmp_path) as amqp:
        asking = await requester(amqp)
        answering = await amqp.peer().open(1)
        asking.connection.pause_writing()
        body = bytes(100_000)
        for _ in range(50):
            answering.send_bytes(published(1, address_of(asking), body))
        assert asking.connection.out_bytes <= WRITE_HIGH_BYTES + len(body)


async def test_addresses_end_with_their_connection(tmp_path: Path) -> None:
    async with amqp_in_process(tmp_path) as amqp:
        asking = await requester(amqp)
        assert len(amqp.node.requesters) == 1
        asking.lose()
        assert not len(amqp.node.requesters)


async def test_addresses_of_another_vhost_are_not_known(tmp_path: Path) -> None:
    async with amqp_in_process(tmp_path) as amqp:
        asking = await requester(amqp)
        assert amqp.node.requesters.find("default", address_of(asking)) is not None
        assert amqp.node.requesters.find("shop", address_of(asking)) is None
