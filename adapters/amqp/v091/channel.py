"""One channel: its content that is being received, confirms, deliveries and consumers."""

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from adapters.amqp.v091.confirms import Confirms
from adapters.amqp.v091.consuming import Consumer
from adapters.amqp.v091.errors import AmqpFault, ReplyCode, to_fault
from adapters.amqp.v091.framing import (
    BODY,
    CONTENT_HEADER,
    METHOD,
    PUBLISH,
    ContentHeader,
    Frame,
    decode_content_header,
)
from adapters.amqp.v091.methods import basic, channel
from adapters.amqp.v091.methods.codec import decode_method
from adapters.amqp.v091.methods.model import Method
from adapters.amqp.v091.ports import ConnectionPort
from adapters.amqp.v091.publishing import ConnectionPublisher, Plan, PublishedRun
from adapters.amqp.v091.requesting import ReplyConsumer
from adapters.amqp.v091.sources import Source, settle_as
from adapters.amqp.v091.stream_consumer import StreamConsumer
from adapters.amqp.v091.transaction import Transaction, TransactionRoom
from gateway.errors import GatewayError
from gateway.queues.model import Outcome
from gateway.queues.unacked import Unacked, UnackedRanges

ACK: Final = b"\x00\x3c\x00\x50"
_ACK_BYTES: Final = 13
_TAG: Final = slice(4, 12)
_PIECE_BYTES: Final = 64  # of memory for each body frame, beside its bytes


class OpenChannels(Protocol):
    """All channels of a connection, as one of them uses them."""

    def handle(self, channel: "Channel", method: Method) -> Coroutine[Any, Any, None] | None:
        """Serve a method."""
        ...

    def confirm_soon(self, channel: "Channel") -> None:
        """Send the channel's confirms at the end of this turn of the loop."""
        ...

    def forget(self, channel: "Channel") -> None:
        """Free the channel's number."""
        ...


class ChannelConnection(ConnectionPort, Protocol):
    """The connection, as its channels use it."""

    publisher: ConnectionPublisher
    transaction_room: TransactionRoom

    @property
    def channels(self) -> OpenChannels:
        """All channels."""
        ...

    def start(
        self, channel: "Channel", work: Coroutine[Any, Any, None], index: tuple[int, int]
    ) -> None:
        """Run ``work``, a method's; the channel goes on when it is done."""
        ...

    def settle_soon(self, channel: "Channel") -> None:
        """Settle the channel when all frames of this read are taken."""
        ...

    def fail_channel(self, channel: "Channel | None", fault: AmqpFault) -> None:
        """Close the channel, or the connection where the fault is hard."""
        ...

    def leave_if_idle(self) -> None:
        """Close the connection if that waits for its channels, and none is busy any more."""
        ...

    def receive_pending(self, channel: "Channel") -> None:
        """Take the frames that the channel kept while it waited."""
        ...


