"""States of messages, for browsing a queue."""

from collections.abc import Iterator, Mapping
from heapq import merge, nsmallest
from itertools import chain, islice, takewhile

from features.queue.model import Counts
from features.queue.open_messages import OpenMessages
from features.queue.states import NO_TIME, Open, Requeued
from features.queue.unread_ranges import UnreadRanges
from features.ranges import contiguous_ranges

State = tuple[int, str]  # an offset, and what it is: ready, in_flight, delayed or done


def count(messages: OpenMessages, unread: UnreadRanges, end_offset: int) -> Counts:
    """Return a lane's messages by state, in a partition that ends there. O(1)."""
    delayed_count = messages.delayed_count + unread.delayed_count
    unfed_count = max(end_offset - unread.fed_end, 0) - unread.early.count
    waiting_count = unfed_count + unread.count + len(messages.items)
    out_count = messages.in_flight_count + messages.moving_count
    ready_count = waiting_count - out_count - delayed_count
    return Counts(max(ready_count, 0), out_count, delayed_count)


def ready(messages: OpenMessages, unread: UnreadRanges, count: int) -> list[int]:
    """Return up to ``count`` ready messages: requeued ones, then new ones, the lowest first."""
    found = messages.key_queues.returned(count)
    for unread_range in unread:
        left = count - len(found)
        if left <= 0:
            break
        if unread_range.due_unix_ms == NO_TIME:
            first, last = unread_range.first, unread_range.last
            found += range(first, min(last + 1, first + left))
    return found


def ready_ranges(
    messages: OpenMessages, unread: UnreadRanges, end_offset: int
) -> Iterator[tuple[int, int]]:
    """Yield the ready messages below an offset: first offset, and end. O(ranges and returned)."""
    for part in contiguous_ranges(sorted(messages.key_queues.returned(len(messages.items)))):
        yield part.start, part.stop
    for unread_range in unread:
        if unread_range.due_unix_ms == NO_TIME:
            yield unread_range.first, unread_range.last + 1
    if unread.fed_end < end_offset:
        for first, last in unread.early.gaps(unread.fed_end, end_offset - 1):
            yield first, last + 1


def browse(
    items: Mapping[int, Open], unread: UnreadRanges, start_offset: int, count: int
) -> list[tuple[int, str]]:
    """Return each offset with its state: ready, in_flight, delayed or done.

    O(count), and the stretches before its end.
    """
    end_offset = start_offset + count
    fresh: dict[int, str] = {}
    for unread_range in takewhile(lambda one: one.first < end_offset, unread):
        state = "ready" if unread_range.due_unix_ms == NO_TIME else "delayed"
        first = max(unread_range.first, start_offset)
        last = min(unread_range.last, end_offset - 1)
        fresh.update(dict.fromkeys(range(first, last + 1), state))
    first = max(unread.fed_end, start_offset)
    for gap_first, gap_last in unread.early.gaps(first, end_offset - 1):
        fresh.update(dict.fromkeys(range(gap_first, gap_last + 1), "ready"))
    states: list[tuple[int, str]] = []
    for offset in range(start_offset, end_offset):
        item = items.get(offset)
        state = fresh.get(offset, "done") if item is None else _state_of(item)
        states.append((offset, state))
    return states


def browse_there(
    items: Mapping[int, Open],
    unread: UnreadRanges,
    start_offset: int,
    end_offset: int,
    count: int,
) -> list[tuple[int, str]]:
    """Return the first ``count`` messages between two offsets that are not done, with states.

    O(open + count), and the stretches before.
    """
    inside = (at for at in items if start_offset <= at < end_offset)
    opened = ((at, _state_of(items[at])) for at in nsmallest(count, inside))
    return list(islice(merge(opened, _fresh(unread, start_offset, end_offset)), count))


def _fresh(
    unread: UnreadRanges, start_offset: int, end_offset: int
) -> Iterator[tuple[int, str]]:
    """Yield what was never handed out, in order."""
    known = (
        (
            unread_range.first,
            unread_range.last,
            "ready" if unread_range.due_unix_ms == NO_TIME else "delayed",
        )
        for unread_range in unread
    )
    gaps = unread.early.gaps(max(unread.fed_end, start_offset), end_offset - 1)
    for first, last, state in chain(known, ((first, last, "ready") for first, last in gaps)):
        for at in range(max(first, start_offset), min(last + 1, end_offset)):
            yield at, state


def _state_of(item: Open) -> str:
    if not isinstance(item, Requeued):
        return "in_flight"
    return "ready" if item.due_unix_ms == NO_TIME else "delayed"
