"""Streams, as the methods of queues meet them: declaring, deleting, consuming."""

import contextlib

from adapters.amqp.node import queue_resource
from adapters.amqp.queue_arguments import check_equal_arguments
from adapters.amqp.queues import Declaration, check_flags, locked
from adapters.amqp.stream_arguments import (
    OFFSET,
    StartAt,
    StreamStart,
    parse_filter,
    parse_start,
)
from adapters.amqp.streams import Stream
from adapters.amqp.v091.channel import Channel
from adapters.amqp.v091.errors import AmqpFault, ReplyCode
from adapters.amqp.v091.methods.basic import BasicConsume, BasicConsumeOk
from adapters.amqp.v091.stream_consumer import StreamConsumer
from gateway.broker import Broker
from gateway.errors import TopicNotFound
from gateway.model import parse_batch_header
from gateway.partition import Partition


def find(channel: Channel, name: str) -> Stream | None:
    """Return a stream of the connection's vhost."""
    connection = channel.connection
    return connection.node.streams.find(connection.namespace, name)


def refuse(channel: Channel, name: str, what: str) -> None:
    """Refuse what streams do not have. Error: ``AmqpFault`` 540 where a stream is named."""
    if find(channel, name) is not None:
        resource = queue_resource(channel.connection, name)
        text = f"{what} not supported by stream queues {resource}"
        raise AmqpFault(ReplyCode.NOT_IMPLEMENTED, text)


def check_equal(received: Declaration, current: Stream, resource: str) -> None:
    """Check that a declaration repeats that of a stream. Errors: ``AmqpFault`` 405 and 406."""
    if received.exclusive:
        raise locked(resource)
    check_flags(received, current.declaration, resource)
    check_equal_arguments(received.arguments, current.declaration.arguments, resource)


async def delete(channel: Channel, stream: Stream) -> None:
    """Delete a stream; its consumers end."""
    with contextlib.suppress(TopicNotFound):  # another client was faster
        await channel.connection.node.streams.delete(stream)


async def consume(channel: Channel, method: BasicConsume, stream: Stream, tag: str) -> None:
    """Start a consumer at the place it asks for. Errors: ``AmqpFault``; ``NotLeader``."""
    connection = channel.connection
    node = connection.node
    _check(channel, method, queue_resource(connection, stream.name))
    start = parse_start(method.arguments.find(OFFSET), node.kernel.clock.unix_ms())
    filtered_by = parse_filter(method.arguments)
    partition = node.streams.partition(stream)
    position = await _find_position(node.kernel.broker, partition, start)
    if channel.is_ended:
        return
    channel.consumers[tag] = StreamConsumer(
        channel,
        stream,
        partition,
        tag,
        position=position,
        first_offset=start.value if start.at is StartAt.OFFSET else 0,
        filtered_by=filtered_by,
    )
    if not method.nowait:
        channel.send(BasicConsumeOk(tag))
    channel.renew_credit()


def _check(channel: Channel, method: BasicConsume, resource: str) -> None:
    """Check what streams ask of a consumer. Errors: ``AmqpFault`` 406 and 540."""
    if not channel.prefetch_count:
        text = f"consumer prefetch count is not set for stream {resource}"
        raise AmqpFault(ReplyCode.PRECONDITION_FAILED, text)
    if method.no_ack:
        text = f"automatic acknowledgement not supported by stream {resource}"
        raise AmqpFault(ReplyCode.NOT_IMPLEMENTED, text)
    if channel.channel_prefetch_count:
        text = f"{resource} does not support global qos"
        raise AmqpFault(ReplyCode.NOT_IMPLEMENTED, text)


async def _find_position(broker: Broker, partition: Partition, start: StreamStart) -> int:
    """Return the offset at which reading begins. Errors: those of ``Broker.read_disk``."""
    first, end = partition.log_start_offset, partition.stable_end
    if start.at is StartAt.FIRST:
        return first
    if start.at is StartAt.OFFSET:
        return min(max(start.value, first), end)
    if start.at is StartAt.TIME:
        found = await broker.offset_for_time(partition, start.value)
        return end if found is None else found[0]
    if start.at is StartAt.LAST and end > first:
        batches = await broker.read_disk(partition, end - 1, bytes_max=1)
        return max(parse_batch_header(batches[0]).base_offset, first) if batches else end
    return end
