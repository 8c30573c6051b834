"""The reason for a close reaches the peer, whatever it was still sending: no reset overtakes it."""

import asyncio
import socket
import ssl
from pathlib import Path
from typing import cast

import pytest

from adapters.mqtt.connection.connection import MqttConnection
from tests.adapters.mqtt.connection.test_websocket import peer
from tests.adapters.mqtt.live import DEADLINE_S, Live, running
from tests.support import mqtt_wire as wire
from tests.support.certificates import make_certificate
from tests.support.mqtt_wire import V3_1_1, V5, Kind, WillMessage

MALFORMED = b"\0\0"
MUCH = bytes(1 << 20)
NOT_AUTHORIZED_3_X = 5


async def until_gone(live: Live) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while any(listener.connections for listener in live.adapter.listeners):
            await asyncio.get_running_loop().run_in_executor(None, int)


def send_and_read(port: int, raw: bytes) -> bytes:
    """Send everything, and only then read until the end, as clients do that write in a thread."""
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as client:
        client.sendall(raw)
        came = b""
        while data := client.recv(65_536):
            came += data
    return came


async def spoken(live: Live, data: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, send_and_read, live.adapter.listener.port, data)


@pytest.mark.parametrize("at", ["CONNACK", "DISCONNECT"])
async def test_the_reason_is_read_behind_what_the_client_sent_on(
    tmp_path: Path, at: str
) -> None:
    async with running(tmp_path) as live:
        first = wire.connect("c", extra_flags=1 if at == "CONNACK" else 0)
        came = await spoken(live, first + MALFORMED + MUCH)
        if at == "CONNACK":
            assert came[0] == Kind.CONNACK << 4
            assert came[3] == 0x81
        else:
            last = came[2 + came[1] :]
            assert (last[0], last[2]) == (Kind.DISCONNECT << 4, 0x81)
        await until_gone(live)


async def test_a_refusal_of_3_1_1_is_read_too(tmp_path: Path) -> None:
    async with running(tmp_path, users=("ada",)) as live:
        came = await spoken(live, wire.connect("c", version=V3_1_1) + MUCH)
        assert came == bytes((Kind.CONNACK << 4, 2, 0, NOT_AUTHORIZED_3_X))
        await until_gone(live)


async def test_the_reason_is_read_over_tls(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    tls = {"bind": "127.0.0.1:0", "tls_cert": cert, "tls_key": key}
    async with running(tmp_path, mqtt={"tls": tls}) as live:
        context = ssl.create_default_context(cafile=str(cert))
        client = await live.client(V5, tls=context)
        client.send(wire.connect("c"), MALFORMED, MUCH)
        await client.receive(Kind.CONNACK)
        assert await client.ended_with() == [(Kind.DISCONNECT, 0x81)]


async def test_the_reason_is_read_over_websocket(tmp_path: Path) -> None:
    async with running(tmp_path) as live, peer(live) as browser:
        browser.send(wire.connect("c") + MALFORMED)
        for _ in range(16):
            browser.send(MUCH[:65_536])
        await browser.until(lambda: False)
        data = browser.data
        last = data[2 + data[1] :]
        assert (last[0], last[2]) == (Kind.DISCONNECT << 4, 0x81)


async def test_a_session_ends_before_its_peer_has_closed(tmp_path: Path) -> None:
    """The will does not wait for a peer that lingers."""
    async with running(tmp_path) as live:
        watcher = await live.connected("w")
        watcher.send(wire.subscribe(1, [("will", 0)]))
        await watcher.receive(Kind.SUBACK)
        client = await live.connected("c", will=WillMessage("will", b"gone"))
        [served] = [
            one
            for one in live.adapter.listener.connections
            if cast("MqttConnection", one).client_id == "c"
        ]
        client.send(MALFORMED)
        await client.receive(Kind.DISCONNECT)
        assert (await watcher.receive(Kind.PUBLISH)).payload == b"gone"
        assert served.transport is not None  # it lingers still
        client.writer.close()
        await served_gone(served)


async def served_gone(served: object) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while cast("MqttConnection", served).transport is not None:
            await asyncio.get_running_loop().run_in_executor(None, int)


async def test_a_peer_that_never_closes_is_closed(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.connected()
        served = live.connection()
        client.send(MALFORMED)
        assert await client.ended_with() == [(Kind.DISCONNECT, 0x81)]
        await served_gone(served)  # by ``LINGER_S_MAX``: the client has not closed


async def test_a_node_that_stops_does_not_wait_for_a_peer_that_lingers(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.connected()
        client.send(MALFORMED)
        assert await client.ended_with() == [(Kind.DISCONNECT, 0x81)]
        served = live.connection()
        await live.adapter.listener.stop()
        assert served.transport is None
