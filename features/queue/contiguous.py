"""Contiguous messages, the common case: handed out together and acknowledged together.

They have no key and were never handed out, and no requeued message or message with a key goes
before them. They are what ``Lane.take`` would hand out, at a fraction of the cost: only the
flight of each message is recorded.
"""

from heapq import heappop

from features.queue.acking import Acking
from features.queue.model import BY_TIME, Policy
from features.queue.open_messages import OPEN_PER_IN_FLIGHT, OpenMessages
from features.queue.states import NO_TIME, Flight, UnreadRange
from features.queue.unread_ranges import UnreadRanges


def next_range(messages: OpenMessages, policy: Policy, count: int) -> UnreadRange | None:
    """Return the range that begins with the next ``count`` messages if contiguous, else None."""
    key_queue = messages.key_queues.only_keyless
    if key_queue is None or key_queue.back:
        return None
    in_flight_max = policy.in_flight_max
    if (
        messages.in_flight_count + count > in_flight_max
        or len(messages.items) + count > in_flight_max * OPEN_PER_IN_FLIGHT
    ):
        return None
    ranges = key_queue.ranges
    while ranges:
        unread_range = ranges[0][1]
        if unread_range.first + count <= unread_range.last + 1:
            return unread_range if unread_range.due_unix_ms == NO_TIME else None
        if unread_range.first <= unread_range.last:
            return None  # they span two ranges
        heappop(ranges)
    return None


def take_contiguous(
    messages: OpenMessages,
    unread: UnreadRanges,
    unread_range: UnreadRange,
    count: int,
    *,
    lease_ms: int,
    now: int,
) -> range:
    """Hand out the first messages of a range of ``next_range``."""
    row = unread.use(unread_range, count)
    messages.note_opened(row)
    flight = Flight(row, None, 1, now)
    messages.launch(flight, holder=BY_TIME, due_unix_ms=now + lease_ms, now_unix_ms=now)
    return row


def ack_contiguous(acking: Acking, row: range, attempt: int, now_unix_ms: int) -> bool:
    """Settle contiguous messages all still in flight; else change nothing and return False."""
    messages = acking.messages
    items = messages.items
    flight = items.get(row[0])
    if (
        type(flight) is not Flight
        or flight.attempt != attempt
        or flight.offsets != row
        or flight.left != len(row)
    ):
        return False
    for offset in row:
        del items[offset]
    messages.land(flight, len(row), now_unix_ms)
    acking.note(row, [flight] * len(row))
    return True
