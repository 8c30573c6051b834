"""Settling of contiguous messages, range by range, for holders that settle what they have.

An outcome counts for the messages that the holder has in flight by that attempt; others are left
alone, so that a late acknowledgement cannot settle another holder's delivery.
"""

from collections.abc import Sequence
from typing import Final

from features.queue.acking import Acking
from features.queue.model import HeldRange, Outcome, SettledRange
from features.queue.open_messages import OpenMessages
from features.queue.requeueing import Requeueing
from features.queue.retrying import DeliveryEnd
from features.queue.states import Flight
from features.ranges import contiguous_ranges

ENDING_OF: Final = {
    Outcome.RELEASE: DeliveryEnd.FAILED,
    Outcome.REQUEUE: DeliveryEnd.SPARED,
    Outcome.RETURN: DeliveryEnd.UNSEEN,
}


def are_held(messages: OpenMessages, offsets: range, attempt: int, holder: int) -> bool:
    """Return whether all of some contiguous messages are in flight for a holder."""
    if _whole_flight(messages, offsets, attempt, holder) is not None:
        return True
    items = messages.items
    known: Flight | None = None
    for offset in offsets:
        item = items.get(offset)
        if item is known and known is not None:
            continue
        if type(item) is not Flight or item.attempt != attempt or item.holder != holder:
            return False
        known = item
    return True


def held_by(messages: OpenMessages, offsets: range, holder: int) -> list[HeldRange] | None:
    """Return contiguous messages by attempt, in order; None if one is not the holder's.

    A range that is all that is left of a delivery costs as much as one message.
    """
    items = messages.items
    first = items.get(offsets[0]) if offsets else None
    if type(first) is Flight and _whole_flight(messages, offsets, first.attempt, holder):
        return [HeldRange(offsets, first.attempt)]
    held: list[HeldRange] = []
    start, attempt = offsets.start, 0
    for offset in offsets:
        item = items.get(offset)
        if type(item) is not Flight or item.holder != holder:
            return None
        if item.attempt != attempt:
            if offset > start:
                held.append(HeldRange(range(start, offset), attempt))
            start, attempt = offset, item.attempt
    if offsets:
        held.append(HeldRange(range(start, offsets.stop), attempt))
    return held


def settle_ranges(
    ranges: Sequence[SettledRange],
    acking: Acking,
    requeueing: Requeueing,
    *,
    holder: int,
    due_unix_ms: int,
    reason: str,
) -> list[int]:
    """Settle ranges in their order; return how many messages of each were in flight.

    The effects are those of ``requeueing``.
    """
    messages = acking.messages
    done = requeueing.effects.done
    counts: list[int] = []
    number = acking.number + 1  # of all acknowledgements of the call
    for offsets, attempt, outcome in ranges:
        flight = _whole_flight(messages, offsets, attempt, holder)
        if flight is not None and outcome is Outcome.ACK:  # the common case
            acking.ack_part(flight, offsets, number, requeueing.now_unix_ms)
            done.append(offsets)
            counts.append(len(offsets))
            continue
        count = 0
        for found, part in _find(messages, offsets, attempt, holder).items():
            count += len(part)
            if outcome is Outcome.ACK:
                acking.ack_part(found, part, number, requeueing.now_unix_ms)
                done += contiguous_ranges(part)
            elif outcome is Outcome.REJECT:
                requeueing.kill(found, part, attempt, reason)
            else:
                requeueing.requeue({found: part}, due_unix_ms, ENDING_OF[outcome])
        counts.append(count)
    return counts


def _whole_flight(
    messages: OpenMessages, offsets: range, attempt: int, holder: int
) -> Flight | None:
    """Return the flight whose messages are those of a range, all still in flight, else None."""
    if not offsets:
        return None
    flight = messages.items.get(offsets[0])
    if (
        type(flight) is Flight
        and flight.attempt == attempt
        and flight.holder == holder
        and flight.left == len(offsets)
        and flight.offsets == offsets
    ):
        return flight
    return None


def _find(
    messages: OpenMessages, offsets: range, attempt: int, holder: int
) -> dict[Flight, list[int]]:
    """Return the messages of a range that a holder has by an attempt, by flight."""
    items = messages.items
    found: dict[Flight, list[int]] = {}
    for offset in offsets:
        item = items.get(offset)
        if type(item) is Flight and item.attempt == attempt and item.holder == holder:
            found.setdefault(item, []).append(offset)
    return found
