"""Due work of a lane: end leases and delays, and retry moves to the dead letters."""

from features.queue.model import BY_TIME, Dead, LapsedRange
from features.queue.open_messages import OpenMessages
from features.queue.requeueing import Requeueing
from features.queue.states import Flight, Moving, Requeued, UnreadRange
from features.queue.unread_ranges import UnreadRanges
from features.ranges import contiguous_ranges


def do_due(  # noqa: PLR0917 - what a tick has, and where its effects go
    messages: OpenMessages,
    unread: UnreadRanges,
    requeueing: Requeueing,
    now_unix_ms: int,
    messages_max: int,
    lapsed: list[LapsedRange] | None,
) -> None:
    """Do the due work, up to ``messages_max``; the effects are ``requeueing``'s.

    What holders have lost is added to ``lapsed``.
    """
    effects = requeueing.effects
    left = messages_max
    while left > 0 and (item := messages.timers.pop(now_unix_ms)) is not None:
        left -= 1
        if isinstance(item, Flight):
            left -= item.left - 1
            offsets = messages.members(item)
            if lapsed is not None and item.holder != BY_TIME:
                for part in contiguous_ranges(offsets):
                    lapsed.append(LapsedRange(item.holder, part, item.attempt))
            requeueing.end_lease(item, offsets)
        elif isinstance(item, Moving):
            dead = Dead(item.offset, item.attempts, item.reason, is_again=True)
            effects.dead.append(dead)
        else:
            effects.wake = True
            if isinstance(item, Requeued):
                messages.ripen(item)
            elif isinstance(item, UnreadRange):
                _appear(item, messages, unread)


def _appear(unread_range: UnreadRange, messages: OpenMessages, unread: UnreadRanges) -> None:
    unread.appear(unread_range)
    if messages.key_queues.keeps_order(unread_range.key):
        messages.key_queues.offer_key(unread_range.key)
    else:
        messages.key_queues.add_range(unread_range)
