"""Transactions of a connection: SENDs, ACKs and NACKs that take effect at COMMIT."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from gateway.errors import Overloaded
from gateway.exchanges.model import ExchangeName
from gateway.exchanges.publisher import Publication
from gateway.queues.model import Outcome
from gateway.queues.unacked import Unacked
from headgate_stomp.errors import StompFault
from headgate_stomp.frames import Frame
from headgate_stomp.ports import Subscription
from headgate_stomp.publishing import Plan, Run, Shared, size_of

_SETTLEMENT_BYTES: Final = 256  # of memory, for each range of messages


class Settlement(NamedTuple):
    """Messages of a subscription, taken from those in flight, and their outcome."""

    subscription: Subscription
    unacked: list[Unacked[Any]]
    outcome: Outcome


class Transaction:
    """Messages and settlements of one transaction."""

    __slots__ = ("_runs", "settlements", "size_bytes")

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self.settlements: list[Settlement] = []
        self.size_bytes = 0

    def send(self, shared: Shared, plan: Plan, frame: Frame) -> int:
        """Keep a message; return its bytes of memory."""
        if not self._runs or self._runs[-1].shared != shared:
            self._runs.append(Run(shared, plan))
        self._runs[-1].bodies.append(frame.body)
        return self._count(size_of(frame))

    def settle(self, settlement: Settlement) -> int:
        """Keep a settlement; return its bytes of memory."""
        self.settlements.append(settlement)
        return self._count(_SETTLEMENT_BYTES * len(settlement.unacked))

    def _count(self, size_bytes: int) -> int:
        self.size_bytes += size_bytes
        return size_bytes

    def publications(self) -> Sequence[tuple[ExchangeName, Publication]]:
        """Return the messages, in order."""
        return [(run.plan.exchange, run.plan.publication(run.bodies)) for run in self._runs]

    def roll_back(self) -> None:
        """Put settled messages back: they are in flight again."""
        for subscription, unacked, _ in self.settlements:
            subscription.put_back(unacked)


class Transactions:
    """Open transactions of a connection, by name."""

    def __init__(self, *, count_max: int, bytes_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._open: dict[str, Transaction] = {}
        self._size_bytes = 0

    def begin(self, name: str) -> None:
        """Begin one. Errors: ``StompFault`` when it is there; ``Overloaded``."""
        if name in self._open:
            raise StompFault("Duplicate transaction", f"transaction {name} has begun")
        if len(self._open) >= self._count_max:
            msg = f"transactions_max is {self._count_max}"
            raise Overloaded(msg)
        self._open[name] = Transaction()

    def get(self, name: str) -> Transaction:
        """Return an open one. Error: ``StompFault``."""
        found = self._open.get(name)
        if found is None:
            raise StompFault("Bad transaction", f"there is no transaction {name}")
        return found

    def take(self, name: str) -> Transaction:
        """Remove and return one that ends. Error: ``StompFault``."""
        found = self.get(name)
        del self._open[name]
        self._size_bytes -= found.size_bytes
        return found

    def count(self, size_bytes: int) -> None:
        """Count bytes that were added. Error: ``Overloaded`` above the bound."""
        self._size_bytes += size_bytes
        if self._size_bytes > self._bytes_max:
            msg = f"transaction_bytes_max is {self._bytes_max}"
            raise Overloaded(msg)

    def close(self) -> None:
        """Roll back all of them."""
        for one in self._open.values():
            one.roll_back()
        self._open.clear()
