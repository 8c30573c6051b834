"""One partition's messages for one queue group: who has which, and which goes next.

A lane deals in offsets and keys; what is in a message is nobody's business here. It costs memory
by the messages that are open and the stretches of a key that are known ahead, not by the
backlog nor by the age of one message that is stuck. Times are unix milliseconds, handed in.

Every call changes the lane at once; its effects say what to write, move and wake. What comes back
from ``ack`` and its like is true only when the journal entry is kept: if it is not, ``put_back``.
"""

from collections.abc import Iterable, Sequence

from features.fairness import Fairness
from features.queue import journal
from features.queue.acking import Acking, Ids
from features.queue.ahead import Ahead
from features.queue.browsing import State, browse, browse_there, count
from features.queue.extending import extend, take_late
from features.queue.giving_up import give_up
from features.queue.lines import Line
from features.queue.model import (
    AT_ONCE,
    DEAD_MAX,
    Counts,
    Effects,
    Order,
    Policy,
    Result,
    Run,
    Taken,
)
from features.queue.open_messages import OpenMessages
from features.queue.replay import (
    LOST_HOLDER,
    claim,
    expire,
    purge,
    replay,
    seek,
    take_snapshot,
)
from features.queue.returning import Returning
from features.queue.rows import ack_row, fresh_stretch, take_row
from features.queue.states import NO_TIME, Dying, Flight
from features.queue.taking import Taking
from features.queue.ticking import do_due


