"""One registered consumer of a queue: its credit, its turns, and the end of both."""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, Protocol

from gateway.queues.cached_batch import CachedBatch
from gateway.queues.delivered_ranges import DeliveredRange
from gateway.queues.selecting import Selection

CREDIT_UNLIMITED: Final = 1 << 62
DEALT_MAX: Final = 1_024  # messages to one consumer in a turn, whatever its credit
FITTING_TIMES: Final = 4  # as many messages are taken, by the size of those before, as fit


OnReading = Callable[[int], None]
"""Takes the number of messages that are read from the disk for a consumer, 0 when that is over.

They are at least those that come: a consumer with others on one limit counts them as in flight.
"""


def ignore_reading(_count: int) -> None:
    """Ignore reads: the consumer shares its credit with no other."""


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


class ConsumerHome(Protocol):
    """The queue's consumers, as one of them uses them; see ``gateway.queues.consumers``."""

    def renew(self, consumer: "Consumer") -> None:
        """Note whether a consumer may get messages."""
        ...

    def remove(self, consumer: "Consumer") -> None:
        """Forget a consumer; the next one is active where only one is."""
        ...

    def settle_all(self, ranges: Sequence[DeliveredRange], holder: int) -> None:
        """Acknowledge messages as they are delivered."""
        ...


class Consumer:
    """One registered consumer. Made by ``Consumers.subscribe``. Loop only."""

    __slots__ = (
        "_fitting_max",
        "_home",
        "_is_paused",
        "_on_reading",
        "_reading_count",
        "_sink",
        "_was_answered",
        "bytes_max",
        "credit",
        "holder",
        "is_active",
        "is_done",
        "is_exclusive",
        "is_polling",
        "is_set_aside",
        "lease_ms",
        "messages_max",
        "priority",
        "selection",
        "settles_at_once",
        "ticket",
    )

    def __init__(  # noqa: PLR0913 - what it asked for; made in one place
        self,
        home: ConsumerHome,
        sink: ConsumerSink,
        *,
        holder: int,
        credit: int,
        bytes_max: int,
        priority: int,
        lease_ms: int,
        is_exclusive: bool,
        settles_at_once: bool,
        selection: Selection | None,
        on_reading: OnReading,
    ) -> None:
        self._home = home
        self._sink = sink
        self._is_paused = False
        self._on_reading = on_reading
        self._reading_count = 0  # messages that it was dealt, and that the disk is read for
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
        self.selection = selection
        self.is_set_aside = False
        """Whether it has found nothing that it selects, until there may be something new."""
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
        is_busy = self._is_paused or self._reading_count > 0
        is_free = not (is_busy or self.is_done or self.is_set_aside)
        return self.credit > 0 and is_free and self.is_active

    # --- for ``Consumers`` and ``Receivers``

    def begin_turn(self, messages_max: int) -> None:
        """Set what it may take now."""
        self.messages_max = min(self.credit, messages_max, self._fitting_max)
        self._was_answered = False

    def end_turn(self) -> None:
        """Wait for what is read for it."""
        if not self._was_answered:
            self._set_reading(self.messages_max)
            self._home.renew(self)

    def _set_reading(self, count: int) -> None:
        if count != self._reading_count:
            self._reading_count = count
            self._on_reading(count)

    def finish(self, ranges: list[DeliveredRange]) -> None:
        """Deliver what was taken; nothing, when it could not be read."""
        self._was_answered = True
        self._set_reading(0)
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
        self._set_reading(0)


def _fitting_max(batch: CachedBatch, bytes_max: int) -> int:
    """Return how many messages to take so that ``bytes_max`` of them are hardly missed.

    What is taken beyond goes back, with entries in the journal; sizes differ, so it is a few more.
    """
    message_bytes = batch.size_bytes // (batch.last_offset - batch.base_offset + 1)
    return FITTING_TIMES * bytes_max // max(message_bytes, 1) + 1
