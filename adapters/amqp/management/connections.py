"""Connections, channels and consumers: lists, one of them, closing a connection."""

from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from typing import Final

from starlette.responses import Response

from adapters.amqp.management.call import Call
from adapters.amqp.management.caller import Need
from adapters.amqp.management.connection_views import (
    channel_name,
    channel_view,
    channels_of,
    connection_name,
    connection_view,
    consumer_view,
    consumers_of,
    is_open,
)
from adapters.amqp.management.errors import not_authorised, not_found
from adapters.amqp.management.listing import Item, reply, reply_list
from adapters.amqp.v091.connection import AmqpConnection
from adapters.amqp.v091.errors import AmqpFault, ReplyCode

_REASON_CHARS_MAX: Final = 200


def _open_connections(call: Call) -> Iterator[AmqpConnection]:
    """Yield the connections that the caller sees: a user's own, or all."""
    sees_all = call.caller.has(Need.MONITORING)
    vhost = call.parts.get("vhost")
    for connection in call.endpoint.amqp_connections():
        is_seen = sees_all or connection.user_name == call.caller.user_name
        if is_open(connection) and is_seen and vhost in {None, connection.vhost}:
            yield connection


def _find(call: Call) -> AmqpConnection:
    for connection in call.endpoint.amqp_connections():
        if is_open(connection) and connection_name(connection) == call.parts["name"]:
            _check_may_see(call, connection)
            return connection
    raise not_found()


def _check_may_see(call: Call, connection: AmqpConnection) -> None:
    is_own = connection.user_name == call.caller.user_name
    if not is_own and not call.caller.has(Need.MONITORING):
        raise not_authorised("User not authorised to access object")


async def list_connections(call: Call) -> Response:
    """Return the open connections."""
    found = [
        Item((connection_name(one),), partial(connection_view, one))
        for one in _open_connections(call)
    ]
    return await reply_list(call, found)


async def get_connection(call: Call) -> Response:
    """Return one connection."""
    return reply(call, connection_view(_find(call)))


async def close_connection(call: Call) -> Response:
    """Close a connection; the header X-Reason says why."""
    connection = _find(call)
    is_own = connection.user_name == call.caller.user_name
    if not is_own and not call.caller.has(Need.ADMINISTRATOR):
        raise not_authorised("User not authorised to access object")
    text = call.request.headers.get("x-reason", "Closed via management plugin")
    with call.audit("connection.close", call.parts["name"]):
        fault = AmqpFault(ReplyCode.CONNECTION_FORCED, text[:_REASON_CHARS_MAX])
        connection.guard(connection.end, fault)
    return Response(status_code=HTTPStatus.NO_CONTENT)


async def list_channels(call: Call) -> Response:
    """Return the open channels."""
    return await reply_list(call, _channel_items(_open_connections(call)))


async def list_channels_of(call: Call) -> Response:
    """Return the open channels of one connection."""
    return await reply_list(call, _channel_items(iter([_find(call)])))


def _channel_items(connections: Iterator[AmqpConnection]) -> list[Item]:
    return [
        Item((channel_name(connection, one),), partial(channel_view, connection, one))
        for connection in connections
        for one in channels_of(connection)
    ]


async def get_channel(call: Call) -> Response:
    """Return one channel, with its consumers."""
    for connection in call.endpoint.amqp_connections():
        if not is_open(connection):
            continue
        for channel in channels_of(connection):
            if channel_name(connection, channel) != call.parts["name"]:
                continue
            _check_may_see(call, connection)
            consumers = [
                consumer_view(connection, channel, one) for one in channel.consumers.values()
            ]
            view = channel_view(connection, channel) | {"consumer_details": consumers}
            return reply(call, view)
    raise not_found()


async def list_consumers(call: Call) -> Response:
    """Return the consumers of a vhost, or of all that the caller sees."""
    vhosts = set(call.vhosts())
    found = [
        Item(
            (connection.vhost, consumer.tag),
            partial(consumer_view, connection, channel, consumer),
        )
        for connection in call.endpoint.amqp_connections()
        if is_open(connection) and connection.vhost in vhosts
        for channel, consumer in consumers_of(connection)
    ]
    return await reply_list(call, found)
