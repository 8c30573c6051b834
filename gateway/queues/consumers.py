"""Registered consumers of a queue: messages are pushed to them while they have credit.

A consumer gets contiguous ranges with their stored batches, at most once a turn of the event loop,
and no more messages than its credit. Consumers of the highest priority go first, those of a lower
one only while none of a higher priority may get more; among equals, and with receives that wait
(at priority 0), they take turns. A queue without consumers has no object of this module.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import structlog

from features.queue.consumer_ring import ConsumerRing, share_of
from features.queue.model import Outcome, SettledRange
from gateway.errors import Overloaded, RequestError
from gateway.leaser import Right
from gateway.queues.consumer import CREDIT_UNLIMITED as CREDIT_UNLIMITED  # noqa: PLC0414
from gateway.queues.consumer import DEALT_MAX, OnReading, ignore_reading
from gateway.queues.consumer import CancelReason as CancelReason  # noqa: PLC0414
from gateway.queues.consumer import Consumer as Consumer  # noqa: PLC0414
from gateway.queues.consumer import ConsumerSink as ConsumerSink  # noqa: PLC0414
from gateway.queues.delivered_ranges import DeliveredRange
from gateway.queues.lanes import QueueContext
from gateway.queues.pending_receives import PendingReceives
from gateway.queues.receivers import SERVED_PER_TURN, Receivers
from gateway.queues.selecting import Matches, Selection
from gateway.queues.settling import OnRangesSettled, Settler
from gateway.queues.taker import Found

BYTES_MAX: Final = 1_048_576  # of one turn; one message is delivered whatever its size

_log = structlog.get_logger()


class QueueInUse(RequestError):
    """A consumer has the queue for itself, or wants it and others are there."""


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
        self._set_aside: dict[Consumer, None] = {}  # they select, and have found nothing
        self._is_single = receivers.settings.single_active

    def __len__(self) -> int:
        return len(self._consumers)

    def __iter__(self) -> Iterator[Consumer]:
        return iter(self._consumers)

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
        matches: Matches | None = None,
        on_reading: OnReading = ignore_reading,
    ) -> Consumer:
        """Register a consumer; it gets messages from the next turn on.

        ``holder``: of its connection, channel or session (``QueueManager.new_holder``), several
        consumers may share it. ``credit``: messages before the next ``grant``. ``bytes_max``: of a
        turn, in bytes of values and headers. ``lease_ms``: by default the queue's.
        ``settles_at_once``: messages are acknowledged as they are delivered, at most once.
        ``matches``: the consumer gets messages for which it is true only, ahead of others
        (``gateway.queues.selecting``); none in a queue with the order ``key``.
        ``on_reading``: see ``OnReading``; called before the messages come.
        ``is_exclusive``: no other consumer may be there. Where the queue's ``single_active`` is
        set, one consumer gets messages at a time: the first, then the one of the highest priority,
        then the oldest. Errors: ``QueueInUse``; ``Overloaded`` above ``queue.receivers_max``.
        """
        others = self._consumers
        if others and (is_exclusive or next(iter(others)).is_exclusive):
            raise QueueInUse("the queue has another consumer, and one wants it for itself")
        self._pending_receives.check_room()
        consumer = Consumer(
            self,
            sink,
            holder=holder,
            credit=min(credit, CREDIT_UNLIMITED),
            bytes_max=bytes_max,
            priority=priority,
            lease_ms=self._receivers.settings.lease_ms if lease_ms is None else lease_ms,
            is_exclusive=is_exclusive,
            settles_at_once=settles_at_once,
            selection=None if matches is None else Selection(matches),
            on_reading=on_reading,
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
        self._set_aside.pop(consumer, None)
        consumer.is_done = True
        consumer.is_active = False
        self._ring.set_ready(consumer, consumer.priority, is_ready=False)
        self._pending_receives.consumer_count -= 1
        if not self._consumers:
            self._receivers.dealer = None
            self._receivers.usage.touch()
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

    def woke(self) -> None:
        """Let consumers look again that have found nothing; see ``receivers.Dealer``."""
        if self._set_aside:
            set_aside, self._set_aside = self._set_aside, {}
            for consumer in set_aside:
                consumer.is_set_aside = False
                if consumer.selection is not None:
                    consumer.selection.is_cut = False
                self.renew(consumer)

    def freed(self) -> None:
        """Let consumers look again that did not look at all; see ``receivers.Dealer``."""
        if self._set_aside and any(_is_cut(consumer) for consumer in self._set_aside):
            self.woke()

    def _put_aside(self, consumer: Consumer, found: Found) -> None:
        consumer.is_set_aside = True
        self._set_aside[consumer] = None
        self.renew(consumer)
        if found is Found.PERHAPS:  # others have their turn
            self._context.loop.call_soon(self.woke)

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
                if not isinstance(member, Consumer) or member.selection is None:
                    return
                self._put_aside(member, found)
                continue
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


def _is_cut(consumer: Consumer) -> bool:
    return consumer.selection is not None and consumer.selection.is_cut


def _ignore(_counts: list[int], _error: object) -> None:
    """Ignore the result: a message whose acknowledgement is not kept is delivered again."""


_IGNORED: Final[OnRangesSettled] = _ignore
