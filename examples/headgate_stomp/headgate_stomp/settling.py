"""Settlements of one connection: ACKs of one read are settled together."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from gateway.errors import StorageUnavailable
from gateway.queues.model import Outcome
from gateway.queues.unacked import Unacked
from headgate_stomp.connection import StompConnection
from headgate_stomp.ports import Subscription
from headgate_stomp.transactions import Settlement, Transaction


class Settlements:
    """ACKs and NACKs since the last flush."""

    def __init__(self, connection: StompConnection) -> None:
        self._connection = connection
        self._waiting: list[Settlement] = []
        self._receipts: list[str] = []

    def add(self, settlement: Settlement, receipt: str | None) -> None:
        """Add what one frame settles."""
        self._waiting.append(settlement)
        if receipt is not None:
            self._receipts.append(receipt)

    def flush(self) -> None:
        """Settle what was added. Errors: ``GatewayError``."""
        waiting, self._waiting = self._waiting, []
        receipts, self._receipts = self._receipts, []
        if waiting:
            self.settle(waiting, receipts)

    def settle(self, settlements: Sequence[Settlement], receipts: Sequence[str]) -> None:
        """Settle messages, and send the receipts once that is durable. Errors: ``GatewayError``."""
        connection = self._connection
        groups: dict[tuple[int, Outcome], tuple[Subscription, list[Unacked[Any]]]] = {}
        for subscription, unacked, outcome in settlements:
            key = id(subscription), outcome
            groups.setdefault(key, (subscription, []))[1].extend(unacked)
        gate = _Gate(len(groups), connection, receipts)
        connection.wait_durable()
        for (_, outcome), (subscription, unacked) in groups.items():
            subscription.settle(unacked, outcome, gate.one)
        if not groups:
            gate.one(None)

    def settle_after(
        self,
        transaction: Transaction,
        receipts: Sequence[str],
        error: StorageUnavailable | None,
    ) -> None:
        """Settle what a transaction has gathered, after its messages were appended."""
        connection = self._connection
        if error is None:
            self.settle(transaction.settlements, receipts)
            connection.on_durable((), None)
        else:
            transaction.roll_back()
            connection.on_durable(receipts, error)


class _Gate:
    """Callback of several settlements, which sends the receipts after the last."""

    def __init__(
        self, count: int, connection: StompConnection, receipts: Sequence[str]
    ) -> None:
        self._left = max(count, 1)
        self._connection = connection
        self._on_last = partial(connection.guard, connection.on_durable, receipts)
        self._error: StorageUnavailable | None = None

    def one(self, error: StorageUnavailable | None) -> None:
        self._error = error or self._error
        self._left -= 1
        if not self._left:
            self._on_last(self._error)
