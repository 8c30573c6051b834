"""Channels of one connection: opened, found by number, closed."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from adapters.amqp.v091.channel import Channel, ChannelConnection
from adapters.amqp.v091.errors import AmqpFault, ReplyCode
from adapters.amqp.v091.framing import HEARTBEAT, METHOD, Frame
from adapters.amqp.v091.methods.channel import ChannelClose, ChannelCloseOk, ChannelOpen
from adapters.amqp.v091.methods.codec import decode_method
from adapters.amqp.v091.methods.model import Method
from adapters.amqp.v091.sources import find_lapsed
from features.queue.model import LapsedRange

Handler = Callable[[Channel, Any], Coroutine[Any, Any, None] | None]
"""Serves a method of a channel: at once, or by a coroutine for which the channel waits."""


class Channels:
    """Channels by number, with those that the server has closed and the client not yet."""

    def __init__(
        self, connection: ChannelConnection, handlers: Mapping[type[Method], Handler]
    ) -> None:
        self._connection = connection
        self._handlers = handlers
        self._channels: dict[int, Channel] = {}
        self._to_confirm: dict[Channel, None] = {}

    @property
    def count(self) -> int:
        """Number of channels."""
        return len(self._channels)

    def everything(self) -> list[Channel]:
        """Return all channels, in no order."""
        return list(self._channels.values())

    def count_kept(self) -> tuple[int, int, int]:
        """Return the bytes of incomplete contents, the bytes and the count of waiting frames."""
        content_bytes = pending_bytes = pending_count = 0
        for one in self._channels.values():
            content_bytes += one.content_bytes
            if one.pending:
                pending_bytes += one.pending_bytes
                pending_count += len(one.pending)
        return content_bytes, pending_bytes, pending_count

    @property
    def is_idle(self) -> bool:
        """Whether no channel waits for a method, and all publishes are confirmed."""
        return not any(
            one.is_waiting or (one.confirms is not None and one.confirms.unconfirmed_count)
            for one in self._channels.values()
        )

    def find(self, number: int) -> Channel | None:
        """Return a channel by its number."""
        return self._channels.get(number)

    def receive_unopened(self, frame: Frame) -> None:
        """Take a frame for a channel that is not open, or that the server is closing.

        Errors: ``AmqpFault`` 504 for a channel that is not open, 505 for a heartbeat, 530 above
        the agreed number of channels.
        """
        kind, number, payload = frame
        if kind == HEARTBEAT:
            raise AmqpFault(ReplyCode.UNEXPECTED_FRAME, f"heartbeat on channel {number}")
        method = decode_method(payload) if kind == METHOD else None
        if number in self._channels:
            if isinstance(method, ChannelClose):
                self._connection.send_method(number, ChannelCloseOk())
            if isinstance(method, ChannelClose | ChannelCloseOk):
                del self._channels[number]
            return
        if not isinstance(method, ChannelOpen):
            raise AmqpFault(ReplyCode.CHANNEL_ERROR, "expected 'channel.open'")
        count_max = self._connection.tuning.channels_max
        if number > count_max:
            raise AmqpFault(
                ReplyCode.NOT_ALLOWED,
                f"number of channels opened has reached the limit of {count_max}",
            )
        channel = self._channels[number] = Channel(self._connection, number)
        self.handle(channel, method)

    def handle(self, channel: Channel, method: Method) -> Coroutine[Any, Any, None] | None:
        """Serve a method of an open channel. Errors: ``AmqpFault``, those of the gateway."""
        handler = self._handlers.get(type(method))
        if handler is None:
            raise AmqpFault(ReplyCode.COMMAND_INVALID, f"{method.NAME} on a channel")
        self._connection.node.requests[method.NAME] += 1
        return handler(channel, method)

    def forget(self, channel: Channel) -> None:
        """Free the number of a channel that the client has closed."""
        self._channels.pop(channel.number, None)

    def confirm_soon(self, channel: Channel) -> None:
        """Send a channel's confirms at the end of this turn of the loop."""
        if not self._to_confirm:
            self._connection.loop.call_soon(self._connection.guard, self._send_confirms)
        self._to_confirm[channel] = None

    def _send_confirms(self) -> None:
        channels, self._to_confirm = self._to_confirm, {}
        for channel in channels:
            channel.send_confirms()
        self._connection.leave_if_idle()

    def on_lapsed(self, queue: object, number: int, ranges: Sequence[LapsedRange]) -> None:
        """Close the channels that have not acknowledged messages in time, as RabbitMQ does."""
        for channel in tuple(self._channels.values()):
            source = find_lapsed(channel.unacked, queue, number, ranges)
            if source is not None:
                fault = timed_out(channel.number, source.queue.settings.lease_ms)
                self._connection.guard(self._connection.fail_channel, channel, fault)

    def pause_consumers(self) -> None:
        """Deliver nothing: the socket is full."""
        for channel in self._channels.values():
            channel.pause_consumers()

    def resume_consumers(self) -> None:
        """Deliver again."""
        for channel in self._channels.values():
            channel.resume_consumers()

    def close(self) -> None:
        """End all channels; what is in flight returns to its queues."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.close()


def timed_out(number: int, timeout_ms: int) -> AmqpFault:
    """Return the fault of a channel that has kept a message for too long."""
    return AmqpFault(
        ReplyCode.PRECONDITION_FAILED,
        f"delivery acknowledgement on channel {number} timed out. Timeout value used: "
        f"{timeout_ms} ms. This timeout value can be configured, see consumers doc guide to learn "
        "more",
    )
