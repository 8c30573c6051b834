"""A lane's journal entries to its state, and its state to a snapshot; what both it and we do."""

from collections.abc import Sequence
from itertools import chain
from typing import Final

from features.queue import journal
from features.queue.journal_layout import (
    KIND_PURGE,
    KIND_SKIP,
    Done,
    Extend,
    Group,
    Move,
    Return,
    Snapshot,
    Spared,
    Take,
)
from features.queue.journal_parser import parse
from features.queue.model import AT_ONCE, BY_TIME, Effects, Taken
from features.queue.open_messages import OpenMessages
from features.queue.states import NO_TIME, Flight, Requeued
from features.queue.unread_ranges import UnreadRanges

LOST_HOLDER: Final = -1
"""Holder of the messages that a connection held before the load."""


def replay(entry: bytes, messages: OpenMessages, unread: UnreadRanges) -> None:
    """Make an entry's changes to a lane that is not fed yet. Error: ``CorruptBatch``."""
    for change in parse(entry):
        if isinstance(change, Take):
            for group in change.groups:
                _launch(group, change.due_unix_ms, messages, unread, is_held=change.is_held)
            unread.drop_before(change.next_offset)
        elif isinstance(change, Done):
            _finish(change, messages, unread)
        elif isinstance(change, Return):
            _give_back(change, messages)
        elif isinstance(change, Extend):
            _extend(change, messages)
        elif isinstance(change, Snapshot):
            _restore(change, messages, unread)
        elif isinstance(change, Spared):
            _note_spared(change, messages)
        else:
            _move(change, messages, unread)


def _move(change: Move, messages: OpenMessages, unread: UnreadRanges) -> None:
    if change.kind == KIND_PURGE:
        purge(change.offset, messages, unread, AT_ONCE)
    elif change.kind == KIND_SKIP:
        skip(change.offset, messages, unread)
    else:
        seek(change.offset, messages, unread, AT_ONCE)


def purge(
    end_offset: int, messages: OpenMessages, unread: UnreadRanges, now_unix_ms: int
) -> None:
    """Forget all before an offset, whatever its state."""
    for offset in [offset for offset in messages.items if offset < end_offset]:
        messages.remove(offset, now_unix_ms)
    skip(end_offset, messages, unread)


def skip(offset: int, messages: OpenMessages, unread: UnreadRanges) -> None:
    """Forget what was never handed out before an offset."""
    for unread_range in unread.drop_before(offset):
        messages.timers.cancel(unread_range)
        messages.key_queues.offer_key(unread_range.key)


def seek(offset: int, messages: OpenMessages, unread: UnreadRanges, now_unix_ms: int) -> None:
    """Forget everything, and begin at an offset."""
    messages.clear(now_unix_ms)
    unread.early.clear()
    unread.clear(offset)


def _launch(
    group: Group,
    due_unix_ms: int,
    messages: OpenMessages,
    unread: UnreadRanges,
    *,
    is_held: bool,
) -> None:
    all_offsets: list[int] = []
    for offsets in group.offsets:
        if offsets[-1] >= unread.fed_end:
            unread.early.add(max(offsets[0], unread.fed_end), offsets[-1])
        all_offsets += offsets
    if not all_offsets:
        return
    first = messages.items.get(all_offsets[0])
    spared = 0 if first is None else min(first.spared, max(group.attempts - 1, 0))
    opened = [at for at in all_offsets if not messages.remove(at, AT_ONCE)]
    if opened:
        messages.note_opened(opened)
    flight = Flight(all_offsets, group.key, group.attempts, group.first_taken_unix_ms, spared)
    holder = LOST_HOLDER if is_held else BY_TIME
    messages.launch(
        flight, holder=holder, due_unix_ms=due_unix_ms, now_unix_ms=group.first_taken_unix_ms
    )


def claim(
    offsets: Sequence[int],
    messages: OpenMessages,
    unread: UnreadRanges,
    *,
    holder: int,
    now_unix_ms: int,
) -> list[Taken]:
    """Let a holder have messages that he had before the load; return those that he has."""
    taken: list[Taken] = []
    alike: dict[tuple[bytes | None, int, int, int], list[int]] = {}
    for offset in offsets:
        item = messages.items.get(offset)
        if isinstance(item, Flight):
            like = (item.key, item.attempt, item.first_taken_unix_ms, item.spared)
        elif item is not None:
            attempt = max(item.attempts, 1)
            like = (item.key, attempt, item.first_taken_unix_ms, min(item.spared, attempt - 1))
        elif offset >= unread.next_offset and unread.cut(offset)[0]:
            like = (None, 1, now_unix_ms, 0)
        else:
            continue
        if item is None:
            messages.note_opened((offset,))
        else:
            messages.remove(offset, now_unix_ms)
        alike.setdefault(like, []).append(offset)
        taken.append(Taken(offset, like[1], like[2]))
    for (key, attempt, first_taken_unix_ms, spared), found in alike.items():
        flight = Flight(found, key, attempt, first_taken_unix_ms, spared)
        messages.launch(flight, holder=holder, due_unix_ms=NO_TIME, now_unix_ms=now_unix_ms)
    return taken


