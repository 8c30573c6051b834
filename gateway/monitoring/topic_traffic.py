"""Counters of records and bytes in and out, by topic.

A topic's partitions share one ``Traffic``, on which the write and the read path add up once per
batch and once per read; nothing is computed until somebody scrapes.
"""

from typing import Final

from gateway.config.metrics import MetricsConfig
from gateway.model import TopicName
from gateway.monitoring.bounded_names import BoundedNames


class Traffic:
    """Records and bytes appended, and read, since the start.

    ``records_out`` counts offsets, so it includes those that compaction has removed.
    """

    __slots__ = ("bytes_in", "bytes_out", "records_in", "records_out")

    def __init__(self) -> None:
        self.records_in = 0
        self.bytes_in = 0
        self.records_out = 0
        self.bytes_out = 0


UNCOUNTED: Final = Traffic()
"""Traffic of topics that have none of their own yet, and of internal ones; never shown."""


class TopicTraffic:
    """Traffic of the topics that are in use: see ``BoundedNames``."""

    def __init__(self, config: MetricsConfig | None = None) -> None:
        config = config or MetricsConfig()
        self._names: BoundedNames[TopicName, Traffic] = BoundedNames(
            Traffic, names_max=config.topics_max, patterns=config.topics
        )

    @property
    def named(self) -> dict[TopicName, Traffic]:
        """Traffic of topics with counters of their own, by name."""
        return self._names.named

    @property
    def others(self) -> Traffic:
        """Traffic of all other topics together."""
        return self._names.others

    def of(self, name: TopicName) -> Traffic:
        """Return the counters of a topic whose first partition comes into use."""
        return self._names.get(name, name.name)

    def forget(self, name: TopicName) -> None:
        """Forget a deleted topic; its place goes to the next new one."""
        self._names.forget(name)
