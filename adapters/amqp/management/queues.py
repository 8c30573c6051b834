"""Queues: lists, one queue, declaring, deleting and purging."""

import asyncio
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple

from starlette.responses import Response

from adapters.amqp.management.body_fields import bool_of, short_text_of, table_of
from adapters.amqp.management.call import Call
from adapters.amqp.management.connection_views import consumer_view, consumers_of, is_open
from adapters.amqp.management.errors import not_found
from adapters.amqp.management.listing import ROWS_PER_TURN, Item, reply, reply_list
from adapters.amqp.management.method_channel import MethodChannel
from adapters.amqp.management.views import queue_view, queues_in, stream_view, streams_in
from adapters.amqp.names import to_topic_name
from adapters.amqp.queues import name_of
from adapters.amqp.streams import Stream
from adapters.amqp.v091.handlers import queue as queue_methods
from adapters.amqp.v091.methods.queue import QueueDeclare, QueueDelete, QueuePurge
from gateway.queues.manager import Queue


def queues_of(call: Call, vhost: str) -> list[Queue]:
    """Return the queues of a vhost, those of other protocols too."""
    return queues_in(call.node, vhost)


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
    consumers = ready = unacked = 0
    queues = [queue for vhost in vhosts for queue in queues_of(call, vhost)]
    for number, queue in enumerate(queues, 1):
        counts = queue.counts()
        ready += counts.ready + counts.delayed
        unacked += counts.in_flight
        consumers += len(queue.consumers)
        if number % ROWS_PER_TURN == 0:
            await asyncio.sleep(0)
    return Totals(len(queues), consumers, ready, unacked)


def find_queue(call: Call) -> Queue:
    """Return the queue of the path. Error: ``ApiFault`` 404."""
    name = to_topic_name(call.namespace, call.parts["queue"])
    queue = call.node.kernel.queues.find(name)
    if queue is None or queue.topic.is_internal:
        raise not_found()
    return queue


def streams_of(call: Call, vhost: str) -> list[Stream]:
    """Return the streams of a vhost, by name."""
    return streams_in(call.node, vhost)


async def list_all(call: Call) -> Response:
    """Return the queues and streams of a vhost, or of all that the caller sees."""
    node = call.node
    items: list[Item] = []
    for vhost in call.vhosts():
        items += [
            Item((vhost, name_of(one)), partial(queue_view, node, one))
            for one in queues_of(call, vhost)
        ]
        items += [
            Item((vhost, one.name), partial(stream_view, node, one))
            for one in streams_of(call, vhost)
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
