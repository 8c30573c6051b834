"""MQTT over WebSocket (MQTT 5.0 section 6): the same packets, in binary frames.

Packets and frames need not end at the same byte (MQTT-6.0.0-2), so what frames bring is one
stream. RFC 6455 is the ``websockets`` library's part, without its I/O. We close without waiting
for the peer's Close frame: for a peer that is gone, its will would wait too.
"""

from collections.abc import Sequence
from typing import ClassVar, Final

from websockets.frames import CTRL_OPCODES, CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.typing import Origin, Subprotocol

from adapters.mqtt.config import WebSocketConfig
from adapters.mqtt.connection.connection import MqttConnection
from adapters.mqtt.connection.packet_reader import TURN
from adapters.mqtt.connection.ports import ConnectionServer
from adapters.mqtt.connection.web_pages import refusal_of
from adapters.mqtt.session import State
from adapters.mqtt.wire import Connect
from gateway.listener import Listener
from gateway.model import Buffer

SLICE_BYTES: Final = 4_096
FRAMES_PER_TURN_MAX: Final = 512
"""Frames of one connection after which others have their turn; a slice's own come on top."""
SUBPROTOCOLS: Final = (Subprotocol("mqtt"), Subprotocol("mqttv3.1"))
FRAME_OVERHEAD_BYTES: Final = 64 * 1024
"""Bytes of a frame beyond the largest packet: clients put several packets into one."""

_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_SWITCHING: Final = 101


