"""The class queue: declaring, deleting, binding and purging queues."""

import base64
import contextlib
import os
from functools import partial
from typing import Final

from adapters.amqp.limits import check_queue_limit
from adapters.amqp.names import to_topic_name
from adapters.amqp.node import queue_resource
from adapters.amqp.queue_arguments import (
    STREAM,
    check_arguments,
    check_served,
    queue_type,
)
from adapters.amqp.queues import Declaration, check_equal, check_replicated, name_of
from adapters.amqp.replies import REPLY_TO
from adapters.amqp.stream_arguments import check_sizes
from adapters.amqp.streams import Stream
from adapters.amqp.v091.channel import Channel
from adapters.amqp.v091.errors import AmqpFault, ReplyCode
from adapters.amqp.v091.handlers import stream
from adapters.amqp.v091.handlers.exchange import (
    change_binding,
    check_exists,
    check_not_default,
    strip_name,
)
from adapters.amqp.v091.methods.queue import (
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    QueueUnbind,
    QueueUnbindOk,
)
from adapters.amqp.v091.publishing import to_values
from features.routing.model import Binding, Destination, format_arguments
from gateway.auth.ports import Operation
from gateway.errors import TopicExists, TopicNotFound
from gateway.futures import await_done
from gateway.queues.create_queue import make_queue
from gateway.queues.manager import Queue
from gateway.queues.model import QueueSettings

_RESERVED: Final = "amq."
_RANDOM_BYTES: Final = 16


def random_name(prefix: str) -> str:
    """Return a name with 22 random characters behind a prefix."""
    random = base64.urlsafe_b64encode(os.urandom(_RANDOM_BYTES)).rstrip(b"=")
    return prefix + random.decode("ascii")


async def declare(channel: Channel, method: QueueDeclare) -> None:
    """Make a queue, or check that an equal one is there."""
    node = channel.connection.node
    name = strip_name(method.queue) or random_name("amq.gen-")
    if name.startswith(REPLY_TO):
        _declare_requester(channel, name)
        channel.last_queue = name
        if not method.nowait:
            channel.send(QueueDeclareOk(name, 0, 1))
        return
    found: Queue | Stream | None
    if method.passive:
        found = stream.find(channel, name) or node.get_queue(channel.connection, name)
    else:
        found = None if _is_durable(method) else _declare_transient(channel, method, name)
        if found is None:
            found = await node.changes.make(_declare_stored, channel, method, name)
    if isinstance(found, Queue):
        found.usage.touch()
    channel.last_queue = name
    if not method.nowait:
        channel.send(QueueDeclareOk(name, *_counts(channel, found)))


def _counts(channel: Channel, found: Queue | Stream) -> tuple[int, int]:
    """Return the numbers of messages and consumers; RabbitMQ counts no consumers of streams."""
    if isinstance(found, Stream):
        return channel.connection.node.streams.message_count(found), 0
    return found.counts().ready, len(found.consumers)


def _declare_requester(channel: Channel, name: str) -> None:
    """Check that a requester of direct reply-to is there. Error: ``AmqpFault`` 404."""
    connection = channel.connection
    if not connection.node.requesters.has(connection.namespace, name):
        raise AmqpFault(ReplyCode.NOT_FOUND, f"no {queue_resource(connection, name)}")


def _is_durable(method: QueueDeclare) -> bool:
    return method.durable and not method.exclusive


def _declare_transient(
    channel: Channel, method: QueueDeclare, name: str
) -> Queue | Stream | None:
    """Make a queue in memory at once; None when there is a topic of its name."""
    connection = channel.connection
    node = connection.node
    wanted, found = _prepare(channel, method, name)
    if found is not None:
        return found
    topic_name = to_topic_name(connection.namespace, name)
    try:
        queue = node.transient.create(
            topic_name,
            _settings(channel, method, name),
            attributes=wanted.to_attributes(name, node.node_id),
        )
    except TopicExists:
        return None
    if method.exclusive:
        node.own(connection, queue)
    return queue


async def _declare_stored(channel: Channel, method: QueueDeclare, name: str) -> Queue | Stream:
    """Make a queue or a stream, on the topic of its name if there is one."""
    connection = channel.connection
    node = connection.node
    wanted, found = _prepare(channel, method, name)
    if found is not None:
        return found
    topic_name = to_topic_name(connection.namespace, name)
    if queue_type(method.arguments) == STREAM:
        return await node.streams.make(topic_name, name, wanted)
    queue = await make_queue(
        node.kernel.queues,
        node.kernel.topics,
        topic_name,
        _settings(channel, method, name),
        partitions=1,
        attributes=wanted.to_attributes(name, node.node_id),
    )
    if method.exclusive and channel.is_ended:  # nobody else may have it
        node.delete_soon(queue)
    elif method.exclusive:
        node.own(connection, queue)
    return queue


