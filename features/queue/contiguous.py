"""Contiguous messages, the common case of a take.

They have no key and were never handed out, and no requeued message or message with a key goes
before them. ``delivery.LaneDelivery`` would hand out the same, at several times the cost.
"""

from heapq import heappop

from features.queue.model import BY_TIME, ContiguousTake, Policy
from features.queue.open_messages import OPEN_PER_IN_FLIGHT, OpenMessages
from features.queue.states import NO_TIME, Flight, UnreadRange
from features.queue.unread_ranges import UnreadRanges


def next_range(messages: OpenMessages, policy: Policy, count: int) -> UnreadRange | None:
    """Return the range with the next ``count`` messages, or with all that are ready, else None."""
    key_queue = messages.key_queues.only_keyless
    if key_queue is None or key_queue.back:
        return None
    in_flight_max = policy.in_flight_max
    open_max = in_flight_max * OPEN_PER_IN_FLIGHT - count
    if messages.in_flight_count + count > in_flight_max or (
        len(messages.items) > open_max and messages.counted > open_max
    ):
        return None
    ranges = key_queue.ranges
    while ranges:
        unread_range = ranges[0][1]
        left = unread_range.last - unread_range.first + 1
        if count <= left or (left > 0 and len(ranges) == 1):
            return unread_range if unread_range.due_unix_ms == NO_TIME else None
        if left > 0:
            return None  # they span two ranges
        heappop(ranges)
    return None


def take_contiguous(  # noqa: PLR0913 - what a take has, by keyword
    messages: OpenMessages,
    unread: UnreadRanges,
    unread_range: UnreadRange,
    count: int,
    *,
    holder: int,
    lease_ms: int,
    now: int,
) -> ContiguousTake:
    """Hand out the first messages of a range of ``next_range``."""
    left = unread_range.last - unread_range.first + 1
    row = unread.use(unread_range, min(count, left))
    messages.note_opened(row)
    flight = Flight(row, None, 1, now)
    due_unix_ms = now + lease_ms
    messages.launch(flight, holder=holder, due_unix_ms=due_unix_ms, now_unix_ms=now)
    return ContiguousTake(row, holder != BY_TIME, due_unix_ms, now, unread.next_offset)