class WebSocketConnection(MqttConnection):
    """One client behind a WebSocket."""

    is_framed: ClassVar = True

    def __init__(self, listener: Listener, adapter: ConnectionServer) -> None:
        super().__init__(listener, adapter)
        config = listener.config
        assert isinstance(config, WebSocketConfig)
        self._config = config
        # None is what comes without an Origin: no browser, so nothing to protect it from.
        origins = [*map(Origin, config.origins), None] if config.origins else None
        self._frames = ServerProtocol(
            origins=origins,
            subprotocols=SUBPROTOCOLS,
            max_size=FRAME_OVERHEAD_BYTES
            + min(adapter.config.connect_bytes_max, adapter.config.packet_bytes_max),
        )
        self._unread = memoryview(b"")
        self._control_count = 0  # in this second; before the login in all
        self._counted_s = listener.now_s

    def begin(self, connect: Connect) -> None:
        """See ``MqttConnection``: frames may be larger behind CONNECT."""
        super().begin(connect)
        self._frames.max_size = self.config.packet_bytes_max + FRAME_OVERHEAD_BYTES

    def receive_stream(self, data: bytes) -> None:
        """See ``MqttConnection``: frames, or what comes before them."""
        self._unread = memoryview(bytes(self._unread) + data if self._unread else data)
        self._read_frames()

    def _read_frames(self) -> None:
        """Take a bounded number of frames of the read bytes, so that others are served soon."""
        taken_count = 0
        while (
            self._unread
            and taken_count < FRAMES_PER_TURN_MAX
            and not (self.is_closing or TURN in self._holds)
        ):
            piece, self._unread = self._unread[:SLICE_BYTES], self._unread[SLICE_BYTES:]
            taken_count += self._take_frames(piece)
        self._after_frames()
        if self._unread and not self.is_closing:
            self.hold_reads("frames")
            self.listener.loop.call_soon(self.guard, self._read_frames)
        else:
            self._unread = memoryview(b"")
            self.release_reads("frames")

    def _take_frames(self, data: memoryview) -> int:
        """Take some of the stream; return how many frames ended in it."""
        self._frames.receive_data(bytes(data))
        events = self._frames.events_received()
        for event in events:
            if isinstance(event, Request):
                self._answer_handshake(event)
            elif isinstance(event, Frame):
                self._take(event)
        return len(events)

    def _after_frames(self) -> None:
        frames = self._frames
        self._send_frames()
        if self.is_closing:
            return
        if self.state is not State.CONNECTED:
            self.keep_before_login(self._kept_bytes())
        if not frames.reader.buffer:
            self.frame_started_s = self.frame_started_s if self.reader.has_partial else None
        elif self.frame_started_s is None:
            self.frame_started_s = self.listener.now_s
        if frames.handshake_exc is not None or frames.close_expected():
            self.close()

    def _kept_bytes(self) -> int:
        """See ``MqttConnection``; a frame that is not complete is kept too."""
        return super()._kept_bytes() + len(self._frames.reader.buffer) + len(self._unread)

    def _answer_handshake(self, request: Request) -> None:
        if request.path.partition("?")[0] != self._config.path:
            response = self._frames.reject(_NOT_FOUND, "MQTT is elsewhere.\n")
        elif (refusal := self._refusal_of(request)) is not None:
            response = self._frames.reject(_FORBIDDEN, f"{refusal}\n")
        else:
            response = self._frames.accept(request)
        self._frames.send_response(response)
        if response.status_code != _SWITCHING:
            self.note("WebSocketHandshake", f"{response.status_code} {request.path[:80]!r}")

    def _refusal_of(self, request: Request) -> str | None:
        """Return the response to a web page that may not connect; None for all other clients."""
        return refusal_of(
            self._config,
            origin=next(iter(request.headers.get_all("Origin")), None),
            host=next(iter(request.headers.get_all("Host")), None),
            is_login_required=self.node.authenticator.required,
        )

    def _take(self, frame: Frame) -> None:
        if frame.opcode in CTRL_OPCODES or not frame.data:
            self._count_control()
        if frame.opcode is Opcode.TEXT:  # MQTT-6.0.0-1
            self.note("TextFrame", "a text frame; MQTT is in binary frames")
            self._frames.fail(CloseCode.UNSUPPORTED_DATA, "MQTT is in binary frames")
        elif (
            frame.opcode in {Opcode.BINARY, Opcode.CONT} and frame.data and not self.is_closing
        ):
            self.receive(bytes(frame.data))

    def _count_control(self) -> None:
        """Count a frame that carries no MQTT; too many of them end the connection."""
        now_s = self.listener.now_s
        if now_s != self._counted_s and self.state is State.CONNECTED:
            self._counted_s, self._control_count = now_s, 0
        self._control_count += 1
        if self._control_count == self._config.control_frames_max + 1:
            self.note("ControlFrames", "more than control_frames_max")
            self._frames.fail(CloseCode.POLICY_VIOLATION, "too many control frames")

    def _send_frames(self) -> None:
        """Hand the library's own bytes (handshake, Pong, Close) to the transport."""
        data = b"".join(self._frames.data_to_send())
        if data and self.transport is not None:
            self.bytes_sent += len(data)
            self.transport.write(data)

    def send_now(self, data: Buffer) -> None:
        """See ``Connection``: what leaves in one write is one frame."""
        self.send(data)

    def write_run(self, run: Sequence[Buffer]) -> None:
        """See ``Connection``: what leaves in one write is one frame."""
        assert self.transport is not None
        if self._frames.state is not OPEN:
            self.out_bytes -= sum(map(len, run))
            return
        framed = Frame(Opcode.BINARY, b"".join(run)).serialize(mask=False)
        super().write_run([framed])
        self.out_bytes += len(framed) - sum(map(len, run))

    def close(self) -> None:
        """See ``Connection``: the Close frame is the last that we write."""
        self._send_close_frame()
        super().close()

    def close_gently(self) -> None:
        """See ``Connection`` and ``close``."""
        self._send_close_frame()
        super().close_gently()

    def _send_close_frame(self) -> None:
        if self.transport is not None and not self.is_closing and self._frames.state is OPEN:
            if self._out:
                self._write_all()
            self._frames.send_close(CloseCode.NORMAL_CLOSURE)
            self._send_frames()
