"""Taking of one new message out of its range, wherever in the order it is."""

from features.queue.open_messages import OpenMessages
from features.queue.states import UnreadRange
from features.queue.unread_ranges import UnreadRanges


def take_out(offset: int, messages: OpenMessages, unread: UnreadRanges) -> UnreadRange | None:
    """Take a visible message out; return the range that it was in, None when there is none."""
    unread_range = unread.ready_at(offset)
    if unread_range is None:
        return None
    if offset == unread_range.first:
        unread.use(unread_range, 1)
    else:
        _, behind = unread.cut(offset)
        if behind is not None:
            messages.add_range(behind)
    return unread_range
