"""Metrics by queue: messages by state and by outcome, and the age of the oldest."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final

from features.queue.model import Counts
from gateway.kernel import Kernel
from gateway.metrics import OTHER, Sample
from gateway.monitoring.message_age import MessageAges
from gateway.queues.queue import Queue
from gateway.queues.queue_counters import NAMES, QueueKey

LABELS: Final = ("namespace", "queue", "group")
STEP: Final = 200
"""Queues counted in one turn of the loop."""
LANES_MAX: Final = 64
"""Partitions of a queue that are asked for the age of their first message."""


def _labels(key: QueueKey) -> tuple[str, str, str]:
    name, group = key
    return name.namespace, name.name, group


class QueueMetrics:
    """Metrics of the queues with series of their own, and of the others together."""

    def __init__(self, kernel: Kernel, ages: MessageAges) -> None:
        self._kernel = kernel
        self._ages = ages
        self._depth: list[Sample] = []
        self._oldest: list[Sample] = []

    def register(self) -> None:
        """Register the metrics."""
        metrics = self._kernel.metrics
        metrics.gauges(
            "headgate_queue_depth",
            "Messages of a queue by state.",
            (*LABELS, "state"),
            lambda: self._depth,
        )
        metrics.gauges(
            "headgate_queue_oldest_seconds",
            "Age of a queue's oldest message that is not settled.",
            LABELS,
            lambda: self._oldest,
        )
        metrics.counters_fn(
            "headgate_queue_outcomes",
            "Messages of a queue by outcome.",
            (*LABELS, "what"),
            self._outcomes,
        )

    def _outcomes(self) -> Iterator[Sample]:
        counters = self._kernel.queues.counters_by_queue
        for key, one in tuple(counters.named.items()):
            for what in NAMES:
                yield (*_labels(key), what), getattr(one, what)
        if any(getattr(counters.others, what) for what in NAMES):
            for what in NAMES:
                yield (OTHER, OTHER, OTHER, what), getattr(counters.others, what)

    async def measure(self) -> None:
        """Count the messages of all queues, in short turns, and look at the oldest ones."""
        counters = self._kernel.queues.counters_by_queue
        depth: list[Sample] = []
        oldest: list[Sample] = []
        others: list[Queue] = []
        for number, queue in enumerate(self._kernel.queues.of_clients()):
            if queue.counters is counters.others:
                others.append(queue)
                continue
            labels = _labels((queue.name, queue.group))
            depth += _by_state(labels, queue.counts())
            age_s = await self._oldest_s(queue)
            if age_s is not None:
                oldest.append((labels, age_s))
            if number % STEP == 0:
                await asyncio.sleep(0)
        if others:
            depth += _by_state((OTHER, OTHER, OTHER), await _total(others))
        self._depth, self._oldest = depth, oldest

    async def _oldest_s(self, queue: Queue) -> float | None:
        oldest_s: float | None = None
        for lane in queue.lanes[:LANES_MAX]:
            age_s = await self._ages.seconds(lane.partition, lane.lane.floor)
            if age_s is not None:
                oldest_s = max(age_s, oldest_s or 0.0)
        return oldest_s


def _by_state(labels: tuple[str, str, str], counts: Counts) -> Iterable[Sample]:
    return [((*labels, state), count) for state, count in counts._asdict().items()]


async def _total(queues: list[Queue]) -> Counts:
    total = dict.fromkeys(Counts._fields, 0)
    for number, queue in enumerate(queues):
        for state, count in queue.counts()._asdict().items():
            total[state] += count
        if number % STEP == 0:
            await asyncio.sleep(0)
    return Counts(**total)
