"""MQTT over WebSocket (MQTT 5.0 section 6): the same packets, in binary frames.

Packets and frames need not end at the same octet (MQTT-6.0.0-2), so what frames bring is one
stream. RFC 6455 is the ``websockets`` library's part, without its I/O. We close without waiting
for the peer's Close frame: for a peer that is gone, its will would wait too.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.typing import Origin, Subprotocol

from adapters.mqtt.config import WebSocketConfig
from adapters.mqtt.connection import MqttConnection
from gateway.listener import Listener
from gateway.model import Octets

if TYPE_CHECKING:  # the adapter makes connections; they know theirs
    from adapters.mqtt.server import MqttAdapter

SUBPROTOCOLS: Final = (Subprotocol("mqtt"), Subprotocol("mqttv3.1"))
FRAME_OVERHEAD_BYTES: Final = 64 * 1024
"""What a frame may have above the largest packet: clients put several packets into one."""

_NOT_FOUND: Final = 404
_SWITCHING: Final = 101


class WebSocketConnection(MqttConnection):
    """One client behind a WebSocket."""

    is_framed: ClassVar = True

    def __init__(self, listener: Listener, adapter: "MqttAdapter") -> None:
        super().__init__(listener, adapter)
        config = listener.config
        assert isinstance(config, WebSocketConfig)
        self._path = config.path
        # None is what comes without an Origin: no browser, so nothing to protect it from.
        origins = [*map(Origin, config.origins), None] if config.origins else None
        self._frames = ServerProtocol(
            origins=origins,
            subprotocols=SUBPROTOCOLS,
            max_size=adapter.config.packet_bytes_max + FRAME_OVERHEAD_BYTES,
        )

    def octets_received(self, data: bytes) -> None:
        """See ``MqttConnection``: frames, or what comes before them."""
        frames = self._frames
        frames.receive_data(data)
        for event in frames.events_received():
            if isinstance(event, Request):
                self._answer_handshake(event)
            elif isinstance(event, Frame):
                self._take(event)
        self._send_frames()
        if self.is_closing:
            return
        if not frames.reader.buffer:
            self.frame_started_s = self.frame_started_s if self._reader.has_partial else None
        elif self.frame_started_s is None:
            self.frame_started_s = self.listener.now_s
        if frames.handshake_exc is not None or frames.close_expected():
            self.close()

    def _answer_handshake(self, request: Request) -> None:
        if request.path.partition("?")[0] == self._path:
            response = self._frames.accept(request)
        else:
            response = self._frames.reject(_NOT_FOUND, "MQTT is elsewhere.\n")
        self._frames.send_response(response)
        if response.status_code != _SWITCHING:
            self.note("WebSocketHandshake", f"{response.status_code} {request.path[:80]!r}")

    def _take(self, frame: Frame) -> None:
        if frame.opcode is Opcode.TEXT:  # MQTT-6.0.0-1
            self.note("TextFrame", "a text frame; MQTT is in binary frames")
            self._frames.fail(CloseCode.UNSUPPORTED_DATA, "MQTT is in binary frames")
        elif (
            frame.opcode in {Opcode.BINARY, Opcode.CONT} and frame.data and not self.is_closing
        ):
            self.receive(bytes(frame.data))

    def _send_frames(self) -> None:
        """Hand the library's own octets (handshake, Pong, Close) to the transport."""
        octets = b"".join(self._frames.data_to_send())
        if octets and self.transport is not None:
            self.bytes_sent += len(octets)
            self.transport.write(octets)

    def send_now(self, octets: Octets) -> None:
        """See ``Connection``: what leaves in one write is one frame."""
        self.send(octets)

    def _write(self, run: Sequence[Octets]) -> None:
        """See ``Connection``: what leaves in one write is one frame."""
        assert self.transport is not None
        if self._frames.state is not OPEN:
            self.out_bytes -= sum(map(len, run))
            return
        framed = Frame(Opcode.BINARY, b"".join(run)).serialize(mask=False)
        super()._write([framed])
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