class Channel:
    """A channel of a connection. Loop only.

    While it waits (for a change of a queue, say) its frames are kept in ``pending``; the other
    channels of the connection go on.
    """

    def __init__(self, connection: "ChannelConnection", number: int) -> None:
        self.connection = connection
        self.number = number
        self.is_open = False
        self.is_closing = False  # the server has sent channel.close
        self.is_ended = False
        self.is_waiting = False
        self.pending: deque[Frame] = deque()
        self.confirms: Confirms | None = None
        self.unacked: UnackedRanges[Source] = UnackedRanges()
        self.transaction: Transaction | None = None
        self.consumers: dict[str, Consumer | StreamConsumer] = {}
        self.reply_consumer: ReplyConsumer | None = None
        self.last_queue = ""
        self.prefetch_count = 0  # of consumers that start from now on
        self.channel_prefetch_count = 0  # of all consumers together
        self._next_tag = 1
        self._publish: bytes | None = None
        self._header: ContentHeader | None = None
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._run: PublishedRun | None = None
        self._acks: list[Unacked[Source]] = []

    # --- receiving

    @property
    def content_bytes(self) -> int:
        """Bytes of an incomplete content; a body in many small frames counts for more."""
        return self._body_bytes + _PIECE_BYTES * len(self._body)

    @property
    def pending_bytes(self) -> int:
        """Bytes of frames that wait."""
        return sum(len(frame.payload) for frame in self.pending)

    def receive(self, frame: Frame) -> None:
        """Take one frame of this channel."""
        if self.is_waiting:
            self.pending.append(frame)
            return
        kind, _, payload = frame
        if self._publish is not None:
            self._receive_content(kind, payload)
        elif kind != METHOD:
            raise AmqpFault(
                ReplyCode.UNEXPECTED_FRAME,
                "expected method frame, got non method frame instead",
            )
        elif payload[:4] == PUBLISH:
            self._publish = payload
        elif len(payload) == _ACK_BYTES and payload[:4] == ACK:
            tag = int.from_bytes(payload[_TAG], "big")
            self.ack(tag, multiple=bool(payload[12] & 1))
        else:
            self._receive_method(decode_method(payload))

    def _receive_method(self, method: Method) -> None:
        self.settle()
        work = self.connection.channels.handle(self, method)
        if work is not None:
            self.wait_for(work, method.INDEX)

    def _receive_content(self, kind: int, payload: bytes) -> None:
        if self._header is None:
            if kind != CONTENT_HEADER:
                raise AmqpFault(
                    ReplyCode.UNEXPECTED_FRAME,
                    "expected content header for class 60, got non content header frame instead",
                )
            self._header = header = decode_content_header(payload)
            self._check_size(header.body_bytes)
            if not header.body_bytes:
                self._end_content()
            return
        if kind != BODY:
            raise AmqpFault(
                ReplyCode.UNEXPECTED_FRAME,
                "expected content body, got non content body frame instead",
            )
        if not payload:
            return
        self._body.append(payload)
        self._body_bytes += len(payload)
        if self._body_bytes >= self._header.body_bytes:
            if self._body_bytes > self._header.body_bytes:
                raise AmqpFault(ReplyCode.FRAME_ERROR, "content body is larger than announced")
            self._end_content()

    def _check_size(self, body_bytes: int) -> None:
        bytes_max = self.connection.config.message_bytes_max
        if body_bytes > bytes_max:
            raise AmqpFault(
                ReplyCode.PRECONDITION_FAILED,
                f"message size {body_bytes} is larger than configured max size {bytes_max}",
            )

    def _end_content(self) -> None:
        assert self._publish is not None
        assert self._header is not None
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        publish, properties = self._publish, self._header.properties
        self._forget_content()
        run = self._run
        if run is None:
            self._run = PublishedRun(publish, properties, [body])
            self.connection.settle_soon(self)
        elif run.publish == publish and run.properties == properties:
            run.bodies.append(body)
        else:
            self.settle()
            self._run = PublishedRun(publish, properties, [body])
            self.connection.settle_soon(self)

    def _forget_content(self) -> None:
        self._publish = self._header = None
        self._body = []
        self._body_bytes = 0

    # --- waiting

    def wait(self) -> None:
        """Keep further frames until ``go_on``."""
        self.is_waiting = True

    def go_on(self) -> None:
        """Take the frames that were kept."""
        self.is_waiting = False
        if not self.connection.is_closing:
            self.connection.guard(self.connection.receive_pending, self)

    def wait_for(self, work: Coroutine[Any, Any, None], index: tuple[int, int]) -> None:
        """Keep further frames until a method's ``work`` is done; its error closes the channel."""
        self.wait()
        self.connection.start(self, work, index)

    # --- settling what a read has brought

    def settle(self) -> None:
        """Publish and acknowledge what has been received; frames of other kinds come after."""
        run, self._run = self._run, None
        if run is not None:
            self.connection.publisher.publish(self, run)
        acks, self._acks = self._acks, []
        if acks:
            settle_as(acks, Outcome.ACK)

    def ack(self, tag: int, *, multiple: bool) -> None:
        """Acknowledge messages by delivery tag. Error: ``AmqpFault`` 406 for an unknown tag."""
        if not self._acks:
            self.connection.settle_soon(self)
        taken = self.take_unacked(tag, multiple=multiple)
        if self.transaction is None:
            self._acks += taken
        else:
            self.transaction.settle(taken, Outcome.ACK)

    def refuse(self, tag: int, outcome: Outcome, *, multiple: bool) -> None:
        """Return or reject messages by delivery tag. Error: ``AmqpFault`` 406."""
        taken = self.take_unacked(tag, multiple=multiple)
        if self.transaction is None:
            settle_as(taken, outcome)
        else:
            self.transaction.settle(taken, outcome)

    @property
    def publishes(self) -> Callable[[Plan, PublishedRun], None] | None:
        """The transaction's way of publishing; None outside of one."""
        return None if self.transaction is None else self.transaction.publish

    @property
    def reply_address(self) -> str | None:
        """See ``ChannelPort``."""
        return None if self.reply_consumer is None else self.reply_consumer.address

    def end_reply_consumer(self) -> None:
        """Take no more answers to requests."""
        if self.reply_consumer is not None:
            self.reply_consumer.end()
            self.reply_consumer = None

    def take_unacked(self, tag: int, *, multiple: bool) -> list[Unacked[Source]]:
        """Remove messages from those in flight. Error: ``AmqpFault`` 406 for an unknown tag."""
        if multiple and not tag:
            return self.unacked.take_all()
        if multiple:
            found = self.unacked.take_up_to(tag)
        else:
            one = self.unacked.take(tag)
            found = None if one is None else [one]
        if found is None:
            raise AmqpFault(ReplyCode.PRECONDITION_FAILED, f"unknown delivery tag {tag}")
        return found

    def roll_back(self) -> None:
        """Forget what a transaction has gathered; its settlements are in flight again."""
        if self.transaction is not None:
            _, settlements = self.transaction.take()
            self.unacked.put_back([one for one, _ in settlements])

    def next_tags(self, count: int) -> int:
        """Return the first of ``count`` new delivery tags."""
        first = self._next_tag
        self._next_tag += count
        return first

    def remove_consumer(self, tag: str) -> bool:
        """Remove a consumer that ends by itself; say whether it was there."""
        return self.consumers.pop(tag, None) is not None

    def renew_credit(self) -> None:
        """Set the credit of all consumers, after deliveries or settlements.

        What the channel may still have in flight is divided among them; where that is less than
        one for each, each may have one, or those with an empty queue would keep it from the others.
        Each delivery sets it anew, and so does each read from the disk, which is counted as if its
        messages were in flight: together they never exceed it.
        """
        consumers = self.consumers.values()
        if not consumers or self.is_ended:
            return
        left = self.connection.config.unacked_max
        if self.channel_prefetch_count:
            left = min(left, self.channel_prefetch_count)
        left -= self.unacked.count + sum(one.reading_count for one in consumers)
        if self.transaction is not None:
            left -= self.transaction.settled_count
        share = -(-max(left, 0) // len(consumers))
        for consumer in consumers:
            consumer.renew(channel_credit=share)

    def pause_consumers(self) -> None:
        """Deliver nothing: the socket is full."""
        for consumer in self.consumers.values():
            consumer.pause()

    def resume_consumers(self) -> None:
        """Deliver again."""
        for consumer in self.consumers.values():
            consumer.resume()

    # --- sending

    def send(self, method: Method) -> None:
        """Send a method."""
        self.connection.send_method(self.number, method)

    def confirm_soon(self) -> None:
        """Send the confirmations that are decided, at the end of this turn of the loop."""
        self.connection.channels.confirm_soon(self)

    def send_confirms(self) -> None:
        """Send the confirmations whose turn it is."""
        if self.confirms is None or self.is_ended:  # its number may be another channel's by now
            return
        for tag, multiple, is_nack in self.confirms.take():
            if is_nack:
                self.send(basic.BasicNack(tag, multiple, requeue=False))
            else:
                self.send(basic.BasicAck(tag, multiple))

    # --- ending

    def fail(self, fault: AmqpFault, index: tuple[int, int]) -> None:
        """Send channel.close; all that comes before its answer is discarded."""
        self.close()
        self.is_closing = True
        self.send(channel.ChannelClose(fault.code, fault.reply_text, *index))

    def fail_publish(self, error: GatewayError) -> None:
        """See ``ChannelPort``."""
        if not self.is_ended:
            fault = to_fault(error)
            fault.index = basic.BasicPublish.INDEX
            self.connection.guard(self.connection.fail_channel, self, fault)

    def close(self) -> None:
        """Give back what is in flight, and end all consumers."""
        if self.is_ended:
            return
        self.is_ended = True
        self._forget_content()
        self._run = None
        self.pending.clear()
        acks, self._acks = self._acks, []
        settle_as(acks, Outcome.ACK)
        consumers, self.consumers = self.consumers, {}
        for consumer in consumers.values():
            consumer.cancel()
        self.end_reply_consumer()
        self.roll_back()
        settle_as(self.unacked.take_all(), Outcome.RELEASE)
