"""Transactions: publishes and acknowledgements of a commit are one append, or nothing."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapters.amqp.v091.methods.basic import BasicAck, BasicGetOk
from adapters.amqp.v091.methods.connection import ConnectionClose
from adapters.amqp.v091.methods.queue import QueueDeclareOk
from adapters.amqp.v091.methods.tx import TxCommit, TxCommitOk, TxSelect, TxSelectOk
from gateway.errors import StorageFull
from gateway.testing.ports import free_port
from tests.adapters.amqp.conformance.methods import declare, get
from tests.adapters.amqp.in_process import AmqpInProcess, Peer, amqp_in_process, published
from tests.support.amqp_raw import RawAmqp
from tests.support.gateway import Gateway
from tests.support.waiting import turns, until


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[AmqpInProcess]:
    async with amqp_in_process(tmp_path) as one:
        yield one


async def in_transaction(one: AmqpInProcess) -> Peer:
    """Return a client that moves a message from ``source`` to ``target``, before its commit."""
    peer = await one.peer().open(1)
    for name in ("source", "target"):
        peer.send(1, declare(name))
        await peer.read(QueueDeclareOk)
    peer.send_bytes(published(1, "source", b"m"))
    await until(lambda: one.ready_count("source") == 1)
    peer.send(1, get("source"))
    await peer.read(BasicGetOk)
    peer.send(1, TxSelect())
    await peer.read(TxSelectOk)
    peer.send_bytes(published(1, "target", b"m"))
    peer.send(1, BasicAck(1, multiple=False))
    await turns(20)
    return peer


async def test_commit_is_one_append(one: AmqpInProcess) -> None:
    peer = await in_transaction(one)
    before = one.storage.enqueued
    peer.send(1, TxCommit())
    await peer.read(TxCommitOk)
    assert one.storage.enqueued == before + 1
    await turns(20)
    assert (one.ready_count("source"), one.ready_count("target")) == (0, 1)


async def test_nothing_is_answered_before_the_commit_is_durable(one: AmqpInProcess) -> None:
    peer = await in_transaction(one)
    one.storage.held = True
    peer.send(1, TxCommit())
    assert await peer.methods() == []
    one.storage.release()
    await peer.read(TxCommitOk)


async def test_refused_commit_leaves_everything_as_it_was(
    one: AmqpInProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = await in_transaction(one)

    def refuse(*_: object, **__: object) -> None:
        raise StorageFull("no space")

    with monkeypatch.context() as patched:
        patched.setattr(one.storage, "enqueue", refuse)
        peer.send(1, TxCommit())
        closed = await peer.read(ConnectionClose)
    assert closed.reply_text == "INTERNAL_ERROR - the storage is full"
    assert one.node.disk_alarm.is_raised
    one.node.disk_alarm.close()
    peer.lose()
    await until(lambda: one.ready_count("source") == 1)
    assert one.ready_count("target") == 0


@pytest.mark.crash
def test_moves_survive_a_kill_whole_or_not_at_all(tmp_path: Path) -> None:
    port = free_port()
    settings = {"adapters.amqp.bind": f"127.0.0.1:{port}"}
    count = 60

    def client() -> RawAmqp:
        client = RawAmqp(port).open()
        client.channel(1)
        return client

    def counts(client: RawAmqp) -> list[int]:
        found = (client.ask(1, declare(name), QueueDeclareOk) for name in ("source", "target"))
        return [one.message_count for one in found]

    with Gateway(tmp_path / "data", settings) as gateway:
        mover = client()
        counts(mover)
        mover.ask(1, TxSelect(), TxSelectOk)
        for number in range(count):
            mover.publish(1, "source", b"%d" % number)
        mover.ask(1, TxCommit(), TxCommitOk)
        for _ in range(count):
            mover.send(1, get("source"))
            message = mover.read_message()
            assert isinstance(message.method, BasicGetOk)
            mover.publish(1, "target", message.body)
            mover.send(1, BasicAck(message.method.delivery_tag, multiple=False), TxCommit())
            if message.body == b"40":
                break  # this one's commit may be on its way
            assert isinstance(mover.read(), TxCommitOk)
        gateway.kill()
        mover.close()
        gateway.restart()
        again = client()
        source, target = counts(again)
        again.close()
    assert source + target == count
    assert target in {40, 41}
