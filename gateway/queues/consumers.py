"""Registered consumers of a queue: messages are pushed to them while they have credit.

A consumer gets contiguous ranges with their stored batches, at most once a turn of the event loop,
and no more messages than its credit. Consumers of the highest priority go first, those of a lower
one only while none of a higher priority may get more; among equals, and with receives that wait
(at priority 0), they take turns. A queue without consumers has no object of this module.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final, Protocol

import structlog

from features.queue.consumer_ring import ConsumerRing, share_of
from features.queue.model import Outcome, SettledRange
from gateway.errors import Overloaded, RequestError
from gateway.leaser import Right
from gateway.queues.cached_batch import CachedBatch
from gateway.queues.delivered_ranges import DeliveredRange
from gateway.queues.lanes import QueueContext
from gateway.queues.pending_receives import PendingReceives
from gateway.queues.receivers import SERVED_PER_TURN, Found, Receivers
from gateway.queues.settling import OnRangesSettled, Settler

CREDIT_UNLIMITED: Final = 1 << 62
DEALT_MAX: Final = 1_024  # messages to one consumer in a turn, whatever its credit
BYTES_MAX: Final = 1_048_576  # of one turn; one message is delivered whatever its size
FITTING_TIMES: Final = 4  # as many messages are taken, by the size of those before, as fit

_log = structlog.get_logger()


class QueueInUse(RequestError):
    """A consumer has the queue for itself, or wants it and others are there."""


class CancelReason(Enum):
    """Reason why a queue has ended a consumer."""

    DELETED = "the queue was deleted"
    MOVED = "another node serves the queue"
    STOPPED = "the node stops"
    FAILED = "an internal error"


class ConsumerSink(Protocol):
    """Receiver of a consumer's messages, in an adapter. Calls come on the event loop."""

    def on_ranges(self, ranges: Sequence[DeliveredRange]) -> None:
        """Take messages, which are in flight for the consumer's holder from here on.

        The ranges are in order of delivery: messages that came back first, then new ones. Each is
        of one stored batch, and of one attempt. Their number is at most the credit, which they
        have used. Called at most once a turn. ``Consumer.cancel`` and others may be called here.
        An error cancels the consumer (``FAILED``); its messages return with their lease or holder.
        """
        ...

    def on_cancelled(self, reason: CancelReason) -> None:
        """Note that the queue has ended the consumer; not called after ``Consumer.cancel``.

        Messages in flight stay with the holder, and can be settled unless the queue is gone.
        """
        ...


class Consumer:
    """One registered consumer. Made by ``Consumers.subscribe``. Loop only."""

    __slots__ = (
        "_fitting_max",
        "_home",
        "_is_paused",
        "_is_reading",
        "_sink",
        "_was_answered",
        "bytes_max",
        "credit",
        "holder",
        "is_active",
        "is_done",
        "is_exclusive",
        "is_polling",
        "lease_ms",
        "messages_max",
        "priority",
        "settles_at_once",
        "ticket",
    )

    def __init__(  # noqa: PLR0913 - what it asked for; made in one place
        self,
        home: "Consumers",
        sink: ConsumerSink,
        *,
        holder: int,
        credit: int,
        bytes_max: int,
        priority: int,
        lease_ms: int,
        is_exclusive: bool,
        settles_at_once: bool,
    ) -> None:
        self._home = home
        self._sink = sink
        self._is_paused = False
        self._is_reading = False  # messages that it was dealt are read from the disk
        self._fitting_max = DEALT_MAX
        self._was_answered = False
        self.holder = holder
        self.credit = credit
        """Messages that it may still get; deliveries use it, and only ``grant`` adds to it."""
        self.bytes_max = bytes_max
        self.priority = priority
        self.lease_ms = lease_ms
        self.is_exclusive = is_exclusive
        self.settles_at_once = settles_at_once
        self.is_active = False
        """Whether it is its turn where only one consumer is active; true in other queues."""
        self.is_done = False
        """Whether it was cancelled."""
        self.messages_max = 0  # what it is dealt now
        self.is_polling = False  # as ``receivers.Taker``
        self.ticket = 0

    def grant(self, messages: int) -> None:
        """Add credit, as many as were settled or asked for."""
        self.set_credit(self.credit + messages)

    def set_credit(self, messages: int) -> None:
        """Set the credit; ``CREDIT_UNLIMITED`` for no limit."""
        self.credit = min(messages, CREDIT_UNLIMITED)
        self._home.renew(self)

    def pause(self) -> None:
        """Deliver nothing until ``resume``: the socket is full."""
        self._is_paused = True
        self._home.renew(self)

    def resume(self) -> None:
        """Deliver again."""
        self._is_paused = False
        self._home.renew(self)

    def cancel(self) -> None:
        """End the consumer; messages in flight stay with its holder (``Queue.end_holder``)."""
        if not self.is_done:
            self._home.remove(self)

    @property
    def is_ready(self) -> bool:
        """Whether it may get messages now."""
        is_free = not (self._is_paused or self._is_reading or self.is_done)
        return self.credit > 0 and is_free and self.is_active

    # --- for ``Consumers`` and ``Receivers``

    def begin_turn(self, messages_max: int) -> None:
        """Set what it may take now."""
        self.messages_max = min(self.credit, messages_max, self._fitting_max)
        self._was_answered = False

    def end_turn(self) -> None:
        """Wait for what is read for it."""
        if not self._was_answered:
            self._is_reading = True
            self._home.renew(self)

    def finish(self, ranges: list[DeliveredRange]) -> None:
        """Deliver what was taken; nothing, when it could not be read."""
        self._was_answered = True
        self._is_reading = False
        for one in ranges:
            self.credit -= len(one.offsets)
        if ranges:
            self._fitting_max = _fitting_max(ranges[-1].batch, self.bytes_max)
        self._home.renew(self)
        if self.is_done or not ranges:
            return
        if self.settles_at_once:
            self._home.settle_all(ranges, self.holder)
        self._sink.on_ranges(ranges)

    def fail(self) -> None:
        """End it after an internal error."""
        self.end(CancelReason.FAILED)

    def end(self, reason: CancelReason) -> None:
        """End it by the queue."""
        if not self.is_done:
            self._home.remove(self)
            self._sink.on_cancelled(reason)


