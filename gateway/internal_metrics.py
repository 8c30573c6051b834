"""Metrics of the kernel, read on a scrape."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from features.queue.model import Counts
from gateway import descriptors, hanging_transactions
from gateway.contributions import InvalidContribution
from gateway.kernel import (
    CountsRequests,
    HasBudgets,
    HasListeners,
    HasMetrics,
    Kernel,
    ProtocolAdapter,
)
from gateway.metrics import Sample
from gateway.monitoring import node_metrics
from gateway.monitoring import start as monitoring
from gateway.queues.queue_counters import NAMES
from gateway.transactions import metrics as transaction_metrics

LAG_EVERY_S: Final = 1.0


def register_metrics(kernel: Kernel, adapters: Mapping[str, ProtocolAdapter]) -> None:
    """Register the metrics of the broker, the storage and the adapters."""
    metrics = kernel.metrics
    kernel.broker.register_metrics(metrics)
    transactional = kernel.broker.transactional
    hanging_transactions.register_metrics(metrics, transactional, kernel.clock)
    metrics.gauge(
        "headgate_partitions",
        "Partitions of all topics.",
        lambda: kernel.topics.partition_count,
    )
    kernel.logins.register_metrics(metrics)
    _register_groups(kernel)
    transaction_metrics.register_metrics(metrics, kernel.transactions, kernel.clock)
    _register_queues(kernel)
    _register_delays(kernel)
    lag = LoopLag(asyncio.get_running_loop())
    metrics.gauge("headgate_loop_lag_seconds", "Lateness of the loop's last timer.", lag.read)
    _register_descriptors(kernel)
    monitoring.register_metrics(kernel)
    _register_adapters(kernel, adapters)


def _register_descriptors(kernel: Kernel) -> None:
    metrics, admission = kernel.metrics, kernel.admission
    metrics.gauge(
        "headgate_connections_max",
        "Connections of all listeners that the file descriptors allow.",
        lambda: admission.connections_max,
    )
    metrics.counter_fn(
        "headgate_descriptor_shortages",
        "Failures for lack of a file descriptor.",
        lambda: descriptors.SHORTAGES.count,
    )


def _register_groups(kernel: Kernel) -> None:
    metrics, groups, cursors = kernel.metrics, kernel.groups, kernel.cursors
    metrics.gauges(
        "headgate_groups",
        "Consumer groups that have, or had, members, by state.",
        ("state",),
        lambda: [
            ((state.name.lower(),), count) for state, count in groups.count_by_state().items()
        ],
    )
    metrics.gauge(
        "headgate_group_members", "Members of all groups.", lambda: groups.member_count
    )
    metrics.gauge(
        "headgate_committed_offsets", "Committed offsets stored.", lambda: cursors.count
    )
    metrics.gauge(
        "headgate_pending_offsets",
        "Offsets that open transactions are to commit.",
        lambda: cursors.pending.count,
    )
    metrics.gauge(
        "headgate_pending_offset_bytes",
        "Bytes of those offsets, with the names of their groups.",
        lambda: cursors.pending.size_bytes,
    )
    metrics.counter_fn("headgate_offset_commits", "Offsets committed.", lambda: cursors.commits)


def _register_queues(kernel: Kernel) -> None:
    metrics, queues = kernel.metrics, kernel.queues

    def by_state() -> Iterable[Sample]:
        total = dict.fromkeys(Counts._fields, 0)
        for queue in queues.of_clients():
            for state, count in queue.counts()._asdict().items():
                total[state] += count
        return [((state,), count) for state, count in total.items()]

    def events() -> Iterable[Sample]:
        counters = queues.counters
        return [((what,), getattr(counters, what)) for what in NAMES]

    metrics.gauge("headgate_queues", "Queues.", lambda: len(queues.of_clients()))
    metrics.gauges(
        "headgate_queue_messages", "Messages of all queues by state.", ("state",), by_state
    )
    metrics.gauge(
        "headgate_queue_dead_letters_waiting",
        "Dead letters that could not be moved, and are tried again.",
        lambda: queues.dead_letters.retries.waiting_count,
    )
    metrics.gauge(
        "headgate_queue_receivers",
        "Waiting receivers.",
        lambda: queues.waiting_count,
    )
    metrics.counter_fn(
        "headgate_transfer_records_dropped",
        "Records of other nodes for topics in memory that were dropped: memory had no room.",
        lambda: 0 if (waiting := queues.transfers.waiting) is None else waiting.dropped,
    )
    metrics.counters_fn(
        "headgate_queue_events",
        "Messages of queues by outcome.",
        ("what",),
        events,
    )


def _register_delays(kernel: Kernel) -> None:
    metrics, delays = kernel.metrics, kernel.delays
    metrics.gauge(
        "headgate_delayed_messages",
        "Delayed messages.",
        lambda: delays.total,
    )
    metrics.counter_fn(
        "headgate_delayed_delivered",
        "Delayed messages that were appended to their topics.",
        lambda: delays.moved,
    )
    metrics.counter_fn(
        "headgate_delayed_refusals",
        "Refused appends of due messages; each is tried again.",
        lambda: delays.refused,
    )


def _register_adapters(kernel: Kernel, adapters: Mapping[str, ProtocolAdapter]) -> None:
    metrics = kernel.metrics
    # An adapter has one listener, or several that have names of their own.
    listeners = {
        listener.name: listener
        for adapter in adapters.values()
        if isinstance(adapter, HasListeners)
        for listener in adapter.listeners
    }
    for name, adapter in adapters.items():
        if isinstance(adapter, HasMetrics):
            try:
                adapter.register_metrics(metrics)
            except ValueError as error:
                raise InvalidContribution(f"adapter {name!r}: {error}") from error

    def connections() -> Iterable[Sample]:
        return [((name,), len(listener.connections)) for name, listener in listeners.items()]

    def faults() -> Iterable[Sample]:
        return [
            ((name, kind), count)
            for name, listener in listeners.items()
            for kind, count in listener.faults.items()
        ]

    node_metrics.register_metrics(kernel, adapters, listeners)
    metrics.gauges("headgate_connections", "Open connections.", ("protocol",), connections)
    metrics.counters_fn(
        "headgate_peer_faults",
        "Connections' faults by kind; each closed or refused something.",
        ("protocol", "kind"),
        faults,
    )
    metrics.counters_fn(
        "headgate_socket_writes",
        "Writes to sockets; many answers share one.",
        ("protocol",),
        lambda: [((name,), listener.socket_writes) for name, listener in listeners.items()],
    )
    budgets = {
        (name, budget.name): budget
        for name, adapter in adapters.items()
        if isinstance(adapter, HasBudgets)
        for budget in adapter.budgets
    }
    metrics.gauges(
        "headgate_budget_bytes",
        "Bytes taken of shared budgets, by protocol and budget.",
        ("protocol", "budget"),
        lambda: [(labels, budget.bytes_taken) for labels, budget in budgets.items()],
    )
    metrics.gauges(
        "headgate_budget_waiting",
        "Connections that wait for room in a budget.",
        ("protocol", "budget"),
        lambda: [(labels, budget.waiting_count) for labels, budget in budgets.items()],
    )
    metrics.counters_fn(
        "headgate_requests",
        "Requests by API.",
        ("protocol", "api"),
        lambda: [
            ((name, api), count)
            for name, adapter in adapters.items()
            if isinstance(adapter, CountsRequests)
            for api, count in adapter.request_counts()
        ],
    )


class LoopLag:
    """Lateness of the event loop's timers, measured once a second."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lag_s = 0.0
        self._due_s = loop.time()
        self._tick()

    def read(self) -> float:
        """Return the last lateness in seconds."""
        return max(self._lag_s, self._loop.time() - self._due_s)

    def _tick(self) -> None:
        now_s = self._loop.time()
        self._lag_s = max(0.0, now_s - self._due_s)
        self._due_s = now_s + LAG_EVERY_S
        self._loop.call_at(self._due_s, self._tick)
