"""A message that is not acknowledged in time: its channel is closed, and others get it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapters.amqp.v091.fields import Field, Table
from adapters.amqp.v091.methods.basic import BasicAck, BasicDeliver, BasicGetOk
from adapters.amqp.v091.methods.channel import ChannelClose
from adapters.amqp.v091.methods.queue import QueueDeclareOk
from gateway.clock import ManualClock
from tests.adapters.amqp.conformance.methods import consume, declare, get
from tests.adapters.amqp.in_process import AmqpInProcess, Peer, amqp_in_process, published
from tests.support.waiting import until

TIMEOUT_MS = 90_000
QUORUM = Table(
    [("x-queue-type", Field("S", "quorum")), ("x-consumer-timeout", Field("l", TIMEOUT_MS))]
)


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[AmqpInProcess]:
    async with amqp_in_process(tmp_path) as one:
        yield one


async def with_message(one: AmqpInProcess, *channels: int) -> Peer:
    peer = await one.peer().open(1, *channels)
    peer.send(1, declare("q", QUORUM))
    await peer.read(QueueDeclareOk)
    peer.send_bytes(published(1, "q", b"m"))
    await until(lambda: one.ready_count("q") == 1)
    return peer


def advance(one: AmqpInProcess, ms: int) -> None:
    clock = one.node.kernel.clock
    assert isinstance(clock, ManualClock)
    clock.advance(ms)
    one.node.kernel.queues._context.leases.run_due()


async def test_the_channel_is_closed_and_another_gets_the_message(one: AmqpInProcess) -> None:
    peer = await with_message(one, 2, 3)
    peer.send(2, consume("q", "slow"))
    await peer.read(BasicDeliver)
    peer.send(3, consume("q", "next"))
    await peer.frames()

    advance(one, TIMEOUT_MS - 1)
    assert await peer.methods() == []
    advance(one, 1)

    found = await peer.methods()
    closed = next(one for one in found if isinstance(one, ChannelClose))
    assert closed.reply_code == 406
    assert closed.reply_text == (
        "PRECONDITION_FAILED - delivery acknowledgement on channel 2 timed out. Timeout value "
        f"used: {TIMEOUT_MS} ms. This timeout value can be configured, see consumers doc guide to "
        "learn more"
    )
    delivered = next(one for one in found if isinstance(one, BasicDeliver))
    assert (delivered.consumer_tag, delivered.redelivered) == ("next", True)


async def test_a_message_of_a_get_times_out_too(one: AmqpInProcess) -> None:
    peer = await with_message(one)
    peer.send(1, get("q"))
    await peer.read(BasicGetOk)

    advance(one, TIMEOUT_MS)

    assert (await peer.read(ChannelClose)).reply_code == 406
    assert one.ready_count("q") == 1


async def test_an_acknowledged_message_does_not(one: AmqpInProcess) -> None:
    peer = await with_message(one)
    peer.send(1, get("q"))
    got = await peer.read(BasicGetOk)
    peer.send(1, BasicAck(got.delivery_tag, multiple=False))
    await peer.frames()

    advance(one, TIMEOUT_MS)

    assert await peer.methods() == []


async def test_a_connection_that_has_ended_is_not_called(one: AmqpInProcess) -> None:
    peer = await with_message(one)
    peer.send(1, get("q"))
    await peer.read(BasicGetOk)
    peer.lose()

    assert one.node.kernel.queues._context.lease_ends._callbacks == {}
