"""AMQP 0-9-1 client that sends what it is told, also what no client may send."""

import contextlib
import socket
from typing import Final, TypeVar

from adapters.amqp.v091.fields import EMPTY, Table
from adapters.amqp.v091.framing import (
    BODY,
    CONTENT_HEADER,
    HEARTBEAT,
    METHOD,
    PROTOCOL_HEADER,
    Frame,
    FrameReader,
    decode_content_header,
    encode_content,
    encode_method_frame,
)
from adapters.amqp.v091.methods.basic import BasicDeliver, BasicGetOk, BasicPublish, BasicReturn
from adapters.amqp.v091.methods.channel import ChannelClose, ChannelOpen, ChannelOpenOk
from adapters.amqp.v091.methods.codec import decode_method
from adapters.amqp.v091.methods.connection import (
    ConnectionClose,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
)
from adapters.amqp.v091.methods.model import Method
from adapters.amqp.v091.properties import NO_PROPERTIES

_M = TypeVar("_M", bound=Method)
WITHIN_S: Final = 20.0
FRAME_BYTES_MAX: Final = 131_072
_CONTENT_METHODS: Final = (BasicDeliver, BasicGetOk, BasicReturn)


class Closed(Exception):
    """The peer has closed the connection."""


class Message:
    """A content with the method it came with."""

    def __init__(self, method: Method, properties: bytes, body: bytes) -> None:
        self.method = method
        self.properties = properties
        self.body = body


class RawAmqp:
    """A connection. ``ask`` sends a method and returns the answer to it."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = FrameReader(1 << 24)
        self._frames: list[Frame] = []
        self.frame_bytes_max = FRAME_BYTES_MAX

    # --- bytes and frames

    def send_bytes(self, data: bytes) -> None:
        """Send any bytes."""
        self.socket.sendall(data)

    def send(self, channel: int, *methods: Method) -> None:
        """Send methods in one write."""
        self.send_bytes(b"".join(encode_method_frame(channel, one) for one in methods))

    def read_frame(self) -> Frame:
        """Return the next frame that is no heartbeat. Errors: ``Closed``, ``TimeoutError``."""
        while True:
            while not self._frames:
                data = self.socket.recv(65_536)
                if not data:
                    raise Closed
                self._frames += self._reader.receive(data)
            frame = self._frames.pop(0)
            if frame.kind != HEARTBEAT:
                return frame

    def read_bytes(self) -> bytes:
        """Return all bytes that come until the peer closes."""
        found = b""
        with contextlib.suppress(ConnectionResetError):
            while data := self.socket.recv(65_536):
                found += data
        return found

    def read(self) -> Method:
        """Return the next method."""
        frame = self.read_frame()
        assert frame.kind == METHOD, frame
        return decode_method(frame.payload)

    def read_message(self) -> Message:
        """Return the next method with its content."""
        method = self.read()
        assert isinstance(method, _CONTENT_METHODS), method
        frame = self.read_frame()
        assert frame.kind == CONTENT_HEADER
        header = decode_content_header(frame.payload)
        body = b""
        while len(body) < header.body_bytes:
            frame = self.read_frame()
            assert frame.kind == BODY
            body += frame.payload
        return Message(method, header.properties, body)

    def ask(self, channel: int, method: Method, answer: type[_M]) -> _M:
        """Send a method and return its answer."""
        self.send(channel, method)
        found = self.read()
        assert isinstance(found, answer), found
        return found

    def fault(self, channel: int, *methods: Method) -> str:
        """Send methods; return code, text and culprit of the close that answers the last."""
        self.send(channel, *methods)
        return self.closed()

    def closed(self) -> str:
        """Return the next close as text, answers before it left out."""
        while True:
            found = self.read()
            if isinstance(found, ChannelClose | ConnectionClose):
                kind = "channel" if isinstance(found, ChannelClose) else "connection"
                ids = f"{found.class_id},{found.method_id}"
                return f"{kind} {found.reply_code} {found.reply_text} ({ids})"

    # --- the usual

    def open(
        self,
        *,
        vhost: str = "/",
        user: str = "guest",
        password: str = "guest",  # noqa: S107 - everybody's
        properties: Table = EMPTY,
        heartbeat_s: int = 0,
    ) -> "RawAmqp":
        """Log in and open a vhost."""
        self.start(user=user, password=password, properties=properties)
        self.send(0, ConnectionTuneOk(2_047, FRAME_BYTES_MAX, heartbeat_s))
        self.ask(0, ConnectionOpen(vhost), ConnectionOpenOk)
        return self

    def start(
        self,
        *,
        user: str = "guest",
        password: str = "guest",  # noqa: S107 - everybody's
        properties: Table = EMPTY,
    ) -> ConnectionTune:
        """Log in; return the server's limits."""
        self.send_bytes(PROTOCOL_HEADER)
        assert isinstance(self.read(), ConnectionStart)
        response = f"\0{user}\0{password}".encode()
        return self.ask(
            0, ConnectionStartOk(properties, "PLAIN", response, "en_US"), ConnectionTune
        )

    def channel(self, number: int = 1) -> int:
        """Open a channel."""
        self.ask(number, ChannelOpen(), ChannelOpenOk)
        return number

    def publish(
        self,
        channel: int,
        routing_key: str,
        body: bytes,
        *,
        exchange: str = "",
        mandatory: bool = False,
        immediate: bool = False,
        properties: bytes = NO_PROPERTIES,
    ) -> None:
        """Publish one message."""
        method = BasicPublish(0, exchange, routing_key, mandatory, immediate)
        content = encode_content(channel, properties, body, self.frame_bytes_max)
        self.send_bytes(encode_method_frame(channel, method) + b"".join(content))

    def close(self) -> None:
        """Close the socket, without a word."""
        self.socket.close()
