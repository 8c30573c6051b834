"""Views of connections and channels, and the end of a connection."""

from collections.abc import Mapping
from typing import Any, Final

from adapters.amqp.admin.listing import listed
from adapters.amqp.management.connection_views import (
    channel_name,
    channels_of,
    connection_name,
    connection_view,
    is_open,
)
from adapters.amqp.management.endpoint import AmqpEndpoint
from adapters.amqp.v091.channel import Channel
from adapters.amqp.v091.connection import AmqpConnection
from adapters.amqp.v091.errors import AmqpFault, ReplyCode
from adapters.amqp.v091.throttling import DISK, WAL
from gateway.admin.requests import NotFound
from gateway.admin_views import ViewQuery
from gateway.errors import InvalidRequest

_CLOSED: Final = "closed by an administrator"
_HELD: Final = {
    DISK: "blocked: the storage is full",
    WAL: "paused: the log has more than it can write",
}


class ConnectionNotFound(NotFound):
    """No open connection has such a name."""


def _open(endpoint: AmqpEndpoint, vhost: str | None = None) -> list[AmqpConnection]:
    return [
        one
        for one in endpoint.amqp_connections()
        if is_open(one) and (not vhost or one.vhost == vhost)
    ]


async def connections(endpoint: AmqpEndpoint, query: ViewQuery) -> dict[str, Any]:
    """Return a page of open connections, of one ``vhost`` or of all."""
    return await listed(
        query,
        _open(endpoint, query.values.get("vhost")),
        sorts={
            "name": connection_name,
            "user": lambda one: (one.user_name, connection_name(one)),
            "vhost": lambda one: (one.vhost, connection_name(one)),
            "channels": lambda one: one.channels.count,
            "unacked": _unacked_count,
            "state": lambda one: (_state(one), connection_name(one)),
        },
        text=lambda one: f"{connection_name(one)} {one.user_name} {one.vhost}",
        view=_connection_view,
    )


def _unacked_count(connection: AmqpConnection) -> int:
    return sum(one.unacked.count for one in connection.channels.everything())


def _state(connection: AmqpConnection) -> str:
    """Return what holds a connection up, or ``running``."""
    held = _HELD.get(connection.throttle.held_for)
    if held is not None:
        return held
    return "the client reads slowly" if connection.is_full else "running"


def _connection_view(connection: AmqpConnection) -> dict[str, Any]:
    view = connection_view(connection)
    properties = view["client_properties"]
    client = [properties.get(name) for name in ("product", "version")]
    return {
        "name": view["name"],
        "client_name": _text(properties.get("connection_name")),
        "client": " ".join(_text(one) for one in client if one),
        "user": view["user"],
        "vhost": view["vhost"],
        "state": _state(connection),
        "is_blocked": bool(connection.throttle.held_for),
        "is_tls": view["ssl"],
        "channels": view["channels"],
        "unacked": _unacked_count(connection),
        "received_bytes": view["recv_oct"],
        "sent_bytes": view["send_oct"],
        "connected_unix_ms": view["connected_at"],
    }


def _text(value: object) -> str:
    """Return what a client says of itself, which may be of any type."""
    return "" if value is None else str(value)[:200]


# --- channels


async def channels(endpoint: AmqpEndpoint, query: ViewQuery) -> dict[str, Any]:
    """Return a page of open channels, of one ``vhost`` or ``connection``, or of all."""
    wanted = query.values.get("connection")
    rows = [
        (connection, channel)
        for connection in _open(endpoint, query.values.get("vhost"))
        if not wanted or connection_name(connection) == wanted
        for channel in channels_of(connection)
    ]
    return await listed(
        query,
        rows,
        sorts={
            "name": lambda row: (connection_name(row[0]), row[1].number),
            "user": lambda row: (row[0].user_name, row[1].number),
            "prefetch": lambda row: row[1].prefetch_count,
            "consumers": lambda row: len(row[1].consumers),
            "unacked": lambda row: row[1].unacked.count,
        },
        text=lambda row: f"{channel_name(*row)} {row[0].user_name} {row[0].vhost}",
        view=lambda row: _channel_view(*row),
    )


def _channel_view(connection: AmqpConnection, channel: Channel) -> dict[str, Any]:
    confirms = channel.confirms
    consumers = list(channel.consumers.values())
    return {
        "name": channel_name(connection, channel),
        "connection": connection_name(connection),
        "number": channel.number,
        "user": connection.user_name,
        "vhost": connection.vhost,
        "prefetch": max([one.prefetch_count for one in consumers], default=0)
        or channel.prefetch_count,
        "channel_prefetch": channel.channel_prefetch_count,
        "consumers": len(consumers),
        "queues": sorted({one.queue_name for one in consumers})[:10],
        "unacked": channel.unacked.count,
        "unconfirmed": None if confirms is None else confirms.unconfirmed_count,
        "is_transactional": channel.transaction is not None,
        "is_blocked": bool(connection.throttle.held_for),
    }


async def close_connection(endpoint: AmqpEndpoint, values: Mapping[str, Any]) -> dict[str, Any]:
    """End a connection: 320 CONNECTION_FORCED. Errors: ``ConnectionNotFound``, ``InvalidRequest``.

    What its channels have in flight returns to the queues.
    """
    name = values.get("name")
    if not isinstance(name, str):
        raise InvalidRequest("name: the name of a connection")
    for connection in _open(endpoint):
        if connection_name(connection) == name:
            fault = AmqpFault(ReplyCode.CONNECTION_FORCED, _CLOSED)
            connection.guard(connection.end, fault)
            return {"name": name}
    raise ConnectionNotFound(f"no open connection {name[:200]!r}")
