"""Queues: lists, one queue, declaring, deleting and purging."""

from collections.abc import AsyncIterator
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple

from starlette.responses import Response

from adapters.amqp.management.body_fields import bool_of, short_text_of, table_of
from adapters.amqp.management.call import Call
from adapters.amqp.management.connection_views import consumer_view, consumers_of, is_open
from adapters.amqp.management.errors import not_found
from adapters.amqp.management.listing import Item, reply, reply_list
from adapters.amqp.management.method_channel import MethodChannel
from adapters.amqp.management.turns import in_turns
from adapters.amqp.management.views import queue_in, queue_view, stream_view
from adapters.amqp.names import to_namespace, to_topic_name
from adapters.amqp.node import AmqpNode
from adapters.amqp.queues import name_of
from adapters.amqp.streams import Stream, is_stream, stream_of
from adapters.amqp.v091.handlers import queue as queue_methods
from adapters.amqp.v091.methods.queue import QueueDeclare, QueueDelete, QueuePurge
from gateway.queues.manager import Queue
from gateway.queues.model import DEFAULT_GROUP


async def queues_of(node: AmqpNode, vhost: str) -> AsyncIterator[Queue]:
    """Yield the queues of a vhost, those of other protocols too, in no order."""
    found = node.kernel.queues.queues(to_namespace(vhost), is_sorted=False)
    async for queue in in_turns(found):
        if queue.group == DEFAULT_GROUP and not queue.topic.is_internal:
            yield queue


class Totals(NamedTuple):
    """Counts of queues, their consumers, and their messages."""

    queues: int = 0
    consumers: int = 0
    ready: int = 0
    unacked: int = 0

    def to_messages(self) -> dict[str, int]:
        """Return the counts of messages as JSON."""
        return {
            "messages": self.ready + self.unacked,
            "messages_ready": self.ready,
            "messages_unacknowledged": self.unacked,
        }


async def totals_of(call: Call, *vhosts: str) -> Totals:
    """Return the counts of vhosts' queues, streams left out; taken in short turns."""
    queues = consumers = ready = unacked = 0
    for vhost in vhosts:
        async for queue in queues_of(call.node, vhost):
            counts = queue.counts()
            queues += 1
            ready += counts.ready + counts.delayed
            unacked += counts.in_flight
            consumers += len(queue.consumers)
    return Totals(queues, consumers, ready, unacked)


def find_queue(call: Call) -> Queue:
    """Return the queue of the path. Error: ``ApiFault`` 404."""
    name = to_topic_name(call.namespace, call.parts["queue"])
    queue = queue_in(call.node, name)
    if queue is None:
        raise not_found()
    return queue


async def streams_of(node: AmqpNode, vhost: str) -> AsyncIterator[Stream]:
    """Yield the streams of a vhost, by name."""
    async for topic in in_turns(node.kernel.topics.topics(to_namespace(vhost))):
        if (stream := stream_of(topic)) is not None:
            yield stream


async def count_streams(call: Call, *vhosts: str) -> int:
    """Return the number of streams of vhosts."""
    count = 0
    for vhost in vhosts:
        async for topic in in_turns(call.node.kernel.topics.topics(to_namespace(vhost))):
            count += is_stream(topic)
    return count


async def list_all(call: Call) -> Response:
    """Return the queues and streams of a vhost, or of all that the caller sees."""
    node = call.node
    items: list[Item] = []
    for vhost in call.vhosts():
        items += [
            Item((vhost, name_of(one)), partial(queue_view, node, one))
            async for one in queues_of(node, vhost)
        ]
        items += [
            Item((vhost, one.name), partial(stream_view, node, one))
            async for one in streams_of(node, vhost)
        ]
    return await reply_list(call, items)


def _consumers(call: Call) -> list[dict[str, Any]]:
    """Return the consumers of the path's queue."""
    return [
        consumer_view(connection, channel, consumer)
        for connection in call.endpoint.amqp_connections()
        if is_open(connection) and connection.vhost == call.vhost
        for channel, consumer in consumers_of(connection)
        if consumer.queue_name == call.parts["queue"]
    ]


async def get(call: Call) -> Response:
    """Return one queue or stream, with its consumers."""
    consumers = _consumers(call)
    stream = call.node.streams.find(call.namespace, call.parts["queue"])
    if stream is not None:
        view = stream_view(call.node, stream) | {"consumer_details": consumers}
        return reply(call, view | {"consumers": len(consumers)})
    queue = find_queue(call)
    view = queue_view(call.node, queue) | {"consumer_details": consumers}
    if queue.settings.single_active:
        active = (one["consumer_tag"] for one in consumers if one["active"])
        view["single_active_consumer_tag"] = next(active, None)
    return reply(call, view)


def _is_there(call: Call) -> bool:
    name = to_topic_name(call.namespace, call.parts["queue"])
    kernel = call.node.kernel
    is_stream = call.node.streams.find(call.namespace, call.parts["queue"]) is not None
    return is_stream or kernel.queues.find(name) is not None


async def put(call: Call) -> Response:
    """Declare a queue."""
    body = await call.body()
    name = call.parts["queue"]
    was_there = _is_there(call)
    method = QueueDeclare(
        0,
        short_text_of({"name": name}, "name"),
        passive=False,
        durable=bool_of(body, "durable"),
        exclusive=False,
        auto_delete=bool_of(body, "auto_delete"),
        nowait=False,
        arguments=table_of(body, "arguments"),
    )
    with call.audit("queue.declare", name):
        await MethodChannel(call).call(queue_methods.declare, method)
    return Response(status_code=HTTPStatus.NO_CONTENT if was_there else HTTPStatus.CREATED)


async def delete(call: Call) -> Response:
    """Delete a queue."""
    if not _is_there(call):
        raise not_found()
    method = QueueDelete(
        0,
        call.parts["queue"],
        if_unused=call.query.get("if-unused") == "true",
        if_empty=call.query.get("if-empty") == "true",
        nowait=False,
    )
    with call.audit("queue.delete", call.parts["queue"]):
        await MethodChannel(call).call(queue_methods.delete, method)
    return Response(status_code=HTTPStatus.NO_CONTENT)


async def purge(call: Call) -> Response:
    """Drop the ready messages of a queue."""
    if not _is_there(call):
        raise not_found()
    with call.audit("queue.purge", call.parts["queue"]):
        method = QueuePurge(0, call.parts["queue"], nowait=False)
        await MethodChannel(call).call(queue_methods.purge, method)
    return Response(status_code=HTTPStatus.NO_CONTENT)
