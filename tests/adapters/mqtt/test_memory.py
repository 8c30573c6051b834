"""A client that has left leaves no objects behind, without the garbage collector's help."""

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.mqtt.connection.connection import MqttConnection
from adapters.mqtt.publishing.inbound import Inbound
from adapters.mqtt.sessions.client_session import ClientSession
from adapters.mqtt.sessions.journal import SessionJournal
from tests.adapters.mqtt.live import DEADLINE_S, Live, running
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import V3_1_1, V5, Kind

KINDS = (MqttConnection, Inbound, ClientSession, SessionJournal)


@pytest.fixture
def uncollected() -> Iterator[None]:
    """No collector runs: what is held in a cycle stays."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def left_behind(live: Live) -> list[str]:
    """Return the kinds of what is still there once the node has no connection."""
    async with asyncio.timeout(DEADLINE_S):
        while live.adapter.listener.connections:
            await asyncio.get_running_loop().run_in_executor(None, int)
    for _ in range(3):  # turns of the loop, for what was put off to the next one
        await asyncio.get_running_loop().run_in_executor(None, int)
    return [type(one).__name__ for one in gc.get_objects() if isinstance(one, KINDS)]


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("version", [V3_1_1, V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_client_that_has_left_is_freed_at_once(
    tmp_path: Path, version: int, qos: int
) -> None:
    async with running(tmp_path) as live:
        client = await live.connected("c", version=version)
        client.send(wire.subscribe(1, [("a", qos)], version=version))
        await client.receive(Kind.SUBACK)
        client.send(wire.publish("a", b"x", qos=qos, packet_id=7, version=version))
        if qos:
            await client.next()
        client.send(wire.PINGREQ)
        while (found := await client.next()) is not None and found.kind is not Kind.PINGRESP:
            pass
        client.writer.close()
        assert await left_behind(live) == []


@pytest.mark.usefixtures("uncollected")
async def test_a_client_that_leaves_amid_an_append_is_freed_after_it(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.connected("c")
        live.storage.held = True
        client.send(wire.publish("a", b"x", qos=1, packet_id=7))
        async with asyncio.timeout(DEADLINE_S):
            while not live.connection().inbound.is_pending:
                await asyncio.get_running_loop().run_in_executor(None, int)
        client.writer.close()
        kept = await left_behind(live)
        assert "MqttConnection" in kept  # its answer is still to come
        live.storage.release()
        async with asyncio.timeout(DEADLINE_S):
            while await left_behind(live):
                pass
