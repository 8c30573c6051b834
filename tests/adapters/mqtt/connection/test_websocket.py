"""MQTT over WebSocket (section 6), with the frames made by hand where they matter."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from websockets.client import ClientProtocol
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Response
from websockets.typing import Origin, Subprotocol
from websockets.uri import parse_uri

from tests.adapters.mqtt.live import DEADLINE_S, Live, running
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import V5

CONNECT = wire.connect("c")
PINGRESP = b"\xd0\x00"


class Peer:
    """A WebSocket client: the library's protocol, our sockets."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ws: ClientProtocol
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.ws = ws
        self.data = b""
        self.pongs: list[bytes] = []
        self.response: Response | None = None

    def flush(self) -> None:
        self.writer.write(b"".join(self.ws.data_to_send()))

    def send(self, data: bytes) -> None:
        self.ws.send_binary(data)
        self.flush()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Read until something holds, or the gateway has closed the connection."""
        async with asyncio.timeout(DEADLINE_S):
            while not is_so():
                data = await self.reader.read(65_536)
                if not data:
                    self.ws.receive_eof()
                    return
                self.ws.receive_data(data)
                for event in self.ws.events_received():
                    self._take(event)

    def _take(self, event: object) -> None:
        if isinstance(event, Response):
            self.response = event
        elif isinstance(event, Frame) and event.opcode is Opcode.PONG:
            self.pongs.append(bytes(event.data))
        elif isinstance(event, Frame) and event.opcode is Opcode.BINARY:
            self.data += bytes(event.data)

    async def data_ending(self, end: bytes) -> bytes:
        await self.until(lambda: self.data.endswith(end))
        return self.data


@contextlib.asynccontextmanager
async def peer(
    live: Live,
    *,
    path: str = "/mqtt",
    origin: str | None = None,
    host: str | None = None,
    subprotocols: tuple[str, ...] = ("mqtt",),
) -> AsyncIterator[Peer]:
    port = live.adapter.listeners[-1].port
    ws = ClientProtocol(
        parse_uri(f"ws://127.0.0.1:{port}{path}"),
        origin=None if origin is None else Origin(origin),
        subprotocols=[Subprotocol(one) for one in subprotocols] or None,
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    found = Peer(reader, writer, ws)
    request = ws.connect()
    if host is not None:
        del request.headers["Host"]
        request.headers["Host"] = host
    ws.send_request(request)
    found.flush()
    await found.until(lambda: found.response is not None)
    try:
        yield found
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@pytest.mark.parametrize(
    ("options", "status", "subprotocol"),
    [
        ({}, 101, "mqtt"),
        ({"path": "/mqtt?token=1"}, 101, "mqtt"),
        ({"subprotocols": ("mqttv3.1",)}, 101, "mqttv3.1"),
        ({"subprotocols": ("mqttv3.1", "mqtt")}, 101, "mqtt"),
        ({"subprotocols": ("chat",)}, 400, None),
        ({"subprotocols": ()}, 400, None),
        ({"path": "/else"}, 404, None),
        ({"origin": "https://evil.example"}, 403, None),
        ({"origin": "https://ours.example"}, 101, "mqtt"),
    ],
)
async def test_the_handshake(
    tmp_path: Path, options: dict[str, Any], status: int, subprotocol: str | None
) -> None:
    """MQTT-6.0.0-3, MQTT-6.0.0-4."""
    websocket = {"bind": "127.0.0.1:0", "origins": ["https://ours.example"]}
    async with (
        running(tmp_path, mqtt={"websocket": websocket}) as live,
        peer(live, **options) as client,
    ):
        assert client.response is not None
        assert client.response.status_code == status
        assert client.response.headers.get("Sec-WebSocket-Protocol") == subprotocol


@pytest.mark.parametrize("cut_bytes", [1, 3, 7, 1000])
async def test_packets_and_frames_end_where_they_like(tmp_path: Path, cut_bytes: int) -> None:
    """MQTT-6.0.0-2."""
    stream = CONNECT + wire.subscribe(1, [("a", 0)]) + wire.publish("a", b"x") + wire.PINGREQ
    async with running(tmp_path) as live, peer(live) as client:
        for at in range(0, len(stream), cut_bytes):
            client.send(stream[at : at + cut_bytes])
        got = await client.data_ending(PINGRESP)
        assert got[0] == 0x20
        assert wire.publish("a", b"x") in got


async def test_a_fragmented_message_is_a_stream_too(tmp_path: Path) -> None:
    stream = CONNECT + wire.PINGREQ
    async with running(tmp_path) as live, peer(live) as client:
        client.ws.send_binary(stream[:5], fin=False)
        client.ws.send_continuation(stream[5:9], fin=False)
        client.ws.send_continuation(stream[9:], fin=True)
        client.flush()
        assert (await client.data_ending(PINGRESP))[0] == 0x20


async def test_a_text_frame_ends_the_connection(tmp_path: Path) -> None:
    """MQTT-6.0.0-1."""
    async with running(tmp_path) as live, peer(live) as client:
        client.ws.send_text(CONNECT)
        client.flush()
        await client.until(lambda: client.ws.close_rcvd is not None)
        assert client.ws.close_rcvd is not None
        assert client.ws.close_rcvd.code == CloseCode.UNSUPPORTED_DATA


async def test_a_ping_is_answered(tmp_path: Path) -> None:
    async with running(tmp_path) as live, peer(live) as client:
        client.ws.send_ping(b"there?")
        client.flush()
        await client.until(lambda: bool(client.pongs))
        assert client.pongs == [b"there?"]


async def test_a_close_frame_is_answered_and_the_session_ends(tmp_path: Path) -> None:
    async with running(tmp_path) as live, peer(live) as client:
        client.send(CONNECT + wire.PINGREQ)
        await client.data_ending(PINGRESP)
        client.ws.send_close(CloseCode.GOING_AWAY)
        client.flush()
        await client.until(lambda: False)
        assert client.ws.close_rcvd is not None
        assert live.adapter.node.sessions.find("c") is None


async def test_the_reason_of_a_close_comes_before_the_close_frame(tmp_path: Path) -> None:
    async with running(tmp_path) as live, peer(live) as client:
        client.send(CONNECT + CONNECT)
        await client.until(lambda: False)
        assert b"\xe0" in client.data
        assert client.ws.close_rcvd is not None
        assert client.ws.close_rcvd.code == CloseCode.NORMAL_CLOSURE


async def test_a_frame_above_the_largest_packet_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path, mqtt={"packet_bytes_max": 1024}) as live, peer(live) as client:
        client.send(bytes(1024 + 64 * 1024 + 1))
        await client.until(lambda: client.ws.close_rcvd is not None)
        assert client.ws.close_rcvd is not None
        assert client.ws.close_rcvd.code == CloseCode.MESSAGE_TOO_BIG


async def test_what_is_no_request_is_closed(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        port = live.adapter.listeners[-1].port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(wire.connect("c", version=V5) + b"\r\n\r\n")
        async with asyncio.timeout(DEADLINE_S):
            with contextlib.suppress(ConnectionError):
                assert await reader.read(1) == b""
        writer.close()
