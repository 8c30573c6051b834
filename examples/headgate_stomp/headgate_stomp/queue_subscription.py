"""A subscription to a queue: a registered consumer, to which messages are pushed."""

from collections.abc import Sequence
from typing import Final

from gateway.errors import StorageUnavailable
from gateway.queues.consumers import CREDIT_UNLIMITED, CancelReason, Consumer
from gateway.queues.delivered_ranges import DeliveredRange
from gateway.queues.manager import Queue
from gateway.queues.model import Outcome, SettledRange
from gateway.queues.unacked import Unacked
from gateway.storage import OnDone
from headgate_stomp.errors import StompFault
from headgate_stomp.in_flight import InFlight
from headgate_stomp.ports import AckMode, Asked, Connection

_REASONS: Final = {CancelReason.MOVED: "Not the leader"}
"""Headers ``message`` of subscriptions that their queue ends; others have RabbitMQ's words."""


class QueueSubscription:
    """Messages of a queue for one subscription.

    In mode auto they are settled as they leave: at most once. Otherwise they are in flight for the
    connection until ACK, NACK, or its end.
    """

    def __init__(
        self, connection: Connection, queue: Queue, asked: Asked, *, is_temporary: bool
    ) -> None:
        """Subscribe. Errors: those of ``Consumers.subscribe``."""
        self.id = asked.id
        self.mode = asked.mode
        self.queue = queue
        self._connection = connection
        self._encoder = asked.encoder
        self._is_temporary = is_temporary
        self._is_closed = False
        self._in_flight: InFlight[Queue] = InFlight(asked.mode)
        is_auto = asked.mode is AckMode.AUTO
        self._consumer: Consumer = queue.consumers.subscribe(
            self,
            holder=connection.holder,
            credit=CREDIT_UNLIMITED if is_auto else asked.credit,
            settles_at_once=is_auto,
        )
        if connection.is_full:
            self._consumer.pause()

    # --- gateway.queues.consumers.ConsumerSink

    def on_ranges(self, ranges: Sequence[DeliveredRange]) -> None:
        """See ``ConsumerSink``: all messages of a turn are one write."""
        self._connection.guard(self._deliver, ranges)
        self._connection.pause_if_full()

    def on_cancelled(self, reason: CancelReason) -> None:
        """See ``ConsumerSink``: STOMP has only ERROR to say so, and that ends the connection."""
        summary = _REASONS.get(reason, "Server cancelled subscription")
        fault = StompFault(
            summary, f"no more messages will be delivered for {self.id}: {reason.value}"
        )
        self._connection.end_with(fault, [("subscription", self.id)])

    def _deliver(self, ranges: Sequence[DeliveredRange]) -> None:
        encode = self._encoder.encode
        for one in ranges:
            tag = self._in_flight.add(self.queue, one.number, one.offsets, one.attempt)
            frames = [
                encode(record, number, is_redelivered=one.attempt > 1)
                for number, record in enumerate(self.queue.records_of(one), tag)
            ]
            self._connection.send(b"".join(frames))

    # --- Subscription

    def take(self, tag: int) -> list[Unacked[Queue]] | None:
        """See ``Subscription``."""
        return self._in_flight.take(tag)

    def put_back(self, unacked: list[Unacked[Queue]]) -> None:
        """See ``Subscription``. After the end they go back to the queue."""
        if self._is_closed:
            self.settle(unacked, Outcome.REQUEUE, _ignore)
        else:
            self._in_flight.put_back(unacked)

    def settle(
        self, unacked: Sequence[Unacked[Queue]], outcome: Outcome, on_done: OnDone
    ) -> None:
        """See ``Subscription``. What the queue has taken back meanwhile is left out."""
        if self.queue.is_gone or not unacked:
            self._connection.node.call_soon(on_done)
            return
        by_number: dict[int, list[SettledRange]] = {}
        count = 0
        for one in unacked:
            offsets = range(one.first_offset, one.first_offset + one.size)
            settled = SettledRange(offsets, one.attempt, outcome)
            by_number.setdefault(one.number, []).append(settled)
            count += one.size
        all_of = _AllOf(len(by_number), on_done)
        for number, ranges in by_number.items():
            self.queue.settle_ranges(number, ranges, all_of.one, holder=self._connection.holder)
        if self.mode is not AckMode.AUTO and not self._consumer.is_done:
            self._consumer.grant(count)

    def pause(self) -> None:
        """See ``Subscription``."""
        self._consumer.pause()

    def resume(self) -> None:
        """See ``Subscription``."""
        if not self._consumer.is_done:
            self._consumer.resume()

    def close(self) -> None:
        """See ``Subscription``."""
        self._is_closed = True
        self._consumer.cancel()
        if self._is_temporary:
            self._connection.node.delete_soon(self.queue)
        else:
            self.settle(self._in_flight.take_all(), Outcome.REQUEUE, _ignore)


class _AllOf:
    """Callback of several settlements, which calls ``on_done`` after the last."""

    def __init__(self, count: int, on_done: OnDone) -> None:
        self._count = count
        self._on_done = on_done
        self._error: StorageUnavailable | None = None

    def one(self, _counts: Sequence[int], error: StorageUnavailable | None) -> None:
        self._error = error or self._error
        self._count -= 1
        if not self._count:
            self._on_done(self._error)


def _ignore(_error: StorageUnavailable | None) -> None:
    """Let a failed settlement be: the messages are delivered again."""
