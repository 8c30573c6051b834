"""Frames of deliveries: one write for all messages that a consumer is dealt at once."""

from collections.abc import Sequence

from adapters.amqp.mapping import find_exchange, to_properties
from adapters.amqp.queues import name_of
from adapters.amqp.v091.delivery_frames import DeliveryFrames
from adapters.amqp.v091.fields import encode_shortstr
from adapters.amqp.v091.framing import encode_content, encode_method_frame
from adapters.amqp.v091.methods.basic import BasicGetOk
from adapters.amqp.v091.ports import ChannelPort
from adapters.amqp.v091.redelivered import counted
from adapters.amqp.v091.shown import to_columns
from adapters.amqp.v091.sources import QueueSource, settle_delivered
from gateway.queues.delivered_ranges import DeliveredRange
from gateway.queues.model import Outcome
from gateway.queues.shown_forms import Columns
from gateway.queues.unacked import Unacked


def deliver(
    channel: ChannelPort, source: QueueSource, ranges: Sequence[DeliveredRange]
) -> None:
    """Send messages of one consumer, and keep them as not acknowledged."""
    connection = channel.connection
    default = _default_origin(source)
    for one in ranges:
        first_tag = channel.next_tags(len(one.offsets))
        _keep(channel, source, first_tag, one)
        origins, properties, bodies = _columns(channel, source, one)
        properties = counted(source.queue, one, properties)
        frames = DeliveryFrames(channel, source.tag, is_redelivered=one.attempt > 1)
        parts: list[bytes] = []
        for tag, (origin, made, body) in enumerate(
            zip(origins, properties, bodies, strict=True), first_tag
        ):
            frames.add(parts, tag, origin or default, made, body)
        connection.send(b"".join(parts))


def send_got(channel: ChannelPort, source: QueueSource, one: DeliveredRange) -> None:
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


def _columns(channel: ChannelPort, source: QueueSource, one: DeliveredRange) -> Columns:
    node = channel.connection.node
    found = source.queue.shown_of(one, node.show)
    if found is None:  # too large to be kept in this form
        return to_columns(source.queue.records_of(one), node.reserved_prefixes)
    return found


def _default_origin(source: QueueSource) -> bytes:
    return encode_shortstr("") + encode_shortstr(name_of(source.queue))


def _keep(
    channel: ChannelPort, source: QueueSource, first_tag: int, one: DeliveredRange
) -> None:
    """Keep messages in flight, unless they are acknowledged as they are delivered."""
    if source.no_ack:
        return
    size = len(one.offsets)
    source.unacked_count += size
    channel.unacked.add(
        Unacked(first_tag, size, source, one.number, one.offsets.start, one.attempt)
    )
