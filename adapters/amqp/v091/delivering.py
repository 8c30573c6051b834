"""Frames of deliveries: one write for all messages that a consumer is dealt at once."""

import struct
from collections.abc import Sequence
from typing import Final

from adapters.amqp.mapping import find_exchange, to_properties
from adapters.amqp.queues import name_of
from adapters.amqp.v091.fields import encode_shortstr
from adapters.amqp.v091.framing import (
    BODY,
    CONTENT_HEADER,
    METHOD,
    OVERHEAD_BYTES,
    encode_content,
    encode_method_frame,
)
from adapters.amqp.v091.methods.basic import BasicDeliver, BasicGetOk
from adapters.amqp.v091.ports import ChannelPort
from adapters.amqp.v091.redelivered import counted
from adapters.amqp.v091.shown import to_columns
from adapters.amqp.v091.sources import Source, settle_delivered
from adapters.amqp.v091.unacked import Unacked
from gateway.queues.delivered_ranges import DeliveredRange
from gateway.queues.model import Outcome
from gateway.queues.shown_forms import Columns

_HEAD: Final = struct.Struct(">BHI")
_CONTENT: Final = struct.Struct(">HHQ")
_DELIVER: Final = struct.pack(">HH", *BasicDeliver.INDEX)
_BASIC: Final = BasicDeliver.INDEX[0]
_END: Final = b"\xce"
_TAG_BYTES: Final = 8


def deliver(channel: ChannelPort, source: Source, ranges: Sequence[DeliveredRange]) -> None:
    """Send messages of one consumer, and keep them as not acknowledged."""
    connection = channel.connection
    default = _default_origin(source)
    for one in ranges:
        first_tag = channel.next_tags(len(one.offsets))
        _keep(channel, source, first_tag, one)
        origins, properties, bodies = _columns(channel, source, one)
        properties = counted(source.queue, one, properties)
        frames = _Frames(channel, source.tag, is_redelivered=one.attempt > 1)
        parts: list[bytes] = []
        for tag, (origin, made, body) in enumerate(
            zip(origins, properties, bodies, strict=True), first_tag
        ):
            frames.add(parts, tag, origin or default, made, body)
        connection.send(b"".join(parts))


def send_got(channel: ChannelPort, source: Source, one: DeliveredRange) -> None:
    """Send the message that basic.get has taken."""
    connection = channel.connection
    tag = channel.next_tags(1)
    _keep(channel, source, tag, one)
    if source.no_ack:
        settle_delivered(source, (one,), Outcome.ACK)
    record = source.queue.records_of(one)[0]
    exchange = find_exchange(record.headers)
    routing_key = (record.key or b"").decode(errors="replace")
    if exchange is None:
        exchange, routing_key = "", name_of(source.queue)
    ready = source.queue.counts().ready
    method = BasicGetOk(tag, one.attempt > 1, exchange, routing_key, ready)
    made = to_properties(record.headers, connection.node.reserved_prefixes)
    [properties] = counted(source.queue, one, (made,))
    content = encode_content(
        channel.number, properties, record.value or b"", connection.tuning.frame_bytes_max
    )
    connection.send(encode_method_frame(channel.number, method), *content)


class _Frames:
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


def _columns(channel: ChannelPort, source: Source, one: DeliveredRange) -> Columns:
    node = channel.connection.node
    found = source.queue.shown_of(one, node.show)
    if found is None:  # too large to be kept in this form
        return to_columns(source.queue.records_of(one), node.reserved_prefixes)
    return found


def _default_origin(source: Source) -> bytes:
    return encode_shortstr("") + encode_shortstr(name_of(source.queue))


def _keep(channel: ChannelPort, source: Source, first_tag: int, one: DeliveredRange) -> None:
    """Keep messages in flight, unless they are acknowledged as they are delivered."""
    if source.no_ack:
        return
    size = len(one.offsets)
    source.unacked_count += size
    channel.unacked.add(
        Unacked(first_tag, size, source, one.number, one.offsets.start, one.attempt)
    )
