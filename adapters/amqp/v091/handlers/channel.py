"""The classes channel and access."""

from adapters.amqp.v091.channel import Channel
from adapters.amqp.v091.errors import AmqpFault, ReplyCode
from adapters.amqp.v091.methods.channel import (
    AccessRequest,
    AccessRequestOk,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOpen,
    ChannelOpenOk,
)


def open_(channel: Channel, _method: ChannelOpen) -> None:
    """Answer; a second open is a fault."""
    if channel.is_open:
        raise AmqpFault(ReplyCode.CHANNEL_ERROR, "second 'channel.open' seen")
    channel.is_open = True
    channel.send(ChannelOpenOk())


def close(channel: Channel, _method: ChannelClose) -> None:
    """Return what is in flight, and free the number."""
    channel.close()
    channel.connection.channels.forget(channel)
    channel.send(ChannelCloseOk())


def close_ok(channel: Channel, _method: ChannelCloseOk) -> None:
    """Ignore the answer to a close that was not sent."""
    del channel


def flow(channel: Channel, method: ChannelFlow) -> None:
    """Answer active=true; deliveries are not stopped by flow (RabbitMQ's errata)."""
    if not method.active:
        raise AmqpFault(ReplyCode.NOT_IMPLEMENTED, "active=false")
    channel.send(ChannelFlowOk(active=True))


def access_request(channel: Channel, _method: AccessRequest) -> None:
    """Answer old clients; tickets have no meaning."""
    channel.send(AccessRequestOk(1))
