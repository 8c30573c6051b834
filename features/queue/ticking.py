"""Due work of a lane: end leases and delays, and retry moves to the dead letters."""

from features.queue.model import Dead
from features.queue.open_messages import OpenMessages
from features.queue.requeueing import Requeueing
from features.queue.states import Flight, Moving, Requeued, UnreadRange
from features.queue.unread_ranges import UnreadRanges


def do_due(
    messages: OpenMessages,
    unread: UnreadRanges,
    requeueing: Requeueing,
    now_unix_ms: int,
    *,
    messages_max: int,
) -> None:
    """Do the due work, up to ``messages_max``; the effects are ``requeueing``'s."""
    effects = requeueing.effects
    left = messages_max
    while left > 0 and (item := messages.timers.pop(now_unix_ms)) is not None:
        left -= 1
        if isinstance(item, Flight):
            left -= item.left - 1
            requeueing.requeue_unwritten(item, messages.members(item))
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
