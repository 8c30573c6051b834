"""Acknowledgements that are part of another append: all of it counts, or nothing."""

from collections.abc import Sequence
from typing import NamedTuple

from features.queue.journal import encode_done_ranges
from features.queue.model import SettledRange
from gateway.coalescer import Part
from gateway.errors import StorageUnavailable
from gateway.queues.lanes import QueueContext, QueueLane
from gateway.queues.queue import Queue
from gateway.queues.settling import end_ack, ids_of


class _LaneAcks(NamedTuple):
    """Acknowledged messages of one lane, by one call."""

    lane: QueueLane
    ranges: Sequence[SettledRange]
    done: Sequence[range]
    ack_number: int


class JointAcks:
    """Acknowledgements of one append, made by ``QueueManager.joint_acks``. Loop only.

    ``add`` settles messages in memory, ``parts`` are appended by the caller, who calls ``arrived``
    once with the outcome, also when nothing could be appended.
    """

    def __init__(self, context: QueueContext) -> None:
        self._context = context
        self._acks: list[_LaneAcks] = []

    def add(
        self, queue: Queue, number: int, ranges: Sequence[SettledRange], *, holder: int
    ) -> None:
        """Acknowledge contiguous messages of a partition that the holder has in flight.

        All outcomes of ``ranges`` are ``ACK``. Otherwise as ``Queue.settle_ranges``.
        """
        lane = next((one for one in queue.lanes if one.partition.number == number), None)
        if lane is None:
            return
        now = self._context.clock.steady_unix_ms()
        _, effects = lane.lane.settle_ranges(ranges, holder=holder, now=now)
        done, effects.done = effects.done, []
        lane.done(effects)
        if done:
            self._acks.append(_LaneAcks(lane, ranges, done, lane.lane.ack_number))

    def parts(self) -> list[Part]:
        """Return the journal's entries for the append, which follows in the same turn, sealed.

        What was journaled before goes first. Error: ``NotLeader`` when a shard has left.
        """
        found: dict[QueueLane, list[range]] = {}
        for lane, _, done, _ in self._acks:
            if lane.is_journaled:
                found.setdefault(lane, []).extend(done)
        if found:
            self._context.journal.seal()
        return [
            self._context.journal.part(lane, encode_done_ranges(ranges))
            for lane, ranges in found.items()
        ]

    def arrived(self, error: StorageUnavailable | None) -> None:
        """Take the outcome of the append: after an error the messages are in flight again."""
        acks, self._acks = self._acks, []
        if not acks:
            return
        journaled = [one.lane for one in acks if one.lane.is_journaled]
        if journaled:
            self._context.journal.note(journaled, error)
        for lane, ranges, done, ack_number in acks:
            end_ack(lane, ack_number, error, ids_of(done, ranges))
            if error is None:
                lane.owner.counters.settled += sum(map(len, done))
