"""Keep alive, will delay and session expiry do not move when the wall clock is set."""

from pathlib import Path
from typing import cast

import pytest

from adapters.mqtt.node import Node
from gateway.clock import ManualClock
from tests.adapters.mqtt.live import Client, Live, running
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Kind, Prop, WillMessage

YEAR_MS = 365 * 86_400_000
DELAY_S = 100
EXPIRY_S = 200


def node_of(live: Live) -> Node:
    node = live.adapter.node
    assert node is not None
    return node


def clock_of(live: Live) -> ManualClock:
    return cast("ManualClock", live.kernel.clock)


def look_at_deadlines(live: Live) -> None:
    """Do now what timers do in the course of a second."""
    node = node_of(live)
    node.wills.run_due()
    node.sessions.sweep(clock_of(live).monotonic_ms())
    for connection in tuple(live.adapter.listener.connections):
        connection.check_deadlines(live.adapter.listener.now_s)


async def leave_with_will(live: Live) -> None:
    """Connect with a will, and go without a word."""
    will = WillMessage("will", b"gone", properties=[(Prop.WILL_DELAY, DELAY_S)])
    found = [(Prop.SESSION_EXPIRY, EXPIRY_S)]
    owner = await live.connected("owner", clean=False, found=found, will=will)
    session = node_of(live).sessions.find("owner")
    assert session is not None
    owner.send(b"\x00")  # what nobody understands: closed, with its will
    assert [kind for kind, _code in await owner.ended_with()] == [Kind.DISCONNECT]
    assert session.connection is None


async def ping(client: Client) -> None:
    client.send(wire.PINGREQ)
    await client.receive(Kind.PINGRESP)


@pytest.mark.parametrize("step_ms", [YEAR_MS, -YEAR_MS])
async def test_a_step_of_the_clock_moves_no_deadline(tmp_path: Path, step_ms: int) -> None:
    async with running(tmp_path) as live:
        clock = clock_of(live)
        watcher = await live.connected("watcher", keep_alive_s=60)
        watcher.send(wire.subscribe(1, [("will", 0)]))
        await watcher.receive(Kind.SUBACK)
        await leave_with_will(live)

        clock.step_unix(step_ms)
        clock.advance((DELAY_S - 1) * 1_000)
        look_at_deadlines(live)
        await ping(watcher)  # no will has come, and it is still connected
        clock.advance(1_000)
        look_at_deadlines(live)
        assert (await watcher.receive(Kind.PUBLISH)).payload == b"gone"

        clock.advance((EXPIRY_S - DELAY_S - 1) * 1_000)
        look_at_deadlines(live)
        assert node_of(live).sessions.find("owner") is not None
        clock.step_unix(-2 * step_ms)
        look_at_deadlines(live)
        assert node_of(live).sessions.find("owner") is not None
        clock.advance(1_000)
        look_at_deadlines(live)
        assert node_of(live).sessions.find("owner") is None
        await ping(watcher)


@pytest.mark.parametrize("step_ms", [YEAR_MS, -YEAR_MS])
async def test_messages_are_kept_and_delivered_across_a_step(
    tmp_path: Path, step_ms: int
) -> None:
    async with running(tmp_path) as live:
        client = await live.connected("c")
        client.send(wire.subscribe(1, [("t", 1)]))
        await client.receive(Kind.SUBACK)
        for number in range(4):
            clock_of(live).step_unix(step_ms if number % 2 else -step_ms)
            client.send(wire.publish("t", b"%d" % number, qos=1, packet_id=number + 1))
            came = [await client.next(), await client.next()]
            assert {packet.kind for packet in came if packet} == {Kind.PUBACK, Kind.PUBLISH}
            [message] = [one for one in came if one and one.kind is Kind.PUBLISH]
            assert message.payload == b"%d" % number
            client.send(wire.ack(Kind.PUBACK, message.packet_id))