def _finish(change: Done, messages: OpenMessages, unread: UnreadRanges) -> None:
    for offset in chain.from_iterable(change.offsets):
        # One that is not open was handed out by a take that was lost.
        if not messages.remove(offset, AT_ONCE) and offset >= unread.fed_end:
            unread.early.add(offset, offset)


def _give_back(change: Return, messages: OpenMessages) -> None:
    for offset in chain.from_iterable(change.offsets):
        item = messages.items.get(offset)
        if item is None:
            continue
        if isinstance(item, Flight):
            attempts = change.ending.attempts(item.attempt)
            spared = change.ending.spared(item.spared)
        else:
            attempts, spared = item.attempts, item.spared
        messages.remove(offset, AT_ONCE)
        back = Requeued(offset, item.key, attempts, item.first_taken_unix_ms, spared)
        messages.requeue(back, change.due_unix_ms)


def _extend(change: Extend, messages: OpenMessages) -> None:
    for offset in chain.from_iterable(change.offsets):
        item = messages.items.get(offset)
        if isinstance(item, Flight):
            messages.extend(item, [offset], change.due_unix_ms)


def _restore(snapshot: Snapshot, messages: OpenMessages, unread: UnreadRanges) -> None:
    seek(snapshot.next_offset, messages, unread, AT_ONCE)
    for offsets in snapshot.early:
        unread.early.add(offsets[0], offsets[-1])
    for lease in snapshot.leases:
        _launch(lease.group, lease.due_unix_ms, messages, unread, is_held=lease.is_held)
    for waiting in snapshot.waiting:
        group = waiting.group
        for offsets in group.offsets:
            messages.note_opened(offsets)
            for offset in offsets:
                messages.remove(offset, AT_ONCE)
                back = Requeued(offset, group.key, group.attempts, group.first_taken_unix_ms)
                messages.requeue(back, waiting.due_unix_ms)


def _note_spared(change: Spared, messages: OpenMessages) -> None:
    for offset in chain.from_iterable(change.offsets):
        item = messages.items.get(offset)
        if item is not None:
            item.spared = change.spared  # those of a flight are alike


def take_snapshot(messages: OpenMessages, unread: UnreadRanges) -> bytes:
    """Return the journal entry from which a lane is restored without those before it."""
    flights: dict[Flight, None] = {}
    waiting: dict[tuple[int, int, int, bytes | None], list[int]] = {}
    for item in messages.items.values():
        if isinstance(item, Flight):
            flights[item] = None
            continue
        is_later = isinstance(item, Requeued) and item.due_unix_ms != NO_TIME
        due_unix_ms = item.due_unix_ms if is_later else AT_ONCE
        like = (due_unix_ms, item.attempts, item.first_taken_unix_ms, item.key)
        waiting.setdefault(like, []).append(item.offset)
    groups: list[bytes] = []
    for (due_unix_ms, attempts, first_taken_unix_ms, key), offsets in waiting.items():
        group = journal.encode_group(attempts, first_taken_unix_ms, key, offsets)
        groups.append(journal.encode_waiting(group, due_unix_ms))
    leases = [_encode_flight(flight, messages) for flight in flights]
    snapshot = journal.encode_snapshot(unread.next_offset, unread.handed_out(), leases, groups)
    spared: dict[int, list[int]] = {}
    for offset, item in messages.items.items():
        if item.spared:
            spared.setdefault(item.spared, []).append(offset)
    return snapshot + b"".join(journal.encode_spared(*one) for one in spared.items())


def _encode_flight(flight: Flight, messages: OpenMessages) -> bytes:
    group = journal.encode_group(
        flight.attempt, flight.first_taken_unix_ms, flight.key, messages.members(flight)
    )
    return journal.encode_lease(group, flight.due_unix_ms, is_held=flight.holder != BY_TIME)


def expire(
    offset: int, messages: OpenMessages, unread: UnreadRanges, now_unix_ms: int
) -> Effects:
    """Drop what waits before ``offset``; what is in flight stays until it comes back."""
    effects = Effects()
    gone = messages.waiting_before(offset)
    if gone:
        for one in gone:
            messages.remove(one, now_unix_ms)
        effects = Effects(journal.encode_done(gone), wake=True)
    if offset > unread.next_offset:
        skip(offset, messages, unread)
        change = journal.encode_move(KIND_SKIP, offset)
        effects = Effects((effects.journal or b"") + change, wake=True)
    return effects
