"""Sources of deliveries, and the settling of what they have delivered."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from features.queue.model import LapsedRange, SettledRange
from gateway.errors import StorageUnavailable
from gateway.queues.delivered_ranges import DeliveredRange
from gateway.queues.joint_acks import JointAcks
from gateway.queues.manager import Queue
from gateway.queues.model import Outcome
from gateway.queues.unacked import Unacked


class Source(Protocol):
    """Source of a channel's deliveries, as these are settled."""

    def freed(self, count: int) -> None:
        """Count messages that are not in flight any more."""
        ...

    def settle(self, number: int, settled: Sequence[SettledRange]) -> None:
        """Settle messages of a partition; nobody waits for it."""
        ...

    def acknowledge_in(
        self, acks: JointAcks, number: int, settled: Sequence[SettledRange]
    ) -> None:
        """Acknowledge messages of a partition as a part of another append."""
        ...


class QueueSource:
    """Source of deliveries of a queue to a channel: basic.get, or a consumer.

    ``holder``: of the connection, for which the queue keeps them in flight.
    """

    __slots__ = ("holder", "no_ack", "queue", "tag", "unacked_count")

    def __init__(
        self, queue: Queue, holder: int, tag: str = "", *, no_ack: bool = False
    ) -> None:
        self.queue = queue
        self.holder = holder
        self.tag = tag
        self.no_ack = no_ack
        self.unacked_count = 0

    def freed(self, count: int) -> None:
        """Count messages that are not in flight any more."""
        self.unacked_count -= count

    def settle(self, number: int, settled: Sequence[SettledRange]) -> None:
        """Settle messages of a partition; nobody waits for it."""
        if not self.queue.is_gone:
            self.queue.settle_ranges(number, settled, _ignore, holder=self.holder)

    def acknowledge_in(
        self, acks: JointAcks, number: int, settled: Sequence[SettledRange]
    ) -> None:
        """See ``Source``."""
        if not self.queue.is_gone:
            acks.add(self.queue, number, settled, holder=self.holder)


def settle_as(unacked: Iterable[Unacked[Source]], outcome: Outcome) -> None:
    """Settle messages with one outcome; nobody waits for it."""
    by_lane: dict[tuple[Source, int], list[SettledRange]] = {}
    freed: dict[Source, int] = {}
    for _, size, source, number, first_offset, attempt in unacked:
        offsets = range(first_offset, first_offset + size)
        settled = SettledRange(offsets, attempt, outcome)
        by_lane.setdefault((source, number), []).append(settled)
        freed[source] = freed.get(source, 0) + size
    for (source, number), ranges in by_lane.items():
        source.settle(number, ranges)
    for source, count in freed.items():
        source.freed(count)


def find_lapsed(
    unacked: Iterable[Unacked[Source]],
    queue: object,
    number: int,
    lapsed: Sequence[LapsedRange],
) -> QueueSource | None:
    """Return the source of messages that are not acknowledged, and whose lease has ended."""
    for one in unacked:
        source = one.source
        if not isinstance(source, QueueSource) or source.queue is not queue:
            continue
        if one.number != number:
            continue
        end_offset = one.first_offset + one.size
        for _, offsets, attempt in lapsed:
            if attempt == one.attempt and (
                offsets.start < end_offset and one.first_offset < offsets.stop
            ):
                return source
    return None


def acknowledge_in(acks: JointAcks, unacked: Iterable[Unacked[Source]]) -> None:
    """Acknowledge messages as a part of another append; ``freed`` follows when it is durable."""
    for _, size, source, number, first_offset, attempt in unacked:
        offsets = range(first_offset, first_offset + size)
        source.acknowledge_in(acks, number, [SettledRange(offsets, attempt, Outcome.ACK)])


def settle_delivered(
    source: QueueSource, ranges: Sequence[DeliveredRange], outcome: Outcome
) -> None:
    """Settle messages that the channel does not keep: without acknowledgement, or too late."""
    for one in ranges:
        source.settle(one.number, [SettledRange(one.offsets, one.attempt, outcome)])


def _ignore(_counts: Sequence[int], _error: StorageUnavailable | None) -> None:
    """Let a failed settlement be: the message is delivered again."""
