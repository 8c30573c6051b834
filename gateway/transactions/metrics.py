"""Metrics of transactions, read on a scrape."""

from gateway.clock import Clock
from gateway.metrics import Metrics
from gateway.transactions.coordinator import TransactionCoordinator


def register_metrics(
    metrics: Metrics, transactions: TransactionCoordinator, clock: Clock
) -> None:
    """Register the metrics of a node's transactions."""

    def started() -> list[int]:
        return [
            value.started_unix_ms
            for value in transactions.values.values()
            if value.deadline_unix_ms is not None
        ]

    def oldest_s() -> float:
        return max((clock.unix_ms() - one for one in started()), default=0) / 1_000

    metrics.gauge(
        "headgate_transactional_ids",
        "Transactional ids of producers.",
        lambda: len(transactions.values),
    )
    metrics.gauge("headgate_transactions_open", "Open transactions.", lambda: len(started()))
    metrics.gauge(
        "headgate_transaction_oldest_seconds",
        "Time since the oldest open transaction began; 0 without one.",
        oldest_s,
    )
    metrics.counters_fn(
        "headgate_transactions",
        "Transactions that have ended, by outcome.",
        ("outcome",),
        lambda: [((outcome,), count) for outcome, count in transactions.ended.items()],
    )
