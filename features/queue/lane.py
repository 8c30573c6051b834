"""Delivery state of one partition's messages for one queue group.

A lane knows offsets and keys, not the content of messages. Its memory grows with the messages in
flight and the unread ranges known, not with the backlog or the age of one stuck message. Times
are unix milliseconds, given by the caller.

Every call changes the lane at once; its effects say what to write, move and wake. Results of
``ack`` and similar calls hold only once the journal entry is kept; otherwise call ``put_back``.
"""

from collections.abc import Iterable, Sequence

from features.queue import journal, replay
from features.queue.acking import Ids
from features.queue.contiguous import next_range, take_contiguous
from features.queue.delivery import LaneDelivery
from features.queue.extending import extend, take_late
from features.queue.journal_layout import KIND_PURGE, KIND_SEEK
from features.queue.lane_state import LaneState
from features.queue.model import (
    AT_ONCE,
    DEAD_MAX,
    Dead,
    Effects,
    HeldRange,
    LapsedRange,
    Order,
    Result,
    Run,
    SettledRange,
    Taken,
    TakenRange,
)
from features.queue.range_settling import are_held, held_by, settle_ranges
from features.queue.rejecting import reject_ready
from features.queue.requeueing import Requeueing
from features.queue.retrying import DeliveryEnd
from features.queue.selecting import SelectedTake
from features.queue.states import NO_TIME, Moving, Requeued
from features.queue.ticking import do_due


