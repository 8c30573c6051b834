"""Sessions that another connection takes over while the first one ends."""

from pathlib import Path
from typing import cast

import pytest

from adapters.mqtt.connection.connection import MqttConnection
from tests.adapters.mqtt.restartable_node import (
    KEPT,
    Client,
    RestartableNode,
    payloads,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import V5, Kind, Prop
from tests.support.waiting import until

WILL = wire.WillMessage("will", b"gone", qos=1)


def connections(one: RestartableNode, client_id: str) -> list[MqttConnection]:
    every = [cast("MqttConnection", found) for found in one.adapter.listener.connections]
    return [found for found in every if found.client_id == client_id]


async def taken_over(one: RestartableNode, *farewell: bytes) -> Client:
    """Connect a client again before the node notices that its old connection is lost."""
    await one.client("s", kept=True, will=WILL)
    [old] = connections(one, "s")
    new = Client(await one.live.client(V5), "s")
    await until(lambda: len(connections(one, "")) == 1)
    [fresh] = connections(one, "")
    for packet in farewell:
        old.receive(packet)
    session = one.session("s")
    assert session is not None
    assert session.connection is old
    fresh.receive(wire.connect("s", clean=False, found=KEPT))
    new.session_present = (await new.receive(Kind.CONNACK)).session_present
    return new


async def test_a_takeover_after_disconnect_publishes_no_will(
    tmp_path: Path,
) -> None:  # MQTT-3.14.4-3
    async with restartable_node(tmp_path) as one:
        watcher = await one.client("w")
        await watcher.subscribe(("will", 1))
        new = await taken_over(one, wire.disconnect())
        assert new.session_present
        await watcher.silent()
        assert one.adapter.node.counters.wills_published == 0


@pytest.mark.parametrize("farewell", [(), (wire.disconnect(0x04),)], ids=["none", "with will"])
async def test_a_takeover_without_a_farewell_publishes_the_will(
    tmp_path: Path, farewell: tuple[bytes, ...]
) -> None:  # MQTT 5.0 section 3.1.4, MQTT-3.1.2-8
    async with restartable_node(tmp_path) as one:
        watcher = await one.client("w")
        await watcher.subscribe(("will", 1))
        assert (await taken_over(one, *farewell)).session_present
        assert payloads(await watcher.take(1)) == [b"gone"]
        await watcher.silent()


async def test_a_takeover_honours_the_expiry_of_disconnect(
    tmp_path: Path,
) -> None:  # MQTT 5.0 section 3.14.2.2.2
    async with restartable_node(tmp_path) as one:
        goodbye = wire.disconnect(found=[(Prop.SESSION_EXPIRY, 0)])
        new = await taken_over(one, goodbye)
        assert not new.session_present
        assert one.adapter.node.counters.wills_published == 0
        assert one.adapter.node.sessions.connected == 1
