"""One partition of a share group: messages are acquired and acknowledged in ranges.

The messages are those of the group's queue on the topic; nothing is done for a single message
that can be done for a range. What a queue does with messages that come back, use up their
deliveries or are rejected is in ``features.queue``.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from itertools import groupby
from typing import Final, NamedTuple

from features.queue.model import BY_TIME, HeldRange, Outcome, SettledRange, TakenRange
from features.queue.retrying import DeliveryEnd
from gateway.clock import Clock
from gateway.errors import InvalidRecordState, InvalidRequest, StorageUnavailable
from gateway.partition import Partition
from gateway.queues.lanes import QueueLane
from gateway.queues.model import DeliveryId
from gateway.queues.queue import Queue
from gateway.queues.queue_counters import QueueCounters

ISOLATED_FROM_MIN: Final = 2
MISSING_MAX: Final = 1_000
OnAcknowledged = Callable[[StorageUnavailable | None], None]


class AcknowledgeType(IntEnum):
    """Kinds of acknowledgements, with the numbers of KIP-932 and KIP-1222."""

    GAP = 0  # there is no record at the offset
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


_OUTCOMES: Final = {
    AcknowledgeType.GAP: Outcome.ACK,
    AcknowledgeType.ACCEPT: Outcome.ACK,
    AcknowledgeType.RELEASE: Outcome.RELEASE,
    AcknowledgeType.REJECT: Outcome.REJECT,
}


class Acknowledged(NamedTuple):
    """Contiguous offsets and what is said of them: one type for all, or one each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


class _Answer:
    """Answer that waits for several journal entries."""

    __slots__ = ("_error", "_on_done", "waits_for")

    def __init__(self, on_done: OnAcknowledged) -> None:
        self._on_done = on_done
        self._error: StorageUnavailable | None = None
        self.waits_for = 1  # for the end of the call itself

    def arrived(self, _: object = None, error: StorageUnavailable | None = None) -> None:
        self._error = error or self._error
        self.waits_for -= 1
        if not self.waits_for:
            self._on_done(self._error)


