"""Metrics of transactions, read on a scrape."""

from gateway.clock import Clock
from gateway.metrics import Metrics
from gateway.transactions.coordinator import TransactionCoordinator


def register_metrics(
    metrics: Metrics, transactions: TransactionCoordinator, clock: Clock
) -> None:
    """Register the metrics of a node's transactions."""

    def oldest_s() -> float:
        started = (value.started_unix_ms for value in transactions.ongoing.values())
        now_unix_ms = clock.unix_ms()
        return (now_unix_ms - min(started, default=now_unix_ms)) / 1_000

    metrics.gauge(
        "headgate_transactional_ids",
        "Transactional ids of producers.",
        lambda: len(transactions.values),
    )
    metrics.gauge(
        "headgate_transactions_open", "Open transactions.", lambda: len(transactions.ongoing)
    )
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
