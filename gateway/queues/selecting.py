"""Selection of a consumer: it gets messages that match, ahead of others that do not.

Messages are looked at where they lie, and only those that match are taken. Each is looked at once
by a consumer, a bounded number in a turn. Behind ``features.queue.selecting.AHEAD_MAX`` messages
that do not match nothing is found until others have taken some of them.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from features.queue.model import TakenRange
from features.queue.selecting import AHEAD_MAX
from features.ranges import RangeSet
from gateway.model import Record
from gateway.queues.cached_batch import Unreadable
from gateway.queues.delivered_ranges import FoundRange
from gateway.queues.lanes import QueueContext, QueueLane

Matches = Callable[[Record], bool]

LOOKED_MAX: Final = 256  # messages of a partition in a turn
LOOKED_BYTES_MAX: Final = 16 * 1024 * 1024  # of batches, and one more
PASSED_MAX: Final = 40_000  # then all that is ready is looked at anew


class Look(NamedTuple):
    """Messages that match, or that nobody can read. ``is_over``: there was no other to look at.

    ``unread``: what must be read from the disk before.
    """

    offsets: list[int]
    is_over: bool
    unread: list[TakenRange]


class Selection:
    """A consumer's condition, and the messages for which it is false, by partition."""

    __slots__ = ("_matches", "_passed", "is_cut", "reading")

    def __init__(self, matches: Matches) -> None:
        self._matches = matches
        self._passed: dict[int, RangeSet] = {}
        self.is_cut = False
        """Whether messages were behind those that may be looked at."""
        self.reading: set[int] = set()
        """Numbers of the partitions of which messages are read from the disk to be looked at."""

    def look(self, context: QueueContext, lane: QueueLane, wanted: int) -> Look:
        """Look for up to ``wanted`` messages of a lane that match.

        Errors: those of the condition.
        """
        if lane.number in self.reading:
            return Look([], is_over=True, unread=[])
        passed = self._passed.setdefault(lane.number, RangeSet())
        passed.drop_before(lane.lane.floor)
        if passed.count > PASSED_MAX:
            passed.clear()
        candidates = lane.lane.candidates(passed, LOOKED_MAX)
        if lane.lane.counts(lane.partition.stable_end).ready > AHEAD_MAX:
            self.is_cut = True
        asked = [TakenRange(offsets, 1, 0) for offsets in candidates]
        found = context.message_cache.find_ranges(
            lane.partition, asked, bytes_max=LOOKED_BYTES_MAX
        )
        if found is None:
            return Look([], is_over=False, unread=asked)
        offsets: list[int] = []
        for one in found:
            if len(offsets) >= wanted or one.batch is Unreadable.UNREAD:
                return Look(offsets[:wanted], is_over=False, unread=[])
            offsets += self._matching(context, one, passed)
        is_over = len(offsets) <= wanted and sum(map(len, candidates)) < LOOKED_MAX
        return Look(offsets[:wanted], is_over, [])

    def _matching(self, context: QueueContext, one: FoundRange, passed: RangeSet) -> list[int]:
        batch = one.batch
        if isinstance(batch, Unreadable):
            return list(one.offsets)  # the take sees to it
        context.message_cache.decode(one.partition, batch)
        if batch.is_corrupt:
            return list(one.offsets)
        missing = set(one.offsets)
        matching: list[int] = []
        for record in batch.records_of(one.offsets):
            missing.discard(record.offset)
            if self._matches(record):
                matching.append(record.offset)
            else:
                passed.add(record.offset, record.offset)
        return sorted([*matching, *missing])
