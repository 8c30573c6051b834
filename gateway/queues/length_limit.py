"""Length limit of a queue: its oldest ready messages go when there are too many.

They are moved to the dead letters with the reason ``maxlen``, or dropped where there are none.
Messages in flight do not count. Consumers and waiting receives are served before: a message that
somebody can take is not dropped for those behind it.
"""

from collections.abc import Sequence
from typing import Final

from gateway.queues.lane_sizes import QueueSizes
from gateway.queues.lanes import QueueContext, QueueLane
from gateway.queues.model import Overflow, QueueSettings
from gateway.queues.receivers import Receivers

MAXLEN: Final = "maxlen"  # the reason of the dead letters
DROPPED_PER_TURN: Final = 1_000
MOVING_MAX: Final = 10_000
"""Messages of a partition that are being dropped, or moved, at a time; at most half of those that
may be in flight. Where dead letters cannot be moved, the queue grows longer, and consumers go on.
"""


class LengthLimit:
    """Length limit of one queue, in messages and in bytes of their values."""

    def __init__(self, context: QueueContext, receivers: Receivers, sizes: QueueSizes) -> None:
        self._context = context
        self._sizes = sizes
        self._receivers = receivers
        self._is_scheduled = False

    def check_soon(self) -> None:
        """Look at the length when receivers have been served."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._context.loop.call_soon(self._check)

    def _check(self) -> None:
        self._is_scheduled = False
        settings = self._receivers.settings
        if self._receivers.is_closed or not is_dropping(settings):
            return
        if self._receivers.is_scheduled:
            self.check_soon()
            return
        is_more = bool(settings.length_max) and self._drop()
        is_more |= bool(settings.length_bytes_max) and self._drop_bytes()
        if is_more:
            self.check_soon()

    def _drop_bytes(self) -> bool:
        """Drop the oldest messages above the bytes; return whether there may be more."""
        lanes = self._receivers.lanes
        bytes_max = self._receivers.settings.length_bytes_max
        if not self._sizes.may_exceed(bytes_max):
            return False
        sizes = [self._sizes.by_lane[lane].ready_bytes for lane in lanes]
        kept_bytes_max = level(sizes, bytes_max) if sum(sizes) > bytes_max else bytes_max
        is_more = False
        for lane, size_bytes in zip(lanes, sizes, strict=True):
            excess_bytes = size_bytes - kept_bytes_max
            if excess_bytes > 0:
                count = self._sizes.by_lane[lane].count_of(excess_bytes, DROPPED_PER_TURN)
                is_more |= self._drop_of(lane, count) == DROPPED_PER_TURN
        return is_more

    def _drop(self) -> bool:
        """Drop what is too much; return whether there may be more."""
        length_max = self._receivers.settings.length_max
        lanes = self._receivers.lanes
        counts = [lane.lane.counts(lane.partition.stable_end).ready for lane in lanes]
        excess = sum(counts) - length_max
        if excess <= 0:
            return False
        wanted = min(excess, DROPPED_PER_TURN)
        dropped_count = 0
        kept_max = level(counts, length_max)
        for count, lane in zip(counts, lanes, strict=True):
            much = min(count - kept_max, wanted - dropped_count)
            if much > 0:
                dropped_count += self._drop_of(lane, much)
        return 0 < dropped_count < excess

    def _drop_of(self, lane: QueueLane, count: int) -> int:
        """Drop up to ``count`` messages of a lane; return how many."""
        moving_max = min(MOVING_MAX, max(self._receivers.settings.in_flight_max // 2, 1))
        count = min(count, moving_max - lane.lane.moving_count)
        if count <= 0:
            return 0  # a move that ends calls ``check_soon``
        now = self._context.clock.steady_unix_ms()
        effects = lane.lane.reject_ready(lane.lane.ready(count), reason=MAXLEN, now=now)
        dropped_count = len(effects.dead)
        lane.done(effects)
        lane.feed_more()
        return dropped_count


def is_dropping(settings: QueueSettings) -> bool:
    """Return whether the oldest messages of a queue go when it is too long."""
    has_limit = settings.length_max or settings.length_bytes_max
    return bool(has_limit) and settings.overflow is Overflow.DROP_HEAD


def level(counts: Sequence[int], total_max: int) -> int:
    """Return the most that each of several may keep so that all together keep the total.

    >>> level([20, 20], 10), level([1, 50, 50], 10), level([3, 4], 10)
    (5, 4, 4)
    """
    left, open_count = total_max, len(counts)
    for count in sorted(counts):
        share = left // open_count
        if count > share:
            return share
        left -= count
        open_count -= 1
    return max(counts, default=0)
