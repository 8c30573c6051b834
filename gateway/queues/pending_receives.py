"""Pending receive requests and their timeouts."""

from collections.abc import Callable
from itertools import count
from typing import ClassVar, Protocol

from gateway.clock import Clock
from gateway.deadlines import Deadlines
from gateway.errors import Overloaded
from gateway.queues.delivered_ranges import DeliveredRange

OnRanges = Callable[[list[DeliveredRange]], None]


class ReceiveQueue(Protocol):
    """Queue side of a pending receive; see ``gateway.queues.receivers``."""

    def leave(self, receiver: "PendingReceive") -> None:
        """Forget a cancelled receive."""
        ...


class Ticketed(Protocol):
    """Something that may have a timeout: ``ticket`` is its key, 0 without one."""

    ticket: int


class PendingReceive:
    """One pending receive request. ``cancel`` may be called at any time."""

    __slots__ = (
        "_home",
        "_on_done",
        "_on_failed",
        "bytes_max",
        "holder",
        "is_polling",
        "is_waiting",
        "lease_ms",
        "messages_max",
        "ticket",
    )

    def __init__(  # noqa: PLR0913, PLR0917 - what was asked for; made in one place
        self,
        home: ReceiveQueue,
        messages_max: int,
        bytes_max: int,
        lease_ms: int,
        holder: int,
        on_done: OnRanges,
        on_failed: Callable[[], None] | None = None,
    ) -> None:
        self._home = home
        self._on_done: OnRanges | None = on_done
        self._on_failed = on_failed
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.lease_ms = lease_ms
        self.holder = holder
        self.is_polling = False  # takes what is there now, without waiting
        self.is_waiting = False
        self.ticket = 0  # key of its timeout

    selection: ClassVar[None] = None
    """A receive takes any message."""

    @property
    def is_done(self) -> bool:
        """Whether it was answered or cancelled."""
        return self._on_done is None

    def cancel(self) -> None:
        """Cancel the request; messages already taken for it are requeued."""
        self._on_done = None
        self._home.leave(self)

    def time_over(self) -> None:
        """End the wait, with an empty answer unless messages are being read for it."""
        if self.is_waiting:
            self._home.leave(self)
            self.finish([])

    def finish(self, ranges: list[DeliveredRange]) -> None:
        """Answer with messages."""
        on_done, self._on_done = self._on_done, None
        if on_done is None:
            return
        try:
            on_done(ranges)
        except Exception:  # a bug: its caller must not wait for ever
            if self._on_failed is not None:
                self._on_failed()
            raise

    def fail(self) -> None:
        """Answer that the request failed through an internal error."""
        on_done, self._on_done = self._on_done, None
        if on_done is None:
            return
        if self._on_failed is not None:
            self._on_failed()
        else:
            on_done([])


class PendingReceives:
    """Waiting receives of a node, with one timer for all."""

    def __init__(self, clock: Clock, *, receivers_max: int) -> None:
        self._clock = clock
        self._receivers_max = receivers_max
        self._tickets = count(1)
        self._receivers: dict[int, PendingReceive] = {}
        self.consumer_count = 0
        """Registered consumers, which count as receives that wait."""
        # By ticket: a timer entry outlives its receive, and must not keep it alive.
        self._deadlines: Deadlines[int] = Deadlines(clock, self._on_due)

    def __len__(self) -> int:
        return len(self._receivers)

    def check_room(self) -> None:
        """Raise ``Overloaded`` when too many receives wait."""
        if len(self._receivers) + self.consumer_count >= self._receivers_max:
            raise Overloaded(f"{self._receivers_max} receivers wait for messages")

    def begin(self, receiver: PendingReceive, wait_ms: int) -> None:
        """Start a wait; ``time_over`` is called at its end."""
        ticket = receiver.ticket = next(self._tickets)
        self._receivers[ticket] = receiver
        self._deadlines.arm(ticket, self._clock.monotonic_ms() + wait_ms)

    def end(self, receiver: Ticketed) -> None:
        """End a wait."""
        if self._receivers.pop(receiver.ticket, None) is not None:
            self._deadlines.forget(receiver.ticket)

    def has(self, receiver: Ticketed) -> bool:
        """Return whether its wait has not ended."""
        return receiver.ticket in self._receivers

    def close(self) -> None:
        """Drop all waits without calls."""
        self._deadlines.close()
        self._receivers.clear()

    def run_due(self) -> None:
        """End the waits that are due, as the timer does."""
        self._deadlines.run_due()

    def _on_due(self, ticket: int) -> None:
        receiver = self._receivers.pop(ticket, None)
        if receiver is not None:
            receiver.time_over()