def _prepare(
    channel: Channel, method: QueueDeclare, name: str
) -> tuple[Declaration, Queue | Stream | None]:
    """Check a declaration; return it with the queue or stream when that is there already."""
    connection = channel.connection
    resource = queue_resource(connection, name)
    wanted = Declaration(
        _is_durable(method), method.exclusive, method.auto_delete, method.arguments
    )
    connection.access.check_queue(Operation.CREATE, name)
    if (found := stream.find(channel, name)) is not None:
        stream.check_equal(wanted, found, resource)
        return wanted, found
    queue = connection.node.find_queue(connection, name)
    if queue is not None:
        check_equal(wanted, queue, resource)
        return wanted, queue
    if method.queue and name.startswith(_RESERVED):
        text = f"queue name '{name}' contains reserved prefix 'amq.*'"
        raise AmqpFault(ReplyCode.ACCESS_REFUSED, text)
    check_arguments(method.arguments, resource)
    check_served(method.arguments, resource)
    check_replicated(wanted, resource)
    check_sizes(method.arguments)
    connection.access.check_dead_letters(name, method.arguments)
    check_queue_limit(connection.node, connection.vhost, name)
    return wanted, None


def _settings(channel: Channel, method: QueueDeclare, name: str) -> QueueSettings:
    connection = channel.connection
    policies = connection.node.policies
    return policies.settings_for(connection.namespace, name, method.arguments)


def _name(channel: Channel, name: str) -> str:
    """Return the queue that a method names; empty: the one declared last on the channel."""
    if name:
        return name
    if not channel.last_queue:
        raise AmqpFault(ReplyCode.NOT_FOUND, "no previously declared queue")
    return channel.last_queue


async def bind(channel: Channel, method: QueueBind) -> None:
    """Bind a queue to an exchange."""
    await change_binding(channel, _binding(channel, method), is_bound=True)
    if not method.nowait:
        channel.send(QueueBindOk())


async def unbind(channel: Channel, method: QueueUnbind) -> None:
    """Remove a binding; one that is not there is no fault."""
    await change_binding(channel, _binding(channel, method), is_bound=False)
    channel.send(QueueUnbindOk())


def _binding(channel: Channel, method: QueueBind | QueueUnbind) -> Binding:
    connection = channel.connection
    name = _name(channel, method.queue)
    routing_key = method.routing_key if method.queue or method.routing_key else name
    check_not_default(method.exchange)
    connection.access.check_queue(Operation.WRITE, name)
    connection.access.check_exchange(Operation.READ, method.exchange)
    if stream.find(channel, name) is None:
        connection.node.get_queue(connection, name)
    check_exists(channel, method.exchange)
    text = format_arguments(to_values(method.arguments))
    topic_name = to_topic_name(connection.namespace, name).name
    return Binding(method.exchange, Destination(topic_name), routing_key, text)


async def purge(channel: Channel, method: QueuePurge) -> None:
    """Drop the messages that are ready."""
    connection = channel.connection
    name = _name(channel, method.queue)
    connection.access.check_queue(Operation.READ, name)
    stream.refuse(channel, name, "queue.purge")
    queue = connection.node.get_queue(connection, name)
    count = queue.counts().ready
    await await_done(partial(queue.purge, ready_only=True))
    if not method.nowait:
        channel.send(QueuePurgeOk(count))


async def delete(channel: Channel, method: QueueDelete) -> None:
    """Delete a queue; one that is not there is no fault."""
    connection = channel.connection
    node = connection.node
    name = _name(channel, method.queue)
    connection.access.check_queue(Operation.DELETE, name)
    count = 0
    if (declared := stream.find(channel, name)) is not None:
        await stream.delete(channel, declared)
    elif (queue := node.find_queue(connection, name)) is not None:
        resource = queue_resource(connection, name_of(queue))
        count = queue.counts().ready
        if method.if_unused and len(queue.consumers):
            raise AmqpFault(ReplyCode.PRECONDITION_FAILED, f"{resource} in use")
        if method.if_empty and count:
            raise AmqpFault(ReplyCode.PRECONDITION_FAILED, f"{resource} not empty")
        with contextlib.suppress(TopicNotFound):  # another client was faster
            await node.delete_queue(queue)
    if not method.nowait:
        channel.send(QueueDeleteOk(count))
