"""The prefetch of a whole channel (basic.qos with global) is never exceeded by its consumers."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapters.amqp.v091.methods.basic import BasicAck, BasicDeliver, BasicQos
from adapters.amqp.v091.methods.tx import TxCommit, TxCommitOk, TxRollback, TxSelect
from gateway.queues.manager import Queue
from tests.adapters.amqp.conformance.methods import consume, declare
from tests.adapters.amqp.in_process import AmqpInProcess, Peer, amqp_in_process, published
from tests.gateway.queues.test_cold_reads import ColdDisk
from tests.support.waiting import turns, until

TURNS = 40  # in which the gateway delivers what it would


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[AmqpInProcess]:
    async with amqp_in_process(tmp_path) as one:
        yield one


async def filled(one: AmqpInProcess, *names: str) -> Peer:
    """Return a client with one channel, and queues of four messages each."""
    peer = await one.peer().open(1)
    for name in names:
        peer.send(1, declare(name))
        await until(lambda name=name: one.queue(name) is not None)  # type: ignore[misc]
        peer.send_bytes(published(1, name, b"1", b"2", b"3", b"4"))
        await until(lambda name=name: one.ready_count(name) == 4)  # type: ignore[misc]
    await peer.methods()
    return peer


def cold_disk(one: AmqpInProcess, name: str) -> ColdDisk:
    queue = one.queue(name)
    assert isinstance(queue, Queue)
    return ColdDisk(one, queue)


async def delivered(peer: Peer) -> list[BasicDeliver]:
    """Return all that the gateway delivers without an acknowledgement."""
    await turns(TURNS)
    return [method for method in await peer.methods() if isinstance(method, BasicDeliver)]


def acknowledge(peer: Peer, found: list[BasicDeliver]) -> None:
    for delivery in found:
        peer.send(1, BasicAck(delivery.delivery_tag, multiple=False))


async def test_messages_that_are_read_from_the_disk_count(one: AmqpInProcess) -> None:
    peer = await filled(one, "cold", "warm")
    disk = cold_disk(one, "cold")
    peer.send(1, BasicQos(0, 2, global_=True), consume("cold", "cold"), consume("warm", "warm"))

    assert [found.consumer_tag for found in await delivered(peer)] == ["warm"]
    disk.spun.set()
    assert [found.consumer_tag for found in await delivered(peer)] == ["cold"]


async def test_all_messages_come_two_at_a_time(one: AmqpInProcess) -> None:
    peer = await filled(one, "cold", "warm")
    disk = cold_disk(one, "cold")
    disk.spun.set()
    peer.send(1, BasicQos(0, 2, global_=True), consume("cold", "cold"), consume("warm", "warm"))

    counts = []
    while found := await delivered(peer):
        counts.append(len(found))
        acknowledge(peer, found)
    assert max(counts) == 2
    assert sum(counts) == 8


async def test_a_read_that_fails_gives_its_credit_back(one: AmqpInProcess) -> None:
    peer = await filled(one, "cold", "warm")
    disk = cold_disk(one, "cold")
    disk.is_broken = True
    peer.send(1, BasicQos(0, 1, global_=True), consume("cold", "cold"))
    await turns(TURNS)
    peer.send(1, consume("warm", "warm"))

    assert await delivered(peer) == []
    disk.spun.set()
    assert [found.consumer_tag for found in await delivered(peer)] == ["warm"]


async def test_acknowledgements_count_from_their_commit_on(one: AmqpInProcess) -> None:
    peer = await filled(one, "warm")
    peer.send(1, TxSelect(), BasicQos(0, 2, global_=True), consume("warm", "warm"))
    first = await delivered(peer)
    assert len(first) == 2

    acknowledge(peer, first)
    peer.send(1, BasicQos(0, 2, global_=True))
    assert await delivered(peer) == []
    peer.send(1, TxRollback())
    assert await delivered(peer) == []

    acknowledge(peer, first)
    peer.send(1, TxCommit())
    await peer.read(TxCommitOk)
    peer.send(1, BasicQos(0, 2, global_=True))
    await until(lambda: one.ready_count("warm") == 0)