class Lane(LaneState):
    """Lane of a partition and group. ``fairness`` is shared by all lanes of a queue."""

    def feed(self, runs: Sequence[Run], now: int) -> Effects:
        """Add existing messages, in order of offsets; there are none between them.

        Skips offsets below ``fed_end``, and those handed out before a restart.
        """
        self._now_unix_ms = now
        added = self._unread.feed(runs, now, is_keyed=self._policy.order is not Order.NONE)
        wake = self._open.add_ranges(added)
        if self._is_looked_at and self._unread.has_grown:
            self._unread.has_grown = False
            wake = True
        return Effects(wake=wake)

    def pass_to(self, end_offset: int) -> None:
        """Note that no message is left below an offset but those that were fed.

        For batches without messages at the end of a partition: the next run may be far away.
        """
        self._unread.pass_to(end_offset)

    def take_ranges(
        self,
        count: int,
        *,
        holder: int,
        lease_ms: int,
        now: int,
        quiet_only: bool = False,
        dead_max: int = DEAD_MAX,
    ) -> tuple[list[TakenRange], Effects]:
        """Hand out at most ``count``: requeued messages, then the lowest that may go.

        The messages are the holder's until they are settled, their lease is over, or the holder
        has ended. ``quiet_only`` leaves out noisy tenants. The effects have the messages that have
        used all attempts, beside the others; the call ends after ``dead_max`` of them.
        """
        self._now_unix_ms = now
        messages = self._open
        found = next_range(messages, self._policy, count)
        if found is not None:
            took = take_contiguous(
                messages, self._unread, found, count, holder=holder, lease_ms=lease_ms, now=now
            )
            return [TakenRange(took.offsets, 1, now)], Effects(taken=took)
        room = min(count, self._policy.in_flight_max - messages.in_flight_count)
        if room <= 0:
            return [], Effects()
        delivery = LaneDelivery(
            messages, self._unread, self._policy, holder=holder, room=room, dead_max=dead_max
        )
        delivery.take_all(now, lease_ms, quiet_only=quiet_only)
        return delivery.taken, Effects(delivery.journal_entry(), delivery.dead)

    def take_selected(
        self, offsets: Iterable[int], *, holder: int, lease_ms: int, now: int
    ) -> tuple[list[TakenRange], Effects]:
        """Hand out those of some messages that are ready, wherever they are in the order."""
        self._now_unix_ms = now
        taking = SelectedTake(
            self._open, self._unread, self._policy, holder, now, now + lease_ms
        )
        return taking.take(offsets), taking.effects

    def ack(self, ids: Ids, *, now: int = 0) -> tuple[list[Result], Effects]:
        """Settle messages. ``now`` is used to count the time that tenants spend.

        A message whose lease is over is settled too unless it was handed out again, except where
        keys keep their order: others of its key may have been handed out since.
        """
        self._now_unix_ms = now = max(now, self._now_unix_ms)
        may_wake = self._open.may_wake(self._policy.in_flight_max)
        results, offsets = self._acking.ack(ids, now)
        if not offsets:
            return results, Effects()
        return results, Effects(journal.encode_done(offsets), wake=may_wake)

    def holds(self, offsets: range, attempt: int, *, holder: int) -> bool:
        """Return whether all of contiguous messages are in flight, with that attempt and holder."""
        return are_held(self._open, offsets, attempt, holder)

    def held_by(self, offsets: range, holder: int) -> list[HeldRange] | None:
        """Return a holder's contiguous messages by attempt; None if it has not all of them."""
        return held_by(self._open, offsets, holder)

    def attempts_of(self, offset: int) -> int:
        """Return how often a message that waits was delivered; 0 for others."""
        item = self._open.items.get(offset)
        return item.attempts if isinstance(item, Requeued) else 0

    def settle_ranges(
        self,
        ranges: Sequence[SettledRange],
        *,
        holder: int,
        now: int,
        delay_ms: int = 0,
        reason: str = "rejected",
    ) -> tuple[list[int], Effects]:
        """Settle contiguous messages of a holder; return how many of each range were in flight.

        A message that is not in flight with its range's attempt and this holder stays as it is.
        ``delay_ms`` is for released messages, ``reason`` for rejected ones.
        """
        self._now_unix_ms = now = max(now, self._now_unix_ms)
        may_wake = self._open.may_wake(self._policy.in_flight_max)
        requeueing = self._requeueing()
        counts = settle_ranges(
            ranges,
            self._acking,
            requeueing,
            holder=holder,
            due_unix_ms=now + delay_ms if delay_ms > 0 else AT_ONCE,
            reason=reason,
        )
        requeueing.effects.wake |= may_wake and any(counts)
        return counts, requeueing.effects

    def release(
        self, ids: Ids, *, delay_ms: int, now: int, ending: DeliveryEnd = DeliveryEnd.FAILED
    ) -> tuple[list[Result], Effects]:
        """Requeue messages before their lease is over, visible at once or later."""
        self._now_unix_ms = now
        due_unix_ms = now + delay_ms if delay_ms > 0 else AT_ONCE
        requeueing = self._requeueing()
        results = requeueing.release(ids, due_unix_ms, ending)
        return results, requeueing.effects

    def _requeueing(self) -> Requeueing:
        return Requeueing(self._open, self._policy, self._now_unix_ms)

    def reject(self, ids: Ids, *, reason: str, now: int = 0) -> tuple[list[Result], Effects]:
        """Reject messages: the effects have them. After a lost move they are handed out again."""
        self._now_unix_ms = max(now, self._now_unix_ms)
        requeueing = self._requeueing()
        return requeueing.reject(ids, reason), requeueing.effects

    def reject_ready(self, offsets: Iterable[int], *, reason: str, now: int) -> Effects:
        """Reject those of ``offsets`` that are ready for delivery: the effects have them."""
        self._now_unix_ms = now
        policy = self._policy
        return reject_ready(offsets, self._open, self._unread, policy, reason=reason, now=now)

    def extend(
        self, ids: Ids, *, lease_ms: Sequence[int], now: int, latest_only: bool = True
    ) -> tuple[list[Result], Effects]:
        """Set new leases, counted from now; a lease of 0 requeues the message at once.

        Without ``latest_only`` the id of any attempt counts, and requeued messages are in flight
        again: for messages without order.
        """
        self._now_unix_ms = now
        requeueing = self._requeueing()
        results = extend(ids, lease_ms, self._open, requeueing, latest_only=latest_only)
        if not latest_only:
            take_late(ids, lease_ms, self._open, self._unread, self._policy, requeueing)
        return results, requeueing.effects

    def moved(self, offsets: Sequence[int]) -> bytes:
        """Remove dead messages that were moved or dropped; return the journal entry."""
        gone = [one for one in offsets if isinstance(self._open.items.get(one), Moving)]
        for offset in gone:
            self._open.remove(offset, self._now_unix_ms)
        return journal.encode_done(gone)

    def move_failed(self, offsets: Sequence[int], *, now: int, retry_ms: int) -> None:
        """Schedule another move of dead messages: ``tick`` returns them again when due."""
        self._now_unix_ms = now
        for offset in offsets:
            item = self._open.items.get(offset)
            if isinstance(item, Moving):
                self._open.timers.put(item, now + retry_ms)

    def move_again(self, offsets: Sequence[int]) -> list[Dead]:
        """Return those of ``offsets`` that wait for another move, which begins now."""
        found: list[Dead] = []
        for offset in offsets:
            item = self._open.items.get(offset)
            if isinstance(item, Moving) and item.due_unix_ms != NO_TIME:
                self._open.timers.cancel(item)
                found.append(Dead(offset, item.attempts, item.reason, is_again=True))
        return found

    def not_moved(self, offsets: Sequence[int], *, now: int) -> Effects:
        """Requeue dead messages that are not to be moved after all."""
        self._now_unix_ms = now
        requeueing = self._requeueing()
        requeueing.revive(offsets)
        return requeueing.effects

    @property
    def ack_number(self) -> int:
        """The number of the latest ``ack`` by which something was done, for ``kept``."""
        return self._acking.number

    def kept(self, ack_number: int) -> None:
        """Forget the calls of ``ack`` up to that one: their entries are stored."""
        self._acking.forget(ack_number)

    def put_back(self, ids: Ids) -> None:
        """Undo ``ack`` after its entry was not stored: leases go on. Old keys are not known."""
        self._acking.put_back(ids, self._now_unix_ms)

    def end_holder(
        self, holder: int, now: int, ending: DeliveryEnd = DeliveryEnd.FAILED
    ) -> Effects:
        """Requeue all messages of a holder, whose connection has ended."""
        self._now_unix_ms = now
        requeueing = self._requeueing()
        requeueing.end_holder(holder, ending)
        return requeueing.effects

    def tick(
        self, now: int, *, messages_max: int, lapsed: list[LapsedRange] | None = None
    ) -> Effects:
        """Do what is due: end leases and delays, and retry moves.

        Ends after the first lease that reaches ``messages_max``; then ``next_due_unix_ms`` is in
        the past and more is due. What holders have lost by that is added to ``lapsed``.
        """
        self._now_unix_ms = now
        requeueing = self._requeueing()
        do_due(self._open, self._unread, requeueing, now, messages_max, lapsed)
        return requeueing.effects

    def purge(self, end_offset: int) -> Effects:
        """Remove all messages below ``end_offset``, whatever their state."""
        replay.purge(end_offset, self._open, self._unread, self._now_unix_ms)
        return Effects(journal.encode_move(KIND_PURGE, end_offset), wake=True)

    def expire_before(self, offset: int) -> Effects:
        """Drop waiting messages below ``offset``, new or requeued, and failed dead-letter moves.

        Messages in flight, or being moved, stay.
        """
        if offset <= self.floor:
            return Effects()
        return replay.expire(offset, self._open, self._unread, self._now_unix_ms)

    def seek(self, offset: int, *, end_offset: int) -> Effects:
        """Start again at an offset and forget all state. Feed from there."""
        offset = min(max(offset, 0), end_offset)
        replay.seek(offset, self._open, self._unread, self._now_unix_ms)
        self._acking.clear()
        return Effects(journal.encode_move(KIND_SEEK, offset))

    def snapshot(self) -> bytes:
        """Return the journal entry that replaces all before it."""
        return replay.take_snapshot(self._open, self._unread)

    def apply(self, entry: bytes) -> None:
        """Replay a journal entry, before the lane is fed. Error: ``CorruptBatch``."""
        replay.replay(entry, self._open, self._unread)

    def claim(self, offsets: Sequence[int], *, holder: int, now: int) -> list[Taken]:
        """Assign messages to a holder that survived, after a load and before ``recovered``.

        Return those it holds now: a settled message stays settled; one whose take was lost is
        handed out to it, which only a snapshot records.
        """
        self._now_unix_ms = now
        return replay.claim(offsets, self._open, self._unread, holder=holder, now_unix_ms=now)

    def recovered(self, now: int) -> Effects:
        """Finish a replay: requeue the messages that connections held."""
        effects = self.end_holder(replay.LOST_HOLDER, now)
        effects.wake = True
        return effects
