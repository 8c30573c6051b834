"""Queues of partitions in memory: their holds as they are now, and what goes of full ones.

Of a transient queue that is full the oldest ready messages go, as by ``length_max``: one receiver
that takes nothing must not refuse publishers whose messages go to other queues, too. Where nothing
is ready, because receivers have all of it and settle nothing, new messages go that other queues
get. One with another way to overflow refuses publishers (``RetentionHolds.check_room``).
"""

from typing import Final

from gateway.model import Headers
from gateway.partition import Partition
from gateway.queues.lanes import QueueContext, QueueLane
from gateway.queues.length_limit import MAXLEN
from gateway.queues.model import Overflow
from gateway.queues.queue_index import QueueIndex
from gateway.queues.refused_messages import bury_refused
from gateway.records.record_run import RecordRun

DEAD_PER_CALL: Final = 1_000  # that are moved to the dead letters


class MemoryQueues:
    """See the module. Loop only."""

    def __init__(self, context: QueueContext, queues: QueueIndex) -> None:
        self._context = context
        self._queues = queues
        context.broker.memory.renew_holds = self.renew_holds
        context.broker.memory.drop_oldest = self.drop_oldest
        context.broker.memory.overflow = self.overflow

    def renew_holds(self, partition: Partition) -> None:
        """Move the holds of a partition's queues."""
        for queue in self._queues.of(partition.topic):
            for lane in queue.lanes:
                if lane.partition is partition and lane.is_open:
                    lane.hold()

    def drop_oldest(self, partition: Partition, offset: int) -> None:
        """Drop what is ready below an offset, of transient queues that drop their oldest."""
        if not partition.topic.is_transient:
            return
        for queue in self._queues.of(partition.topic):
            if queue.settings.overflow is Overflow.DROP_HEAD:
                for lane in queue.lanes:
                    if lane.is_open:
                        self._drop(lane, offset, is_kept=queue.settings.has_dead_letters)

    def overflow(self, partition: Partition, run: RecordRun, headers: Headers) -> bool:
        """Note records that a full partition does not take; return whether it refuses them.

        A transient queue that drops its oldest drops them, or they are dead letters. ``headers``:
        those of the run, not encoded.
        """
        queues = self._queues.of(partition.topic)
        is_refused = not queues
        for queue in queues:
            settings = queue.settings
            is_dropped = (
                partition.topic.is_transient and settings.overflow is Overflow.DROP_HEAD
            )
            is_refused = is_refused or not is_dropped
            is_kept = is_dropped or settings.overflow is Overflow.REJECT_PUBLISH_DLX
            if not is_dropped:
                queue.counters.refused += len(run.values)
            if is_kept and settings.has_dead_letters and queue.lanes:
                bury_refused(self._context, queue.lanes[0], run, headers)
            elif is_dropped:
                queue.counters.dropped += len(run.values)
        return is_refused

    def _drop(self, lane: QueueLane, offset: int, *, is_kept: bool) -> None:
        """Drop messages, or move some of them to the dead letters."""
        if is_kept:
            now = self._context.clock.steady_unix_ms()
            oldest = [one for one in lane.lane.ready(DEAD_PER_CALL) if one < offset]
            lane.done(lane.lane.reject_ready(oldest, reason=MAXLEN, now=now))
        else:
            end = lane.partition.stable_end
            before = lane.lane.counts(end).ready
            lane.done(lane.lane.expire_before(offset))
            lane.owner.counters.dropped += before - lane.lane.counts(end).ready
        lane.feed_more()
