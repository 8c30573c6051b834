"""Changes of a queue's own delay: messages keep the delay that they were sent with.

Amazon SQS says so of standard and fair queues; in a queue in order of its keys a change is for all
that waits. A change is remembered as the offsets before which the old delay goes on, in the queue's
row, so that a restart does not change what is visible; until the last of these messages is old
enough by any delay.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from features.queue.model import Order
from gateway.queues.model import EarlierDelay, QueueRow, QueueSettings

EARLIER_MAX: Final = 16  # changes that are remembered; above it the oldest is forgotten


class LaneDelay(NamedTuple):
    """The delay of a partition's messages. ``earlier``: (end offset, delay), ends ascend."""

    delay_ms: int = 0
    earlier: tuple[tuple[int, int], ...] = ()

    @property
    def earlier_end(self) -> int:
        """The offset from which on no other delay than the queue's is needed."""
        return self.earlier[-1][0] if self.earlier else 0

    def of(self, offset: int) -> int:
        """Return the delay of a message."""
        for end, delay_ms in self.earlier:
            if offset < end:
                return delay_ms
        return self.delay_ms


def current_delay(
    settings: QueueSettings, earlier: Sequence[EarlierDelay], number: int, now_unix_ms: int
) -> LaneDelay:
    """Return the delays of a partition's messages."""
    needed = _needed(earlier, settings.delay_ms, now_unix_ms)
    ends = tuple((one.ends[number], one.delay_ms) for one in needed if number < len(one.ends))
    return LaneDelay(settings.delay_ms, ends)


def earlier_delays(
    row: QueueRow, settings: QueueSettings, ends: Sequence[int], now_unix_ms: int
) -> tuple[EarlierDelay, ...]:
    """Return the earlier delays to store in a queue's row with changed settings.

    ``ends``: where its partitions end now.
    """
    if settings.order is Order.KEY:
        return ()
    earlier = row.earlier_delays
    before_ms = row.settings.delay_ms
    if settings.delay_ms != before_ms:
        earlier = (*earlier, EarlierDelay(tuple(ends), before_ms, now_unix_ms))
    return tuple(_needed(earlier, settings.delay_ms, now_unix_ms))[-EARLIER_MAX:]


def _needed(
    earlier: Sequence[EarlierDelay], delay_ms: int, now_unix_ms: int
) -> list[EarlierDelay]:
    """Return the changes whose earlier messages may still be delayed."""
    longest_ms = max([delay_ms, *(one.delay_ms for one in earlier)])
    return [one for one in earlier if now_unix_ms < one.changed_unix_ms + longest_ms]
