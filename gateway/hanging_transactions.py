"""Metrics of transactions in partitions: what is open, for how long, and what readers wait for."""

from collections.abc import Collection
from typing import Final

from gateway.clock import Clock
from gateway.metrics import Metrics, Sample
from gateway.partition import Partition

TOPICS_MAX: Final = 100
"""Topics with a sample of their own, those with the largest lags."""


def register_metrics(metrics: Metrics, partitions: Collection[Partition], clock: Clock) -> None:
    """Register them. ``partitions``: a live view of those that have had transactions."""
    metrics.gauge(
        "headgate_partition_transactions_open",
        "Open transactions, counted in each partition they have written to.",
        lambda: sum(len(one.transactions.open) for one in partitions if one.transactions),
    )
    metrics.gauge(
        "headgate_partition_transaction_oldest_seconds",
        "Age of the oldest open transaction in a partition, as seen since the start.",
        lambda: _oldest_ms(partitions, clock.unix_ms()) / 1_000,
    )
    metrics.gauge(
        "headgate_partition_transactions_aborted",
        "Aborted transactions that partitions remember.",
        lambda: sum(len(one.transactions.aborted) for one in partitions if one.transactions),
    )
    metrics.gauges(
        "headgate_stable_end_lag",
        "Offsets that readers wait for behind an open transaction, the most in a partition.",
        ("topic",),
        lambda: _lags(partitions),
    )


def _oldest_ms(partitions: Collection[Partition], now_unix_ms: int) -> int:
    opened = [
        time
        for one in partitions
        if one.transactions is not None
        for time in one.transactions.opened_unix_ms.values()
    ]
    return max(now_unix_ms - min(opened, default=now_unix_ms), 0)


def _lags(partitions: Collection[Partition]) -> list[Sample]:
    found: dict[str, int] = {}
    for one in partitions:
        lag = one.high_watermark - one.stable_end
        name = one.topic.name.name
        if lag > found.get(name, 0):
            found[name] = lag
    highest = sorted(found.items(), key=lambda pair: -pair[1])[:TOPICS_MAX]
    return [((name,), lag) for name, lag in highest]
