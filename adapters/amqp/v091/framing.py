"""Frames: cut from bytes, and made (AMQP 0-9-1 section 4.2.3).

A frame is its type, channel, size, payload and an end byte. What travels by the million, methods
of publishing and acknowledging, is recognized here by its first bytes and never becomes a
dataclass.
"""

import struct
from typing import Final, NamedTuple

from adapters.amqp.v091.errors import FrameFault
from adapters.amqp.v091.methods.codec import encode_method
from adapters.amqp.v091.methods.model import Method
from gateway.model import Buffer

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
PROTOCOL_HEADERS: Final = frozenset(
    {PROTOCOL_HEADER, b"AMQP\x01\x01\x00\x09"}
)  # 0-9 is the same
HEADER_BYTES: Final = 7
OVERHEAD_BYTES: Final = 8
END: Final = 0xCE
_END_BYTE: Final = b"\xce"

METHOD: Final = 1
CONTENT_HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8
HEARTBEAT_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"

PUBLISH: Final = b"\x00\x3c\x00\x28"  # how the payload of basic.publish begins
_PUBLISH: Final = (60, 40)
_INDEX_BYTES: Final = 4
_HEAD: Final = struct.Struct(">BHI")
_TOLERATED_BYTES: Final = 8  # clients that count the payload only, as RabbitMQ lets them


class Frame(NamedTuple):
    """Frame of any type, as bytes."""

    kind: int
    channel: int
    payload: bytes


class FrameReader:
    """Cuts frames from the bytes of a connection. ``frame_bytes_max`` may change at any time."""

    __slots__ = ("_fault", "_rest", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._rest = b""
        self._fault: FrameFault | None = None

    @property
    def kept_bytes(self) -> int:
        """Number of bytes of a frame that is not complete."""
        return len(self._rest)

    def take_protocol_header(self, data: Buffer) -> bytes | None:
        """Return the first eight bytes once they are there; the rest is kept for ``receive``."""
        self._rest += bytes(data)
        if len(self._rest) < len(PROTOCOL_HEADER):
            return None
        size = len(PROTOCOL_HEADER)
        header, self._rest = self._rest[:size], self._rest[size:]
        return header

    def receive(self, data: Buffer) -> list[Frame]:
        """Return the frames that are complete, up to the first damaged one: see ``check``."""
        block = self._rest + bytes(data) if self._rest else bytes(data)
        payload_bytes_max = self.frame_bytes_max - OVERHEAD_BYTES + _TOLERATED_BYTES
        frames: list[Frame] = []
        at, end = 0, len(block)
        while at + HEADER_BYTES <= end:
            kind, channel, size = _HEAD.unpack_from(block, at)
            if size > payload_bytes_max:
                return self._end_at(
                    frames,
                    f"type {kind}, payload of {size} bytes is larger than negotiated maximum "
                    f"size of {payload_bytes_max}",
                )
            stop = at + HEADER_BYTES + size
            if stop >= end:
                break
            if block[stop] != END:
                return self._end_at(frames, f"invalid frame end marker {block[stop]}")
            frames.append(Frame(kind, channel, block[at + HEADER_BYTES : stop]))
            at = stop + 1
        self._rest = block[at:]
        return frames

    def _end_at(self, frames: list[Frame], text: str) -> list[Frame]:
        self._rest = b""
        self._fault = FrameFault(text)
        return frames

    def check(self) -> None:
        """Raise the fault that has ended the last ``receive``. Error: ``FrameFault``."""
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault


def index_of(frame: Frame) -> tuple[int, int]:
    """Return class and method id of a frame; a content belongs to basic.publish."""
    kind, _, payload = frame
    if kind in {CONTENT_HEADER, BODY}:
        return _PUBLISH
    if kind != METHOD or len(payload) < _INDEX_BYTES:
        return (0, 0)
    return int.from_bytes(payload[:2], "big"), int.from_bytes(payload[2:4], "big")


def encode_frame(kind: int, channel: int, payload: bytes) -> bytes:
    """Return one frame."""
    return _HEAD.pack(kind, channel, len(payload)) + payload + _END_BYTE


def encode_method_frame(channel: int, method: Method) -> bytes:
    """Return the frame of a method."""
    return encode_frame(METHOD, channel, encode_method(method))


def encode_content(
    channel: int, properties: bytes, body: bytes, frame_bytes_max: int
) -> list[bytes]:
    """Return the frames of a content; ``properties`` begin with their flags.

    An empty body has no body frame. ``frame_bytes_max`` 0 stands for no limit.
    """
    header = _CONTENT.pack(_BASIC, 0, len(body)) + properties
    frames = [encode_frame(CONTENT_HEADER, channel, header)]
    size_max = frame_bytes_max - OVERHEAD_BYTES if frame_bytes_max else len(body)
    if len(body) <= size_max:
        if body:
            frames.append(encode_frame(BODY, channel, body))
        return frames
    frames += [
        encode_frame(BODY, channel, body[start : start + size_max])
        for start in range(0, len(body), size_max)
    ]
    return frames


_CONTENT: Final = struct.Struct(">HHQ")
_BASIC: Final = 60


class ContentHeader(NamedTuple):
    """Content header of the class basic; ``properties`` begin with their flags, as sent."""

    body_bytes: int
    properties: bytes


def decode_content_header(payload: bytes) -> ContentHeader:
    """Return a content header. Error: ``FrameFault`` for another class, or a frame too short."""
    try:
        class_id, weight, body_bytes = _CONTENT.unpack_from(payload)
    except struct.error:
        raise FrameFault("content header is too short") from None
    if class_id != _BASIC or weight:
        raise FrameFault(f"content header of class {class_id}, weight {weight}")
    return ContentHeader(body_bytes, payload[_CONTENT.size :])
