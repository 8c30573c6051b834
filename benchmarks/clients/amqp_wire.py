"""Frames prepared ahead, a scan of frame headers, and connections that have logged in.

Nothing is decoded while a run is measured: deliveries and confirms have one length each.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from adapters.amqp.v091.framing import encode_content, encode_method_frame
from adapters.amqp.v091.methods.basic import (
    BasicAck,
    BasicConsumeOk,
    BasicPublish,
    BasicQos,
    BasicQosOk,
)
from adapters.amqp.v091.methods.confirm import ConfirmSelect, ConfirmSelectOk
from adapters.amqp.v091.methods.queue import QueueDeclareOk, QueueDeleteOk
from tests.adapters.amqp.conformance.methods import consume, declare, delete
from tests.support.amqp_raw import FRAME_BYTES_MAX, RawAmqp

CHANNEL: Final = 1
CONFIRM: Final = struct.Struct(">BHIHHQBB")
"""Frame of basic.ack: type, channel, size, class, method, tag, multiple, end."""
CONFIRM_START: Final = (1, CHANNEL, 13, 60, 80)
HEADER_FRAME: Final = 2
BODY_FRAME: Final = 3
FRAME_END: Final = 0xCE
REPLY_TO_FLAGS: Final = b"\x02\x00"
PERSISTENT: Final = b"\x10\x00\x02"
TRANSIENT: Final = b"\x10\x00\x01"
_FRAME: Final = struct.Struct(">BHI")
_DELIVERY_FRAMES: Final = 3


class AmqpRunFailed(Exception):
    """The broker did what it must not: the run does not count."""


def message(exchange: str, key: str, body: bytes, properties: bytes) -> bytes:
    """Return the frames that publish a message; ``properties`` begin with their flags."""
    method = encode_method_frame(
        CHANNEL, BasicPublish(0, exchange, key, mandatory=False, immediate=False)
    )
    return method + b"".join(encode_content(CHANNEL, properties, body, FRAME_BYTES_MAX))


def acks_up_to(tag: int) -> bytes:
    """Return the frame that acknowledges all deliveries up to a tag."""
    return encode_method_frame(CHANNEL, BasicAck(tag, multiple=True))


def frames(data: bytes | bytearray | memoryview, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield type, start of the payload and end of each whole frame before ``end``."""
    at = 0
    while at + _FRAME.size < end:
        kind, _channel, size = _FRAME.unpack_from(data, at)
        after = at + _FRAME.size + size + 1
        if after > end:
            return
        yield kind, at + _FRAME.size, after
        at = after


def delivery_bytes(data: bytes | bytearray | memoryview, end: int) -> int:
    """Return the length of the delivery at the start, 0 when it is not whole yet."""
    found = list(frames(data, end))[:_DELIVERY_FRAMES]
    if len(found) < _DELIVERY_FRAMES:
        return 0
    if [kind for kind, _start, _end in found] != [1, HEADER_FRAME, BODY_FRAME]:
        msg = f"no delivery: {bytes(data[:200])!r}"
        raise AmqpRunFailed(msg)
    return found[-1][2]


def connected(port: int) -> RawAmqp:
    """Return a connection with an open channel, without heartbeats."""
    client = RawAmqp(port).open()
    client.channel(CHANNEL)
    return client


def confirming(port: int) -> RawAmqp:
    """Return a connection whose channel confirms what is published."""
    client = connected(port)
    client.ask(CHANNEL, ConfirmSelect(nowait=False), ConfirmSelectOk)
    return client


def declare_queue(client: RawAmqp, name: str, *, durable: bool = True) -> int:
    """Declare a queue and return how many messages are ready in it."""
    answer = client.ask(CHANNEL, declare(name, durable=durable), QueueDeclareOk)
    return answer.message_count


def delete_queues(client: RawAmqp, names: Sequence[str]) -> None:
    """Delete queues with all that is in them."""
    client.socket.settimeout(120)
    for name in names:
        client.ask(CHANNEL, delete(name), QueueDeleteOk)


def start_consumers(
    client: RawAmqp, queues: Sequence[str], *, prefetch: int, no_ack: bool = False
) -> None:
    """Consume queues that are empty; the tags have 3 characters."""
    if prefetch:
        client.ask(CHANNEL, BasicQos(0, prefetch, global_=False), BasicQosOk)
    for number, name in enumerate(queues):
        asked = consume(name, f"c{number:02d}", no_ack=no_ack)
        client.ask(CHANNEL, asked, BasicConsumeOk)
