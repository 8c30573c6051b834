"""New leases: of what is in flight, and of what came back though its receiver is still at it."""

from collections.abc import Sequence

from features.queue import journal
from features.queue.acking import Ids
from features.queue.model import BY_TIME, Policy, Result
from features.queue.open_messages import OpenMessages
from features.queue.requeueing import Requeueing
from features.queue.states import Flight, Moving, Requeued
from features.queue.unread_ranges import UnreadRanges


def extend(
    ids: Ids,
    lease_ms: Sequence[int],
    messages: OpenMessages,
    requeueing: Requeueing,
    *,
    latest_only: bool,
) -> list[Result]:
    """Set the leases of what is in flight; return what became of each id.

    Not ``latest_only``, any attempt will do, and what waits to go again is DONE: see ``take_late``.
    """
    results: list[Result] = []
    wanted: dict[int, tuple[Flight, int]] = {}
    for (offset, attempt), span_ms in zip(ids, lease_ms, strict=True):
        item = messages.items.get(offset)
        if item is None:
            results.append(Result.GONE)
        elif isinstance(item, Flight) and (item.attempt == attempt or not latest_only):
            results.append(Result.DONE)
            wanted[offset] = (item, span_ms)  # the last one counts
        elif latest_only or isinstance(item, Moving):
            results.append(Result.STALE)
        else:
            results.append(Result.DONE)
    requeueing.extend(wanted)
    return results


def take_late(  # noqa: PLR0917 - what ``extend`` takes, and what bounds it
    ids: Ids,
    lease_ms: Sequence[int],
    messages: OpenMessages,
    unread: UnreadRanges,
    policy: Policy,
    requeueing: Requeueing,
) -> None:
    """Let what waits to go again be in flight, by the attempt that it had last.

    As many as the policy allows; the others wait on.
    """
    room = policy.in_flight_max - messages.in_flight_count
    now_unix_ms = requeueing.now_unix_ms
    spans = {offset: span_ms for (offset, _), span_ms in zip(ids, lease_ms, strict=True)}
    for offset, span_ms in spans.items():
        back = messages.items.get(offset)
        if span_ms <= 0 or room <= 0 or not isinstance(back, Requeued):
            continue
        room -= 1
        messages.remove(offset, now_unix_ms)
        # By that attempt it is in flight again: it counts with how this delivery ends.
        spared = min(back.spared, max(back.attempts - 1, 0))
        flight = Flight((offset,), back.key, back.attempts, back.first_taken_unix_ms, spared)
        due_unix_ms = now_unix_ms + span_ms
        messages.launch(
            flight, holder=BY_TIME, due_unix_ms=due_unix_ms, now_unix_ms=now_unix_ms
        )
        group = journal.encode_group(
            flight.attempt, flight.first_taken_unix_ms, flight.key, flight.offsets
        )
        taken = journal.encode_take(
            is_held=False,
            due_unix_ms=due_unix_ms,
            next_offset=unread.next_offset,
            groups=[group],
        )
        requeueing.add_journal(taken)
