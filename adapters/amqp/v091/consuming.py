"""Deliveries to a channel: by consumers and by basic.get; settling and returning them."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from adapters.amqp.queues import name_of
from adapters.amqp.v091.delivering import deliver, send_got
from adapters.amqp.v091.methods.basic import BasicCancel, BasicGetEmpty
from adapters.amqp.v091.ports import ChannelPort
from adapters.amqp.v091.sources import QueueSource, settle_delivered
from gateway.queues.consumers import CREDIT_UNLIMITED, CancelReason
from gateway.queues.consumers import Consumer as RegisteredConsumer
from gateway.queues.delivered_ranges import DeliveredRange
from gateway.queues.manager import Queue
from gateway.queues.model import Outcome

DELIVERED_BYTES_MAX: Final = 1_048_576  # of one turn
PRIORITY: Final = "x-priority"


class Consumer(QueueSource):
    """A consumer of a queue, by ``basic.consume``; the queue's registered consumer calls it."""

    __slots__ = ("_registered", "channel", "prefetch_count", "reading_count")

    def __init__(self, channel: ChannelPort, queue: Queue, tag: str, *, no_ack: bool) -> None:
        super().__init__(queue, channel.connection.holder, tag, no_ack=no_ack)
        self.channel = channel
        self.prefetch_count = channel.prefetch_count
        self.reading_count = 0
        """Messages that are read from the disk for it, and will be in flight."""
        self._registered: RegisteredConsumer | None = None

    def start(self, *, is_exclusive: bool, priority: int) -> None:
        """Take messages. Errors: those of ``Consumers.subscribe``."""
        self._registered = self.queue.consumers.subscribe(
            self,
            holder=self.holder,
            bytes_max=DELIVERED_BYTES_MAX,
            priority=priority,
            is_exclusive=is_exclusive,
            settles_at_once=self.no_ack,
            on_reading=self._on_reading,
        )
        if self.channel.connection.is_full:
            self._registered.pause()

    @property
    def queue_name(self) -> str:
        """Name of the queue in AMQP."""
        return name_of(self.queue)

    @property
    def is_active(self) -> bool:
        """Whether it may get messages: of a queue with one active consumer, one is."""
        return self._registered is not None and self._registered.is_active

    @property
    def is_exclusive(self) -> bool:
        """Whether it has the queue for itself."""
        return self._registered is not None and self._registered.is_exclusive

    @property
    def priority(self) -> int:
        """Its priority."""
        return 0 if self._registered is None else self._registered.priority

    def renew(self, *, channel_credit: int) -> None:
        """Set the credit: what the prefetch leaves, and this consumer's part of the channel's."""
        registered = self._registered
        if registered is None or registered.is_done:
            return
        credit = CREDIT_UNLIMITED if self.no_ack else channel_credit
        if self.prefetch_count and not self.no_ack:
            credit = min(credit, max(self.prefetch_count - self.unacked_count, 0))
        if credit != registered.credit:
            registered.set_credit(credit)

    def pause(self) -> None:
        """Take nothing more: the socket is full."""
        if self._registered is not None:
            self._registered.pause()

    def resume(self) -> None:
        """Take messages again."""
        if self._registered is not None:
            self._registered.resume()

    def _on_reading(self, count: int) -> None:
        if not self.no_ack:
            self.reading_count = count
            self.channel.renew_credit()

    def on_ranges(self, ranges: Sequence[DeliveredRange]) -> None:
        """See ``ConsumerSink``."""
        connection = self.channel.connection
        connection.guard(deliver, self.channel, self, ranges)
        connection.pause_if_full()
        self.channel.renew_credit()

    def on_cancelled(self, _reason: CancelReason) -> None:
        """See ``ConsumerSink``: clients that want to know are told."""
        channel = self.channel
        if not channel.remove_consumer(self.tag):
            return
        if "consumer_cancel_notify" in channel.connection.client_capabilities:
            channel.send(BasicCancel(self.tag, nowait=True))

    def freed(self, count: int) -> None:
        """See ``Source``."""
        super().freed(count)
        self.channel.renew_credit()

    def cancel(self) -> None:
        """Take nothing more; a queue with ``auto_delete`` goes with its last consumer."""
        if self._registered is not None:
            self._registered.cancel()
            self.channel.connection.node.consumer_left(self.queue)


def start_get(channel: ChannelPort, queue: Queue, *, no_ack: bool) -> None:
    """Deliver one message as the answer to basic.get; the channel waits for it."""
    channel.wait()
    source = QueueSource(queue, channel.connection.holder, no_ack=no_ack)
    queue.receive_ranges(
        1,
        bytes_max=DELIVERED_BYTES_MAX,
        on_done=partial(channel.connection.guard, _on_got, channel, source),
        holder=channel.connection.holder,
    )


def _on_got(
    channel: ChannelPort, source: QueueSource, ranges: Sequence[DeliveredRange]
) -> None:
    if channel.is_ended:
        settle_delivered(source, ranges, Outcome.RELEASE)
        return
    if ranges:
        send_got(channel, source, ranges[0])
    else:
        channel.send(BasicGetEmpty())
    channel.connection.loop.call_soon(channel.go_on)
