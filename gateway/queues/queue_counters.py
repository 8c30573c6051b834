"""Counters of what became of messages, by queue for a bounded number of queues."""

from typing import Final

from gateway.config.metrics import MetricsConfig
from gateway.model import TopicName
from gateway.monitoring.bounded_names import BoundedNames
from gateway.topics.index import Topic

QueueKey = tuple[TopicName, str]
"""Name of the topic, and the queue group."""


class QueueCounters:
    """Counters of messages since the start."""

    __slots__ = (
        "corrupt",
        "dead_lettered",
        "delivered",
        "dropped",
        "expired",
        "refused",
        "settled",
    )

    def __init__(self) -> None:
        self.delivered = 0
        self.settled = 0
        self.expired = 0
        self.corrupt = 0
        self.dead_lettered = 0
        self.dropped = 0
        self.refused = 0

    def add(self, other: "QueueCounters") -> None:
        """Add another one's counts to these."""
        for name in NAMES:
            setattr(self, name, getattr(self, name) + getattr(other, name))


NAMES: Final = QueueCounters.__slots__


class CountersByQueue:
    """Counters of a node's queues: see ``BoundedNames``. Deleted queues stay in the total."""

    def __init__(self, config: MetricsConfig) -> None:
        self._names: BoundedNames[QueueKey, QueueCounters] = BoundedNames(
            QueueCounters, names_max=config.queues_max, patterns=config.queues
        )
        self.internal = QueueCounters()
        """Counters of the kernel's own queues; part of the total, and shown nowhere else."""
        self._deleted = QueueCounters()

    @property
    def named(self) -> dict[QueueKey, QueueCounters]:
        """Queues with counters of their own."""
        return self._names.named

    @property
    def others(self) -> QueueCounters:
        """Counters of all other queues together."""
        return self._names.others

    def of(self, topic: Topic, group: str) -> QueueCounters:
        """Return the counters of a queue."""
        if topic.is_internal:
            return self.internal
        return self._names.get((topic.name, group), topic.name.name)

    def forget(self, name: TopicName, group: str) -> None:
        """Free the place of a deleted queue."""
        found = self._names.forget((name, group))
        if found is not None:
            self._deleted.add(found)

    def total(self) -> QueueCounters:
        """Return the counts of all queues since the start."""
        total = QueueCounters()
        for one in (self.internal, self._deleted, self.others, *self.named.values()):
            total.add(one)
        return total
