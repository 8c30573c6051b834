"""Frames of ``basic.deliver`` with its content, for messages to one consumer."""

import struct
from typing import Final

from adapters.amqp.v091.fields import encode_shortstr
from adapters.amqp.v091.framing import BODY, CONTENT_HEADER, METHOD, OVERHEAD_BYTES
from adapters.amqp.v091.methods.basic import BasicDeliver
from adapters.amqp.v091.ports import ChannelPort

_HEAD: Final = struct.Struct(">BHI")
_CONTENT: Final = struct.Struct(">HHQ")
_DELIVER: Final = struct.pack(">HH", *BasicDeliver.INDEX)
_BASIC: Final = BasicDeliver.INDEX[0]
_END: Final = b"\xce"
_TAG_BYTES: Final = 8


class DeliveryFrames:
    """Frames of deliveries to one consumer; those alike but for tag and body share their parts."""

    __slots__ = ("_after", "_before", "_channel", "_last", "_redelivered", "_size_max", "_tag")

    def __init__(self, channel: ChannelPort, tag: str, *, is_redelivered: bool) -> None:
        self._channel = channel.number
        self._size_max = channel.connection.tuning.frame_bytes_max - OVERHEAD_BYTES
        self._tag = encode_shortstr(tag)
        self._redelivered = bytes((is_redelivered,))
        self._last: tuple[bytes, bytes, int] | None = None
        self._before = self._after = b""

    def add(
        self, parts: list[bytes], tag: int, origin: bytes, properties: bytes, body: bytes
    ) -> None:
        """Add the frames of one message to ``parts``."""
        alike = origin, properties, len(body)
        if alike != self._last:
            self._last = alike
            self._make(*alike)
        parts += (self._before, tag.to_bytes(_TAG_BYTES, "big"), self._after)
        if len(body) <= self._size_max:
            if body:
                parts += (body, _END)
            return
        for start in range(0, len(body), self._size_max):
            piece = body[start : start + self._size_max]
            parts += (_HEAD.pack(BODY, self._channel, len(piece)), piece, _END)

    def _make(self, origin: bytes, properties: bytes, body_bytes: int) -> None:
        number = self._channel
        size = len(_DELIVER) + len(self._tag) + _TAG_BYTES + 1 + len(origin)
        self._before = _HEAD.pack(METHOD, number, size) + _DELIVER + self._tag
        content = _CONTENT.pack(_BASIC, 0, body_bytes) + properties
        header = _HEAD.pack(CONTENT_HEADER, number, len(content)) + content + _END
        self._after = self._redelivered + origin + _END + header
        if 0 < body_bytes <= self._size_max:
            self._after += _HEAD.pack(BODY, number, body_bytes)
