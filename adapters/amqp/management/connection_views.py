"""Connections, channels and consumers as JSON."""

from collections.abc import Iterator
from typing import Any

from adapters.amqp.management.views import Json, node_name, table_view
from adapters.amqp.v091.channel import Channel
from adapters.amqp.v091.connection import AmqpConnection
from adapters.amqp.v091.consuming import Consumer
from adapters.amqp.v091.session import State
from adapters.amqp.v091.stream_consumer import StreamConsumer
from gateway.config.base import Address

AnyConsumer = Consumer | StreamConsumer


def connection_name(connection: AmqpConnection) -> str:
    """Return the name of a connection: its two ends."""
    port = _peer(connection)["peer_port"]
    here = Address(connection.listener.host, connection.listener.port)
    return f"{Address(connection.peer_host, port)} -> {here}"


def connection_view(connection: AmqpConnection) -> Json:
    """Return an open connection."""
    transport = connection.transport
    tuning = connection.tuning
    is_tls = transport is not None and transport.get_extra_info("ssl_object") is not None
    return {
        "name": connection_name(connection),
        "vhost": connection.vhost,
        "user": connection.user_name,
        "node": node_name(connection.node),
        "state": "flow" if connection.is_full else "running",
        "type": "network",
        "protocol": "AMQP 0-9-1",
        "auth_mechanism": connection.client.mechanism,
        **_peer(connection),
        "host": connection.listener.host,
        "port": connection.listener.port,
        "ssl": is_tls,
        "channels": connection.channels.count,
        "channel_max": tuning.channels_max,
        "frame_max": tuning.frame_bytes_max,
        "timeout": tuning.heartbeat_s,
        "connected_at": _connected_unix_ms(connection),
        "client_properties": table_view(connection.client.properties),
        "recv_oct": connection.bytes_received,
        "send_oct": connection.bytes_sent,
    }


def is_open(connection: AmqpConnection) -> bool:
    """Say whether a connection has opened a vhost."""
    return connection.state is State.OPEN and not connection.is_closing


def channels_of(connection: AmqpConnection) -> list[Channel]:
    """Return the open channels of a connection, by number."""
    return sorted(
        (one for one in connection.channels.everything() if not one.is_ended),
        key=lambda one: one.number,
    )


def channel_name(connection: AmqpConnection, channel: Channel) -> str:
    """Return the name of a channel."""
    return f"{connection_name(connection)} ({channel.number})"


def channel_view(connection: AmqpConnection, channel: Channel) -> Json:
    """Return an open channel."""
    confirms = channel.confirms
    transaction = channel.transaction
    return {
        "name": channel_name(connection, channel),
        "number": channel.number,
        "vhost": connection.vhost,
        "user": connection.user_name,
        "node": node_name(connection.node),
        "state": "running",
        "confirm": confirms is not None,
        "transactional": transaction is not None,
        "prefetch_count": channel.prefetch_count,
        "global_prefetch_count": channel.channel_prefetch_count,
        "consumer_count": len(channel.consumers),
        "messages_unacknowledged": channel.unacked.count,
        "messages_unconfirmed": 0 if confirms is None else confirms.unconfirmed_count,
        "connection_details": _connection_details(connection),
    }


def consumer_view(connection: AmqpConnection, channel: Channel, consumer: AnyConsumer) -> Json:
    """Return a consumer."""
    return {
        "consumer_tag": consumer.tag,
        "ack_required": not consumer.no_ack,
        "exclusive": consumer.is_exclusive,
        "active": consumer.is_active,
        "activity_status": "up" if consumer.is_active else "waiting",
        "prefetch_count": consumer.prefetch_count,
        "arguments": {"x-priority": consumer.priority} if consumer.priority else {},
        "queue": {"name": consumer.queue_name, "vhost": connection.vhost},
        "channel_details": {
            "name": channel_name(connection, channel),
            "number": channel.number,
            "user": connection.user_name,
            "node": node_name(connection.node),
            "connection_name": connection_name(connection),
            **_peer(connection),
        },
    }


def consumers_of(
    connection: AmqpConnection,
) -> Iterator[tuple[Channel, AnyConsumer]]:
    """Yield the consumers of a connection, with their channels."""
    for channel in channels_of(connection):
        for consumer in channel.consumers.values():
            yield channel, consumer


def _connection_details(connection: AmqpConnection) -> Json:
    return {"name": connection_name(connection), **_peer(connection)}


def _peer(connection: AmqpConnection) -> dict[str, Any]:
    transport = connection.transport
    peer = transport.get_extra_info("peername") if transport is not None else None
    port = peer[1] if isinstance(peer, tuple) else 0
    return {"peer_host": connection.peer_host, "peer_port": port}


def _connected_unix_ms(connection: AmqpConnection) -> int:
    age_s = connection.listener.now_s - connection.connected_s
    return connection.node.kernel.clock.unix_ms() - round(age_s * 1_000)
