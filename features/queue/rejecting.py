"""Reject messages that are ready for delivery, without handing them out.

They are moved like messages that a receiver rejects, and use no attempt. Nothing is written for
requeued messages: after a lost move they are ready again. New messages are written as taken and
requeued at once, so that they are not skipped after a crash.
"""

from collections.abc import Iterable

from features.queue import journal
from features.queue.model import AT_ONCE, Dead, Effects, Policy
from features.queue.open_messages import OPEN_PER_IN_FLIGHT, OpenMessages
from features.queue.retrying import DeliveryEnd
from features.queue.states import NO_TIME, Requeued
from features.queue.taking_out import take_out
from features.queue.unread_ranges import UnreadRanges

Fresh = dict[bytes | None, list[int]]  # by key: offsets never handed out


def reject_ready(
    offsets: Iterable[int],
    messages: OpenMessages,
    unread: UnreadRanges,
    policy: Policy,
    *,
    reason: str,
    now: int,
) -> Effects:
    """Reject messages that are ready, within the limits of messages in flight and open."""
    effects = Effects()
    fresh: Fresh = {}
    keys: dict[bytes | None, None] = {}
    room = policy.in_flight_max - messages.in_flight_count - messages.moving_count
    open_max = policy.in_flight_max * OPEN_PER_IN_FLIGHT
    for offset in sorted(offsets):
        if len(effects.dead) >= room:
            break
        back: Requeued | None = None
        item = messages.items.get(offset)
        if type(item) is Requeued and item.due_unix_ms == NO_TIME:
            back = item
        elif item is None and messages.counted < open_max:
            back = _take_out(offset, messages, unread, fresh, now)
        if back is not None:
            messages.kill(back, reason)
            effects.dead.append(Dead(offset, back.attempts, reason))
            keys[back.key] = None
    if fresh:
        opened = sorted(at for some in fresh.values() for at in some)
        messages.note_opened(opened)
        effects.journal = _entry(fresh, opened, unread, now)
    for key in keys:
        messages.key_queues.offer_key(key)  # it may have nothing left
    return effects


def _take_out(
    offset: int, messages: OpenMessages, unread: UnreadRanges, fresh: Fresh, now_unix_ms: int
) -> Requeued | None:
    """Return a new message as a requeued one; None when there is none."""
    unread_range = take_out(offset, messages, unread)
    if unread_range is None:
        return None
    fresh.setdefault(unread_range.key, []).append(offset)
    return Requeued(offset, unread_range.key, 0, now_unix_ms)


def _entry(fresh: Fresh, opened: list[int], unread: UnreadRanges, now_unix_ms: int) -> bytes:
    groups = [
        journal.encode_group(1, now_unix_ms, key, offsets) for key, offsets in fresh.items()
    ]
    took = journal.encode_take(
        is_held=False, due_unix_ms=now_unix_ms, next_offset=unread.next_offset, groups=groups
    )
    return took + journal.encode_return(opened, AT_ONCE, DeliveryEnd.UNSEEN)