class _WaitingReceives:
    """Member of the ring for all receives that wait."""

    priority = 0


class Consumers:
    """Consumers of one queue, and the turns that they share with its receives."""

    def __init__(
        self,
        context: QueueContext,
        pending_receives: PendingReceives,
        receivers: Receivers,
        settler: Settler,
    ) -> None:
        self._context = context
        self._pending_receives = pending_receives
        self._receivers = receivers
        self._settler = settler
        self._ring: ConsumerRing[Consumer | _WaitingReceives] = ConsumerRing()
        self._waiting = _WaitingReceives()
        self._consumers: dict[Consumer, None] = {}
        self._is_single = receivers.settings.single_active

    def __len__(self) -> int:
        return len(self._consumers)

    def subscribe(  # noqa: PLR0913 - by keyword
        self,
        sink: ConsumerSink,
        *,
        holder: int,
        credit: int = 0,
        bytes_max: int = BYTES_MAX,
        priority: int = 0,
        lease_ms: int | None = None,
        is_exclusive: bool = False,
        settles_at_once: bool = False,
    ) -> Consumer:
        """Register a consumer; it gets messages from the next turn on.

        ``holder``: of its connection, channel or session (``QueueManager.new_holder``), several
        consumers may share it. ``credit``: messages before the next ``grant``. ``bytes_max``: of a
        turn, in bytes of values and headers. ``lease_ms``: by default the queue's.
        ``settles_at_once``: messages are acknowledged as they are delivered, at most once.
        ``is_exclusive``: no other consumer may be there. Where the queue's ``single_active`` is
        set, one consumer gets messages at a time: the first, then the one of the highest priority,
        then the oldest. Errors: ``QueueInUse``; ``Overloaded`` above ``queue.receivers_max``.
        """
        others = self._consumers
        if others and (is_exclusive or next(iter(others)).is_exclusive):
            raise QueueInUse("the queue has another consumer, and one wants it for itself")
        self._pending_receives.check_room()
        settings = self._receivers.settings
        consumer = Consumer(
            self,
            sink,
            holder=holder,
            credit=min(credit, CREDIT_UNLIMITED),
            bytes_max=bytes_max,
            priority=priority,
            lease_ms=settings.lease_ms if lease_ms is None else lease_ms,
            is_exclusive=is_exclusive,
            settles_at_once=settles_at_once,
        )
        self._activate(consumer)
        others[consumer] = None
        self._pending_receives.consumer_count += 1
        self._receivers.dealer = self
        self.renew(consumer)
        return consumer

    def _activate(self, consumer: Consumer) -> None:
        """Let a consumer get messages, or wait for its turn where one is active at a time.

        Error: ``Overloaded``.
        """
        right: Right | None = None
        if self._is_single:
            right = self._context.leaser.wait(
                self, consumer, self._on_granted, priority=consumer.priority
            )
        consumer.is_active = right is not None or not self._is_single

    def configure(self) -> None:
        """Apply changed settings: one consumer is active from now on, or all are.

        A consumer keeps the lease that it began with.
        """
        is_single = self._receivers.settings.single_active
        if is_single == self._is_single:
            return
        self._is_single = is_single
        for consumer in self._consumers:
            if not is_single:
                self._context.leaser.release(self, consumer)
        for consumer in list(self._consumers):
            try:
                self._activate(consumer)
            except Overloaded:
                consumer.fail()
            else:
                self.renew(consumer)

    def _on_granted(self, right: Right) -> None:
        consumer = right.holder
        assert isinstance(consumer, Consumer)
        consumer.is_active = True
        self.renew(consumer)

    def renew(self, consumer: Consumer) -> None:
        """Note whether a consumer may get messages."""
        is_ready = consumer.is_ready
        self._ring.set_ready(consumer, consumer.priority, is_ready=is_ready)
        if is_ready:
            self._receivers.schedule()

    def remove(self, consumer: Consumer) -> None:
        """Forget a consumer; the next one is active where only one is."""
        del self._consumers[consumer]
        consumer.is_done = True
        consumer.is_active = False
        self._ring.set_ready(consumer, consumer.priority, is_ready=False)
        self._pending_receives.consumer_count -= 1
        if not self._consumers:
            self._receivers.dealer = None
        self._receivers.schedule()  # receives that wait may have been behind it
        self._context.leaser.release(self, consumer)

    def close(self, reason: CancelReason) -> None:
        """End all consumers."""
        for consumer in list(self._consumers):
            try:
                consumer.end(reason)
            except Exception:  # noqa: BLE001 - a bug of one; others and the queue end nevertheless
                _log.exception("a consumer has failed at the end of its queue")

    def settle_all(self, ranges: Sequence[DeliveredRange], holder: int) -> None:
        """Acknowledge messages as they are delivered."""
        for one in ranges:
            settled = (SettledRange(one.offsets, one.attempt, Outcome.ACK),)
            self._settler.settle_ranges(
                one.number, settled, _IGNORED, holder=holder, delay_ms=0, reason=""
            )

    # --- turns

    def deal(self) -> None:
        """Serve consumers and waiting receives for one turn; see ``receivers.Dealer``."""
        share = 0
        left = SERVED_PER_TURN
        while left > 0:
            self._ring.set_ready(self._waiting, 0, is_ready=len(self._receivers) > 0)
            member = self._ring.first()
            if member is None:
                return
            if isinstance(member, Consumer):
                share = share or self._share()
                left -= 1
                found = self._serve(member, share)
            else:
                count = min(len(self._receivers), left)
                left -= count
                found = self._receivers.serve_waiting(count)
            if found is not Found.SOMETHING:
                return
            self._ring.served(member, member.priority)
        self._receivers.schedule()

    def _share(self) -> int:
        ready_count = sum(
            lane.lane.counts(lane.partition.stable_end).ready for lane in self._receivers.lanes
        )
        return share_of(ready_count, self._ring.first_count, share_max=DEALT_MAX)

    def _serve(self, consumer: Consumer, share: int) -> Found:
        consumer.begin_turn(share)
        try:
            found = self._receivers.serve(consumer)
        except BaseException:  # one consumer's bug must not leave the others waiting
            self._receivers.schedule()
            consumer.fail()
            raise
        if found is Found.SOMETHING:
            consumer.end_turn()
        return found


def _fitting_max(batch: CachedBatch, bytes_max: int) -> int:
    """Return how many messages to take so that ``bytes_max`` of them are hardly missed.

    What is taken beyond goes back, with entries in the journal; sizes differ, so it is a few more.
    """
    message_bytes = batch.size_bytes // (batch.last_offset - batch.base_offset + 1)
    return FITTING_TIMES * bytes_max // max(message_bytes, 1) + 1


def _ignore(_counts: list[int], _error: object) -> None:
    """Ignore the result: a message whose acknowledgement is not kept is delivered again."""


_IGNORED: Final[OnRangesSettled] = _ignore
