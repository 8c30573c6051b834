"""Who has asked a queue for messages, and how long he waits for them."""

from collections.abc import Callable
from itertools import count
from typing import Protocol

from gateway.clock import Clock
from gateway.deadlines import Deadlines
from gateway.errors import Overloaded
from gateway.queues.model import Delivery

OnDeliveries = Callable[[list[Delivery]], None]


class Home(Protocol):
    """Whom a receiver has asked; see ``gateway.queues.receivers``."""

    def leave(self, receiver: "PendingReceive") -> None:
        """It has gone."""
        ...


class PendingReceive:
    """Somebody who asked for messages and waits. ``cancel`` may be called at any time."""

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
        home: Home,
        messages_max: int,
        bytes_max: int,
        lease_ms: int,
        holder: int,
        on_done: OnDeliveries,
        on_failed: Callable[[], None] | None = None,
    ) -> None:
        self._home = home
        self._on_done: OnDeliveries | None = on_done
        self._on_failed = on_failed
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.lease_ms = lease_ms
        self.holder = holder
        self.is_polling = False  # it wants what is there now, and does not wait for more
        self.is_waiting = False
        self.ticket = 0  # of a wait that ends by itself

    @property
    def is_done(self) -> bool:
        """It was answered, or has gone."""
        return self._on_done is None

    def cancel(self) -> None:
        """Want nothing any more; what is on its way to it goes back to the queue."""
        self._on_done = None
        self._home.leave(self)

    def time_over(self) -> None:
        """It has waited as long as it wanted; one that is being read for gets what comes."""
        if self.is_waiting:
            self._home.leave(self)
            self.finish([])

    def finish(self, deliveries: list[Delivery]) -> None:
        """Answer."""
        on_done, self._on_done = self._on_done, None
        if on_done is None:
            return
        try:
            on_done(deliveries)
        except Exception:  # a bug: whoever is behind it is not to wait for ever
            if self._on_failed is not None:
                self._on_failed()
            raise

    def fail(self) -> None:
        """Answer that this cannot be served, by a fault of ours."""
        on_done, self._on_done = self._on_done, None
        if on_done is None:
            return
        if self._on_failed is not None:
            self._on_failed()
        else:
            on_done([])


class PendingReceives:
    """All receivers of a node that wait, and one timer for them."""

    def __init__(self, clock: Clock, *, receivers_max: int) -> None:
        self._clock = clock
        self._receivers_max = receivers_max
        self._tickets = count(1)
        self._receivers: dict[int, PendingReceive] = {}
        # By ticket: an entry of the timer outlives its receiver, who is not to be kept by it.
        self._deadlines: Deadlines[int] = Deadlines(clock, self._on_due)

    def __len__(self) -> int:
        return len(self._receivers)

    def check_room(self) -> None:
        """Raise ``Overloaded`` when there are too many."""
        if len(self._receivers) >= self._receivers_max:
            raise Overloaded(f"{self._receivers_max} receivers wait for messages")

    def begin(self, receiver: PendingReceive, wait_ms: int) -> None:
        """Call its ``on_due`` when the time is over."""
        ticket = receiver.ticket = next(self._tickets)
        self._receivers[ticket] = receiver
        self._deadlines.arm(ticket, self._clock.monotonic_ms() + wait_ms)

    def end(self, receiver: PendingReceive) -> None:
        """It has got something, or has gone."""
        if self._receivers.pop(receiver.ticket, None) is not None:
            self._deadlines.forget(receiver.ticket)

    def has(self, receiver: PendingReceive) -> bool:
        """Whether it still has time to wait."""
        return receiver.ticket in self._receivers

    def close(self) -> None:
        """Call nobody any more."""
        self._deadlines.close()
        self._receivers.clear()

    def run_due(self) -> None:
        """Answer those whose time is over, as the timer does."""
        self._deadlines.run_due()

    def _on_due(self, ticket: int) -> None:
        receiver = self._receivers.pop(ticket, None)
        if receiver is not None:
            receiver.time_over()