class Lane:
    """See the module. ``fairness`` is shared by all lanes of a queue."""

    def __init__(
        self, policy: Policy, next_offset: int, *, fairness: Fairness | None = None
    ) -> None:
        self._policy = policy
        self._fairness = fairness
        self._ahead = Ahead(next_offset)
        self._open = self._new_open()
        self._acking = Acking(self._open, self._ahead)
        self._now_unix_ms = 0  # the latest that was told

    def _new_open(self) -> OpenMessages:
        is_fair = self._policy.order is Order.FAIR
        return OpenMessages(self._policy.order, self._fairness if is_fair else None)

    @property
    def policy(self) -> Policy:
        """What the owner has set."""
        return self._policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        """Change it. With another order ``fed_end`` goes back to ``next_offset``: feed anew."""
        before, self._policy = self._policy, policy
        if policy.order is not before.order:
            self.unfeed()

    def unfeed(self) -> None:
        """Forget what was never handed out: ``fed_end`` goes back to ``next_offset``."""
        self._ahead.unfeed()
        messages = self._new_open()
        self._open.move_to(messages, self._now_unix_ms)
        self._open = self._acking.messages = messages

    @property
    def next_offset(self) -> int:
        """The first offset that was never handed out."""
        return self._ahead.next_offset

    @property
    def fed_end(self) -> int:
        """Where what the lane was fed ends: the next run begins here or above."""
        return self._ahead.fed_end

    @property
    def wants_more(self) -> bool:
        """Whether to be fed on: what is behind may have to be handed out before what is known."""
        return self._ahead.wants_more(self._policy.lookahead)

    @property
    def has_room(self) -> bool:
        """Whether it may be fed on, though it may know enough: for what costs nothing to tell."""
        return self._ahead.stretch_count < self._policy.lookahead

    @property
    def floor(self) -> int:
        """The lowest offset that is still needed. O(1), amortised."""
        return self._open.floor(self._ahead.next_offset)

    @property
    def open_count(self) -> int:
        """Messages that were handed out and are not done."""
        return len(self._open.items)

    @property
    def returned_count(self) -> int:
        """Messages that were given back, to go again now or later. O(1)."""
        return len(self._open.items) - self._open.in_flight_count

    @property
    def next_due_unix_ms(self) -> int | None:
        """When to call ``tick`` next, if nothing else happens before."""
        return self._open.timers.next_due_unix_ms

    def feed(self, runs: Sequence[Run], now: int) -> Effects:
        """Tell of messages that exist, in order of offsets; between them there are none.

        What is below ``fed_end`` is passed over, and what was handed out before a restart.
        """
        self._now_unix_ms = now
        is_keyed = self._policy.order is not Order.NONE
        added = self._ahead.feed(runs, now, is_keyed=is_keyed)
        wake = False
        for stretch in added:
            self._open.add_stretch(stretch)
            wake = wake or stretch.due_unix_ms == NO_TIME
        return Effects(wake=wake)

    def take(
        self,
        count: int,
        *,
        holder: int,
        lease_ms: int,
        now: int,
        quiet_only: bool = False,
        dead_max: int = DEAD_MAX,
    ) -> tuple[list[Taken], Effects]:
        """Hand out at most ``count``: those that were given back, then the lowest that may go.

        ``quiet_only`` leaves out those of noisy tenants. The effects have messages that were
        handed out as often as they may be: beside the others, but with ``dead_max`` it ends.
        """
        self._now_unix_ms = now
        messages = self._open
        room = min(count, self._policy.in_flight_max - messages.in_flight_count)
        if room <= 0:
            return [], Effects()
        taking = Taking(
            messages, self._ahead, self._policy, holder=holder, room=room, dead_max=dead_max
        )
        taking.begin(now, lease_ms)
        lines = messages.lines
        noisy: list[Line] = []
        used: list[Line] = []
        while taking.room and (line := lines.pop(now, noisy)) is not None:
            is_fresh = not line.back
            taking.take_from(line)
            used.append(line)
            if is_fresh and not taking.takes_fresh:
                break  # and so are all behind it
        for line in noisy:
            if taking.room and not quiet_only:
                taking.take_from(line)
        for line in (*used, *noisy):
            lines.offer(line)
        return taking.taken, Effects(taking.journal_entry(), taking.dead)

    def fresh_row(self, count: int) -> range | None:
        """Return what ``take`` would hand out, when that is a row; see ``features.queue.rows``."""
        stretch = fresh_stretch(self._open, self._policy, count)
        return None if stretch is None else range(stretch.first, stretch.first + count)

    def take_row(self, count: int, *, lease_ms: int, now: int) -> range:
        """Hand out the row of ``fresh_row``; it is held by nobody, but until a time."""
        self._now_unix_ms = now
        stretch = fresh_stretch(self._open, self._policy, count)
        assert stretch is not None
        return take_row(self._open, self._ahead, stretch, count, lease_ms=lease_ms, now=now)

    def ack_row(self, row: range, attempt: int, *, now: int) -> Effects | None:
        """Settle a row that is still as it was handed out; None when it is not: see ``ack``."""
        self._now_unix_ms = now = max(now, self._now_unix_ms)
        may_wake = self._open.may_wake(self._policy.in_flight_max)
        is_done = ack_row(self._acking, row, attempt, now)
        return Effects(wake=may_wake) if is_done else None

    def ack(self, ids: Ids, *, now: int = 0) -> tuple[list[Result], Effects]:
        """Messages are done. ``now`` is for who counts the time that tenants spend.

        One whose lease is over, and that was not handed out again, is done too: but where keys
        keep their order, because others of its key may have been handed out since.
        """
        self._now_unix_ms = now = max(now, self._now_unix_ms)
        may_wake = self._open.may_wake(self._policy.in_flight_max)
        results, offsets = self._acking.ack(ids, now)
        if not offsets:
            return results, Effects()
        return results, Effects(journal.encode_done(offsets), wake=may_wake)

    def release(
        self, ids: Ids, *, delay_ms: int, now: int, counts_attempt: bool = True
    ) -> tuple[list[Result], Effects]:
        """Give messages back before their lease is over, to go again at once or later."""
        self._now_unix_ms = now
        results: list[Result] = []
        by_flight: dict[Flight, list[int]] = {}
        for offset, attempt in ids:
            flight, result = self._open.in_flight(offset, attempt)
            if flight is not None:
                if offset in by_flight.setdefault(flight, []):
                    result = Result.STALE
                else:
                    by_flight[flight].append(offset)
            results.append(result)
        due_unix_ms = now + delay_ms if delay_ms > 0 else AT_ONCE
        returning = self._returning()
        returning.give_back(by_flight, due_unix_ms, counts_attempt=counts_attempt)
        return results, returning.effects

    def _returning(self) -> Returning:
        return Returning(self._open, self._now_unix_ms)

    def reject(self, ids: Ids, *, reason: str, now: int = 0) -> tuple[list[Result], Effects]:
        """Give messages up: the effects have them. A lost move hands them out again."""
        self._now_unix_ms = max(now, self._now_unix_ms)
        returning = self._returning()
        results: list[Result] = []
        for offset, attempt in ids:
            flight, result = self._open.in_flight(offset, attempt)
            results.append(result)
            if flight is not None:
                returning.kill(flight, [offset], attempt, reason)
        return results, returning.effects

    def give_up(self, offsets: Iterable[int], *, reason: str, now: int) -> Effects:
        """Give messages up that could be handed out, none else of these: the effects have them."""
        self._now_unix_ms = now
        policy = self._policy
        return give_up(offsets, self._open, self._ahead, policy, reason=reason, now=now)

    def extend(
        self, ids: Ids, *, lease_ms: Sequence[int], now: int, latest_only: bool = True
    ) -> tuple[list[Result], Effects]:
        """Set new leases, each from now on; one of 0 gives the message back at once.

        Not ``latest_only``, it is done by any attempt's id, and what waits to go again is in flight
        again: for messages that need not keep their order.
        """
        self._now_unix_ms = now
        returning = self._returning()
        results = extend(ids, lease_ms, self._open, returning, latest_only=latest_only)
        if not latest_only:
            take_late(ids, lease_ms, self._open, self._ahead, self._policy, returning)
        return results, returning.effects

    def moved(self, offsets: Sequence[int]) -> bytes:
        """Dead messages are where they belong, or dropped: return what to write of it."""
        gone = [offset for offset in offsets if isinstance(self._open.items.get(offset), Dying)]
        for offset in gone:
            self._open.remove(offset, self._now_unix_ms)
        return journal.encode_done(gone)

    def move_failed(self, offsets: Sequence[int], *, now: int, retry_ms: int) -> None:
        """Dead messages could not be moved: ``tick`` says so again when it is time."""
        self._now_unix_ms = now
        for offset in offsets:
            item = self._open.items.get(offset)
            if isinstance(item, Dying):
                self._open.timers.put(item, now + retry_ms)

    def not_moved(self, offsets: Sequence[int], *, now: int) -> Effects:
        """Dead messages are not to be moved after all: they go again, as often as they may."""
        self._now_unix_ms = now
        returning = self._returning()
        returning.revive(offsets)
        return returning.effects

    @property
    def ack_number(self) -> int:
        """The number of the latest ``ack`` by which something was done, for ``kept``."""
        return self._acking.number

    def kept(self, ack_number: int) -> None:
        """The entries of all calls of ``ack`` up to that one are kept: none is put back."""
        self._acking.forget(ack_number)

    def put_back(self, ids: Ids) -> None:
        """Undo ``ack``, whose entry was not kept: leases go on. Keys of long ago are not known."""
        self._acking.put_back(ids, self._now_unix_ms)

    def end_holder(self, holder: int, now: int, *, counts_attempt: bool = True) -> Effects:
        """A connection has gone: what it held goes back at once.

        It is written down only where the attempt does not count: a load ends all holders.
        """
        self._now_unix_ms = now
        returning = self._returning()
        messages = self._open
        flights = {flight: messages.members(flight) for flight in messages.flights_of(holder)}
        if not counts_attempt:
            returning.give_back(flights, AT_ONCE, counts_attempt=False)
            return returning.effects
        for flight, offsets in flights.items():
            returning.come_back(flight, offsets)
        return returning.effects

    def tick(self, now: int, *, messages_max: int) -> Effects:
        """Do what is due: leases are over, delays too, moves are tried again.

        It ends behind the first lease with which ``messages_max`` are reached; then
        ``next_due_unix_ms`` has passed, and there is more to do.
        """
        self._now_unix_ms = now
        returning = self._returning()
        do_due(self._open, self._ahead, returning, now, messages_max=messages_max)
        return returning.effects

    def purge(self, end_offset: int) -> Effects:
        """All messages before ``end_offset`` are gone, whatever their state."""
        purge(end_offset, self._open, self._ahead, self._now_unix_ms)
        return Effects(journal.encode_move(journal.KIND_PURGE, end_offset), wake=True)

    def expire_before(self, offset: int) -> Effects:
        """What waits before ``offset``, for the first time or again, will not be handed out.

        So it is with what could not be moved to the dead letters. What is in flight, or is being
        moved, stays until it is done or comes back.
        """
        if offset <= self.floor:
            return Effects()
        return expire(offset, self._open, self._ahead, self._now_unix_ms)

    def seek(self, offset: int, *, end_offset: int) -> Effects:
        """Begin anew at an offset: all that is known is forgotten. Feed from there."""
        offset = min(max(offset, 0), end_offset)
        seek(offset, self._open, self._ahead, self._now_unix_ms)
        self._acking.clear()
        return Effects(journal.encode_move(journal.KIND_SEEK, offset))

    def browse(self, start_offset: int, messages_max: int) -> list[State]:
        """Return the state of each of so many offsets: ready, in_flight, delayed or done.

        What the lane was not fed with is ready: the caller knows where the partition ends.
        """
        return browse(self._open.items, self._ahead, start_offset, messages_max)

    def browse_there(self, start_offset: int, end_offset: int, most: int) -> list[State]:
        """As ``browse``, but of the first ``most`` that are not done, however far they are."""
        return browse_there(self._open.items, self._ahead, start_offset, end_offset, most)

    def is_done(self, first: int, last: int) -> bool:
        """Say whether all messages from ``first`` to ``last`` were handed out and are done."""
        is_out = last < self._ahead.next_offset
        return is_out and self._open.items.keys().isdisjoint(range(first, last + 1))

    def returned(self, count: int) -> list[int]:
        """Return what was given back and ``take`` hands out next, key by key."""
        return self._open.lines.returned(count)

    def counts(self, end_offset: int) -> Counts:
        """Return the messages by state in a partition that ends at ``end_offset``. O(1).

        What was compacted away counts until the lane is fed beyond it.
        """
        return count(self._open, self._ahead, end_offset)

    def snapshot(self) -> bytes:
        """Return the journal entry that stands for all before it."""
        return take_snapshot(self._open, self._ahead)

    def apply(self, entry: bytes) -> None:
        """Replay a journal entry, before the lane is fed. Error: ``CorruptBatch``."""
        replay(entry, self._open, self._ahead)

    def claim(self, offsets: Sequence[int], *, holder: int, now: int) -> list[Taken]:
        """After a load, before ``recovered``: a holder that was kept still has these messages.

        Return those that are his now: one that is done stays so; one whose take was lost is
        handed out to him, of which only a snapshot tells.
        """
        self._now_unix_ms = now
        return claim(offsets, self._open, self._ahead, holder=holder, now_unix_ms=now)

    def recovered(self, now: int) -> Effects:
        """The journal has been replayed: what connections held goes back."""
        effects = self.end_holder(LOST_HOLDER, now)
        effects.wake = True
        return effects
