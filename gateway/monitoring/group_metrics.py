"""Metrics of consumer groups: lag in messages and in time, by group and topic."""

import asyncio
import heapq
from collections.abc import Iterator
from operator import attrgetter
from typing import Final

from gateway.errors import GatewayError
from gateway.groups.cursors import Cursor
from gateway.groups.model import GroupName
from gateway.kernel import Kernel
from gateway.metrics import OTHER, Sample
from gateway.monitoring.bounded_names import BoundedNames
from gateway.monitoring.message_age import MessageAges
from gateway.partition import Partition

LABELS: Final = ("namespace", "group", "topic")
STEP: Final = 500
"""Positions looked at in one turn of the loop."""
OLDEST_MAX: Final = 8
"""Partitions of a group and a topic, those with the largest lag, that are asked for their age."""


class GroupLag:
    """Lag of one group in one topic. ``behind_s`` is None where the age is not known."""

    __slots__ = ("behind_s", "furthest", "labels", "messages")

    def __init__(self, labels: tuple[str, str, str]) -> None:
        self.labels = labels
        self.messages = 0
        self.behind_s: float | None = 0.0
        self.furthest: list[tuple[int, int, Partition, int]] = []

    def add(self, partition: Partition, offset: int) -> None:
        """Add a position."""
        lag = max(0, partition.high_watermark - offset)
        self.messages += lag
        if not lag:
            return
        entry = (lag, partition.number, partition, offset)
        if len(self.furthest) < OLDEST_MAX:
            heapq.heappush(self.furthest, entry)
        else:
            heapq.heappushpop(self.furthest, entry)


class GroupMetrics:
    """Lags of the groups whose positions this node keeps, measured before a scrape."""

    def __init__(self, kernel: Kernel, ages: MessageAges) -> None:
        self._kernel = kernel
        self._ages = ages
        self._config = kernel.settings.metrics
        self._allowed: BoundedNames[str, None] = BoundedNames(
            lambda: None, names_max=1, patterns=self._config.groups
        )
        self._shown: list[GroupLag] = []
        self._others = 0
        self._left_out = 0

    def register(self) -> None:
        """Register the metrics."""
        metrics = self._kernel.metrics
        metrics.gauges(
            "headgate_group_lag",
            "Messages that a group has not read yet, by topic.",
            LABELS,
            self._messages,
        )
        metrics.gauges(
            "headgate_group_lag_seconds",
            "Age of the first message that a group has not read, by topic.",
            LABELS,
            self._behind,
        )
        metrics.gauge(
            "headgate_group_positions_left_out",
            "Committed offsets that the lag of groups does not include: metrics.positions_max.",
            lambda: self._left_out,
        )

    def _messages(self) -> Iterator[Sample]:
        for one in self._shown:
            yield one.labels, one.messages
        if self._others:
            yield (OTHER, OTHER, OTHER), self._others

    def _behind(self) -> Iterator[Sample]:
        for one in self._shown:
            if one.behind_s is not None:
                yield one.labels, one.behind_s

    async def measure(self) -> None:
        """Look at all positions, in short turns, and at the age of the first unread messages."""
        found: dict[tuple[str, str, str], GroupLag] = {}
        total = looked_at = 0
        for name in self._names():
            for cursor in self._cursors(name):
                if looked_at >= self._config.positions_max:
                    break
                looked_at += 1
                if looked_at % STEP == 0:
                    await asyncio.sleep(0)
                partition = self._partition(cursor)
                if partition is None:
                    continue
                total += max(0, partition.high_watermark - cursor.offset)
                if self._allowed.allows(name.name):
                    labels = (name.namespace, name.name, partition.topic.name.name)
                    if labels not in found:
                        found[labels] = GroupLag(labels)
                    found[labels].add(partition, cursor.offset)
        self._left_out = max(0, self._kernel.cursors.count - looked_at)
        shown = heapq.nlargest(
            self._config.groups_max, found.values(), key=attrgetter("messages")
        )
        for one in shown:
            one.behind_s = await self._oldest_s(one)
        self._shown = shown
        self._others = total - sum(one.messages for one in shown)

    async def _oldest_s(self, lag: GroupLag) -> float | None:
        """Return the largest age among the partitions that are furthest behind."""
        oldest_s: float | None = None if lag.furthest else 0.0
        for _, _, partition, offset in sorted(
            lag.furthest, reverse=True, key=lambda one: one[0]
        ):
            age_s = await self._ages.seconds(partition, offset)
            if age_s is not None:
                oldest_s = max(age_s, oldest_s or 0.0)
        lag.furthest.clear()
        return oldest_s

    def _names(self) -> list[GroupName]:
        try:
            return self._kernel.groups.names()
        except GatewayError:  # being loaded
            return []

    def _cursors(self, name: GroupName) -> list[Cursor]:
        try:
            return self._kernel.cursors.fetch_all(name)
        except GatewayError:
            return []

    def _partition(self, cursor: Cursor) -> Partition | None:
        """Return the partition of a position; None if it is gone or another node's."""
        kernel = self._kernel
        topic = kernel.topics.by_uuid(cursor.topic_uuid)
        if topic is None or cursor.number >= len(topic.partition_ids):
            return None
        try:
            return kernel.broker.partition(topic, cursor.number)
        except GatewayError:
            return None
