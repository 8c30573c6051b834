"""Consumer of direct reply-to: answers to the requests of one channel."""

from collections.abc import Sequence

from adapters.amqp.replies import new_address
from adapters.amqp.v091.delivery_frames import DeliveryFrames
from adapters.amqp.v091.fields import encode_shortstr
from adapters.amqp.v091.ports import ChannelPort


class ReplyConsumer:
    """Consumer of ``amq.rabbitmq.reply-to``; a channel has one at most.

    ``address`` is put in the place of that name in the channel's requests. Nothing is kept: answers
    are dropped while the client reads slower than it is sent to.
    """

    __slots__ = ("_channel", "address", "tag")

    def __init__(self, channel: ChannelPort, tag: str) -> None:
        self._channel = channel
        self.tag = tag
        self.address = new_address()
        connection = channel.connection
        connection.node.requesters.add(connection.namespace, self.address, self)

    def on_replies(self, routing_key: str, properties: bytes, bodies: Sequence[bytes]) -> None:
        """See ``Requester``."""
        connection = self._channel.connection
        if connection.is_full:
            connection.note("replies", "dropped: the client reads slower than it is sent to")
            return
        connection.guard(self._send, routing_key, properties, bodies)
        connection.pause_if_full()

    def _send(self, routing_key: str, properties: bytes, bodies: Sequence[bytes]) -> None:
        channel = self._channel
        frames = DeliveryFrames(channel, self.tag, is_redelivered=False)
        origin = encode_shortstr("") + encode_shortstr(routing_key)
        parts: list[bytes] = []
        for tag, body in enumerate(bodies, channel.next_tags(len(bodies))):
            frames.add(parts, tag, origin, properties, body)
        channel.connection.send(b"".join(parts))

    def end(self) -> None:
        """Take no more answers."""
        connection = self._channel.connection
        connection.node.requesters.remove(connection.namespace, self.address)
