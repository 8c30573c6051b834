"""Share groups (KIP-932) for the admin endpoint: their positions are those of their queues.

A group has, on each topic that it reads, a queue of its name. The start offset of a partition is
the lowest one that is not done; the lag counts all that is not done, what is in flight included.
Partitions of other nodes are left out.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from gateway.groups.consumer.group import ConsumerGroup
from gateway.groups.consumer.protocol import SHARE
from gateway.groups.group import Group
from gateway.groups.model import GroupName
from gateway.kernel import Kernel
from gateway.queues.lanes import QueueLane
from gateway.queues.queue import Queue
from gateway.shares.group_queues import queue_on, queues_of
from gateway.topics.manager import Topic

CLASSIC: Final = "classic"


class SharePosition(NamedTuple):
    """Position of a share group in a partition."""

    topic: Topic
    lane: QueueLane

    @property
    def number(self) -> int:
        """Number of the partition."""
        return self.lane.number

    @property
    def start_offset(self) -> int:
        """The lowest offset that is not done."""
        return self.lane.lane.floor

    @property
    def lag(self) -> int:
        """Number of messages that are not done."""
        return sum(self.lane.lane.counts(self.lane.partition.stable_end))

    @property
    def in_flight(self) -> int:
        """Number of messages that members have, and have not acknowledged."""
        return self.lane.lane.counts(self.lane.partition.stable_end).in_flight


class ShareTotals(NamedTuple):
    """Sums over the partitions of a group."""

    positions: int
    lag: int
    in_flight: int


def group_type(group: Group | ConsumerGroup | None) -> str | None:
    """Return ``classic``, ``consumer`` or ``share``; None for a group that only has offsets."""
    if isinstance(group, ConsumerGroup):
        return group.protocol.name
    return None if group is None else CLASSIC


def is_share_group(kernel: Kernel, name: GroupName) -> bool:
    """Say whether a group is a share group."""
    return group_type(kernel.groups.find(name)) == SHARE.name


def totals_of(queues: Iterable[Queue]) -> ShareTotals:
    """Return the sums over the queues of a group."""
    positions = _positions(queues)
    return ShareTotals(
        len(positions),
        sum(one.lag for one in positions),
        sum(one.in_flight for one in positions),
    )


def share_positions(kernel: Kernel, name: GroupName) -> list[SharePosition]:
    """Return the positions of a share group, by topic and partition."""
    return _positions(queues_of(kernel.queues, name))


def position_on(kernel: Kernel, name: GroupName, topic: Topic, number: int) -> SharePosition:
    """Return the position in a partition of this node. Errors: ``NotLeader``, ``TopicNotFound``."""
    kernel.broker.partition(topic, number)
    queue = queue_on(kernel.queues, name, topic)
    return next(one for one in _positions([queue]) if one.number == number)


def _positions(queues: Iterable[Queue]) -> list[SharePosition]:
    return [
        SharePosition(queue.topic, lane)
        for queue in queues
        for lane in queue.lanes
        if lane.is_open
    ]


def share_position_view(one: SharePosition) -> dict[str, Any]:
    """Return a position as JSON, with the fields of a committed offset."""
    return {
        "topic": one.topic.name.name,
        "partition": one.number,
        "offset": one.start_offset,
        "end": one.lane.partition.high_watermark,
        "lag": one.lag,
        "in_flight": one.in_flight,
        "metadata": None,
        "committed_unix_ms": None,
    }