class SharePartition:
    """Messages of one partition, as the members of a share group take them. Loop only."""

    __slots__ = ("_clock", "_counters", "lane", "queue")

    def __init__(
        self, queue: Queue, lane: QueueLane, clock: Clock, counters: QueueCounters
    ) -> None:
        self.queue = queue
        self.lane = lane
        self._clock = clock
        self._counters = counters

    @property
    def partition(self) -> Partition:
        """The partition."""
        return self.lane.partition

    @property
    def start_offset(self) -> int:
        """The lowest offset that is not done."""
        return self.lane.lane.floor

    @property
    def lag(self) -> int:
        """Number of messages that are not done."""
        return sum(self.lane.lane.counts(self.partition.stable_end))

    # --- acquiring

    def next_offset(self) -> int | None:
        """Return the offset of the message that goes next; None if none may go."""
        lane = self.lane.lane
        self.lane.come_up_to_now(self._clock.steady_unix_ms())
        if lane.open_count - lane.returned_count >= lane.policy.in_flight_max:
            return None
        ready = lane.ready(1)
        return ready[0] if ready else None

    def skip_deleted(self) -> None:
        """Drop messages whose records were deleted from the start of the log."""
        self.lane.done(self.lane.lane.expire_before(self.partition.log_start_offset))

    def drop_missing(self) -> None:
        """Settle messages that go next, when the log has no batch from the next one on.

        Compaction may have removed the last batches of a log.
        """
        now = self._clock.steady_unix_ms()
        taken, effects = self.lane.lane.take_ranges(
            MISSING_MAX, holder=BY_TIME, lease_ms=self.queue.settings.lease_ms, now=now
        )
        self.lane.done(effects)
        ids = [(at, one.attempt) for one in taken for at in one.offsets]
        _, effects = self.lane.lane.ack(ids, now=now)
        self.lane.done(effects)

    def acquire(
        self,
        start: int,
        batch_ends: Sequence[int],
        *,
        holder: int,
        records_max: int,
        is_exact: bool,
    ) -> list[TakenRange]:
        """Hand out the next messages of batches that were read from ``start`` on.

        ``batch_ends``: the last offset of each batch. ``records_max`` is exceeded to the end of a
        batch unless ``is_exact``. Empty when other messages go first by now, or when those that
        went first are dead; ``next_offset`` says what goes next.
        """
        count = self._count(start, batch_ends, records_max, is_exact=is_exact)
        if not count:
            return []
        lane = self.lane
        taken, effects = lane.lane.take_ranges(
            count,
            holder=holder,
            lease_ms=self.queue.settings.lease_ms,
            now=self._clock.steady_unix_ms(),
        )
        lane.done(effects)
        lane.feed_more()
        end = batch_ends[-1]
        if any(one.offsets[0] < start or one.offsets[-1] > end for one in taken):
            taken = self._within(taken, range(start, end + 1))
        self._counters.delivered += sum([len(one.offsets) for one in taken])
        return taken

    def _count(
        self, start: int, batch_ends: Sequence[int], records_max: int, *, is_exact: bool
    ) -> int:
        """Return how many messages to take; those that failed often go alone."""
        lane = self.lane.lane
        ready = lane.ready(records_max)
        if not is_exact and len(ready) == records_max and ready[-1] <= batch_ends[-1]:
            end = batch_ends[bisect_left(batch_ends, ready[-1])]
            if end > ready[-1]:
                ready = [at for at in lane.ready(records_max + end - ready[-1]) if at <= end]
        count = 0
        limit = self.queue.settings.delivery_limit + 1
        isolated_from = max(ISOLATED_FROM_MIN, -(-limit // 2))
        has_returned = lane.returned_count > 0 and limit > 0
        for at in ready:
            if not start <= at <= batch_ends[-1]:
                break
            if has_returned and lane.attempts_of(at) >= isolated_from:
                return max(count, 1)
            count += 1
        return count

    def _within(self, taken: Iterable[TakenRange], inside: range) -> list[TakenRange]:
        """Give back what was not read, without counting the attempt; return the rest."""
        kept = []
        outside: list[tuple[int, int]] = []
        for one in taken:
            offsets = range(
                max(one.offsets.start, inside.start), min(one.offsets.stop, inside.stop)
            )
            if offsets:
                kept.append(one._replace(offsets=offsets))
            outside += [(at, one.attempt) for at in one.offsets if at not in inside]
        now = self._clock.steady_unix_ms()
        _, effects = self.lane.lane.release(
            outside, delay_ms=0, now=now, ending=DeliveryEnd.UNSEEN
        )
        self.lane.done(effects)
        return kept

    # --- acknowledging

    def acknowledge(
        self, batches: Sequence[Acknowledged], on_done: OnAcknowledged, *, holder: int
    ) -> None:
        """Settle messages of a holder, or renew their locks: all of them, or none.

        Offsets below the start are done already, and ignored. ``on_done`` runs once all is
        durable, maybe before this returns. Errors, with nothing settled: ``InvalidRequest`` for
        messages that were never delivered, ``InvalidRecordState`` for those that the holder has
        not, or not any more.
        """
        settled: list[SettledRange] = []
        renewed: list[tuple[DeliveryId, int]] = []
        number, lease_ms = self.partition.number, self.queue.settings.lease_ms
        self.lane.come_up_to_now(self._clock.steady_unix_ms())
        for batch in batches:
            for kind, offsets in _runs(batch):
                for held in self._held(offsets, holder):
                    if kind is AcknowledgeType.RENEW:
                        renewed += [
                            (DeliveryId(number, at, held.attempt), lease_ms)
                            for at in held.offsets
                        ]
                    else:
                        settled.append(
                            SettledRange(held.offsets, held.attempt, _OUTCOMES[kind])
                        )
        answer = _Answer(on_done)
        if settled:
            answer.waits_for += 1
            self.queue.settle_ranges(number, settled, answer.arrived, holder=holder)
        if renewed:
            answer.waits_for += 1
            self.queue.extend(renewed, answer.arrived)
        answer.arrived()

    def _held(self, offsets: range, holder: int) -> list[HeldRange]:
        lane = self.lane.lane
        if offsets.stop > lane.next_offset:
            msg = f"offset {offsets.stop - 1} was never delivered"
            raise InvalidRequest(msg)
        offsets = range(max(offsets.start, lane.floor), offsets.stop)
        if not offsets:
            return []
        held = lane.held_by(offsets, holder)
        if held is None:
            msg = f"offsets {offsets.start} to {offsets.stop - 1} are not all locked by the member"
            raise InvalidRecordState(msg)
        return held


def _runs(batch: Acknowledged) -> Iterable[tuple[AcknowledgeType, range]]:
    """Yield the contiguous offsets of a batch with the same type."""
    if len(batch.types) == 1:
        yield AcknowledgeType(batch.types[0]), range(batch.first_offset, batch.last_offset + 1)
        return
    start = batch.first_offset
    for kind, some in groupby(batch.types):
        stop = start + len(list(some))
        yield AcknowledgeType(kind), range(start, stop)
        start = stop
