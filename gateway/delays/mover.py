"""Moves due messages: out of ``__delays`` and into their topics, in one append.

Messages due soon are taken from the wheel and decoded ahead, a bounded number at a time, so that
little is left to do when they are due. A timer runs at the next due time, and at least every
second, so that a step of the wall clock is noticed. Messages due together are appended together
(``DueBatch``): one or more batches per partition, and one entry that removes them.
"""

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from operator import sub
from typing import Final, NamedTuple

import structlog

from features.delay.entries import parse_many
from features.delay.message_locations import MessageLocation
from features.delay.runs import DelayedRun
from features.delay.staged import Item, Staged
from features.delay.state import DelayState, Taken
from gateway.broker import Broker
from gateway.clock import Clock
from gateway.delays.due_batch import DueBatch, removal_writes
from gateway.delays.due_message_cache import DueMessageCache
from gateway.delays.pending_messages import PendingEntry
from gateway.errors import GatewayError, StorageUnavailable
from gateway.partition import Partition
from gateway.topics.manager import TopicManager

TICK_MS: Final = 2  # at least between two looks, so that a little is moved together
RECHECK_MS: Final = 1_000
RETRY_MS: Final = 1_000  # after the storage, or a full queue, has refused
DEALT_MAX: Final = 2_000  # entries of the wheel in one go: 2 ms of the loop
STAGE_AHEAD_MS: Final = 250  # what is due sooner is made ready; the wheel has dealt that out
STAGED_MAX: Final = 500  # messages in one go, ahead of their time: 1 ms of the loop
MOVED_BYTES_MAX: Final = 1 << 18  # in one append: 3 ms of the loop for small messages
ROUNDS_MAX: Final = 64  # on their way into the log: what a sync may take, in ticks
IN_FLIGHT_BYTES_MAX: Final = 8 * MOVED_BYTES_MAX  # of them: others share the log's queue


class Moved(NamedTuple):
    """Messages moved by one append: in total, as whole entries, and as parts of runs with sizes."""

    message_count: int
    size_bytes: int
    rows: list[tuple[int, MessageLocation]]
    parts: list[tuple[DelayedRun, int, MessageLocation]]


log = structlog.get_logger()


class DelayMover:
    """Takes due messages from the state and appends them. Loop only."""

    def __init__(  # noqa: PLR0913, PLR0917 - its surroundings, made once
        self,
        state: DelayState,
        bodies: DueMessageCache,
        partition: Partition,
        broker: Broker,
        topics: TopicManager,
        clock: Clock,
        *,
        due_per_tick: int,
        staged_bytes_max: int,
    ) -> None:
        self._state = state
        self._bodies = bodies
        self._partition = partition
        self._broker = broker
        self._topics = topics
        self._clock = clock
        self._due_per_tick = due_per_tick
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._timer_unix_ms = 0
        self._staged_bytes_max = staged_bytes_max
        self.staged = Staged()
        self._retry_at_ms = 0  # monotonic
        self._rounds_in_flight = 0
        self._in_flight_bytes = 0
        self._is_held = False
        self._is_behind = False  # buckets of the wheel are to be dealt out
        self._has_more = False  # that is due
        self._is_started = False
        self._is_closed = False
        self.moved = 0
        self.refused = 0

    @property
    def is_busy(self) -> bool:
        """Whether messages are being found, read or moved, without a refusal."""
        is_at_it = self._bodies.is_fetching or self._rounds_in_flight > 0
        return is_at_it or self._is_behind or self._has_more

    def start(self) -> None:
        """Start to move due messages."""
        self._is_started = True
        self.wake_at(0)

    def close(self) -> None:
        """Stop."""
        self._is_closed = True
        self._broker.append_queue.unhold(self._release)
        if self._timer is not None:
            self._timer.cancel()

    def wake_at(self, due_unix_ms: int) -> None:
        """Set the timer for a message due then, if it is the first."""
        if self._timer is None or due_unix_ms < self._timer_unix_ms:
            now_unix_ms = self._clock.unix_ms()
            self._arm(max(due_unix_ms - now_unix_ms, 0), now_unix_ms)

    def run(self) -> None:
        """Move a bounded number of due messages, and set the timer for the rest."""
        if self._is_closed or not self._is_started:
            return
        now_unix_ms = self._clock.unix_ms()
        wait_ms = RETRY_MS
        try:
            wait_ms = self._run(now_unix_ms)
        finally:  # a bug above must not leave all that waits without a timer
            self._arm(wait_ms, now_unix_ms)

    def _run(self, now_unix_ms: int) -> int:
        """Do one step; return the milliseconds until the next."""
        self._is_behind = self._state.wheel.advance(now_unix_ms, moves_max=DEALT_MAX)
        # Where something else has to happen first, that comes back here by itself.
        wait_ms = self._hindered_ms()
        self._has_more = False
        if not wait_ms:
            until_unix_ms = self._until_unix_ms(now_unix_ms)
            self._stage(now_unix_ms, until_unix_ms)
            is_refused = not self._move(now_unix_ms)
            wait_ms = RETRY_MS if is_refused else self._next_ms(now_unix_ms, until_unix_ms)
            self._has_more = not wait_ms
        self._bodies.prefetch(now_unix_ms)
        return wait_ms

    def _next_ms(self, now_unix_ms: int, until_unix_ms: int) -> int:
        """Return the milliseconds until there is work; 0 when there is some now."""
        wheel = self._state.wheel
        staged_unix_ms = self.staged.next_unix_ms
        due_unix_ms = wheel.next_due_unix_ms  # of what was left in the wheel
        if staged_unix_ms is not None and staged_unix_ms <= now_unix_ms:
            return 0
        if self._is_behind:
            return TICK_MS
        next_unix_ms = [staged_unix_ms, wheel.next_unix_ms]
        if due_unix_ms is not None and due_unix_ms <= until_unix_ms:
            if due_unix_ms <= now_unix_ms:
                return 0
            return TICK_MS  # others have their turn before more of it is made ready
        if due_unix_ms is not None and until_unix_ms > now_unix_ms:
            next_unix_ms.append(due_unix_ms - STAGE_AHEAD_MS)
        soonest = min([one for one in next_unix_ms if one is not None], default=None)
        wait_ms = RECHECK_MS if soonest is None else soonest - now_unix_ms
        return max(wait_ms, TICK_MS)

    def _arm(self, wait_ms: int, now_unix_ms: int) -> None:
        if self._is_closed or not self._is_started:
            return
        if self._timer is not None:
            self._timer.cancel()
        wait_ms = min(wait_ms, RECHECK_MS)
        self._timer_unix_ms = now_unix_ms + wait_ms
        if wait_ms:
            self._timer = self._loop.call_later(wait_ms / 1_000, self.run)
        else:
            self._timer = self._loop.call_soon(self.run)

    def _release(self) -> None:
        self._is_held = False
        self.run()

    def _until_unix_ms(self, now_unix_ms: int) -> int:
        """Return the due time up to which messages must be taken from the wheel by now."""
        unread_unix_ms = self.staged.unread_unix_ms
        if unread_unix_ms is not None:  # nothing that is due then or later can go before it
            return min(now_unix_ms, unread_unix_ms - 1)
        if self.staged.size_bytes >= self._staged_bytes_max:
            return now_unix_ms
        return now_unix_ms + STAGE_AHEAD_MS

    def _stage(self, now_unix_ms: int, until_unix_ms: int) -> None:
        """Take a bounded number of messages due until then, and fetch their bodies."""
        due_unix_ms = self._state.wheel.next_due_unix_ms
        is_late = due_unix_ms is not None and due_unix_ms <= now_unix_ms
        taken, gone = self._state.take(
            self._due_per_tick if is_late else min(STAGED_MAX, self._due_per_tick),
            min(MOVED_BYTES_MAX, self._staged_bytes_max),
            until_unix_ms=until_unix_ms,
        )
        for number in gone:
            self._bodies.drop(number)
        if self.staged.unread_unix_ms is not None and not self._bodies.is_fetching:
            self._read(self.staged.unread())
        self._read(taken)
        if self.staged.unread_unix_ms is not None and not self._bodies.is_fetching:
            unread = [(location[0], number) for _, number, location in self.staged.unread()]
            self._bodies.fetch(unread, self._fetched)

    def _read(self, taken: Sequence[Taken]) -> None:
        """Decode the messages taken from the wheel that have bodies."""
        if not taken:
            return
        values = self._bodies.pop_many([number for _, number, _ in taken])
        bodies = [value for value in values if value is not None]
        if len(bodies) < len(taken):
            rows = list(zip(taken, values, strict=True))
            self.staged.hold([one for one, value in rows if value is None])
            taken = [one for one, value in rows if value is not None]
            if not taken:
                return
        locations: Sequence[MessageLocation]
        dues, numbers, locations = zip(*taken, strict=True)
        own_unix_ms, *columns = parse_many(bodies)
        items = list(zip(dues, numbers, *columns, strict=True))
        if max(map(sub, own_unix_ms, dues)) > 0:
            items, locations = self._without_early(items, locations, own_unix_ms)
        self.staged.add(items, locations)

    def _without_early(
        self,
        items: Sequence[Item],
        locations: Sequence[MessageLocation],
        own_unix_ms: Iterable[int],
    ) -> tuple[list[Item], Sequence[MessageLocation]]:
        """Put back messages due later, whose due time a refused cancellation has lost."""
        rows = list(zip(items, locations, own_unix_ms, strict=True))
        for item, location, due_unix_ms in rows:
            if due_unix_ms > item[0]:
                self.staged.withdraw(item[1])
                self._state.back(item[1], location, due_unix_ms)
        kept = [
            (item, location) for item, location, due_unix_ms in rows if due_unix_ms <= item[0]
        ]
        return [item for item, _ in kept], [location for _, location in kept]

    def _move(self, now_unix_ms: int) -> bool:
        """Append a bounded number of due messages; return False when refused."""
        due = self.staged.take_due(now_unix_ms, self._due_per_tick, MOVED_BYTES_MAX)
        if not due:
            return True
        try:
            self._append(due, now_unix_ms)
        except BaseException as error:
            self.staged.put_back(due)
            if not isinstance(error, GatewayError):
                raise
            self.refused += 1
            log.warning("append of due messages refused", error=str(error))
            self._retry_at_ms = self._clock.monotonic_ms() + RETRY_MS
            return False
        return True

    @property
    def _is_full(self) -> bool:
        """Whether the limit of appends in flight is reached."""
        return (
            self._rounds_in_flight >= ROUNDS_MAX or self._in_flight_bytes >= IN_FLIGHT_BYTES_MAX
        )

    def _hindered_ms(self) -> int:
        """Return the milliseconds for which nothing can be moved; 0 when something can."""
        if self._is_held or self._is_full:
            return RECHECK_MS
        if self._broker.append_queue.is_saturated:
            self._is_held = True
            self._broker.append_queue.hold(self._release)
            return RECHECK_MS
        return max(self._retry_at_ms - self._clock.monotonic_ms(), 0)

    def _fetched(self, missing: Sequence[int], error: GatewayError | None) -> None:
        if error is not None:
            log.warning("delayed messages not read", error=str(error))
            self._retry_at_ms = self._clock.monotonic_ms() + RETRY_MS
        else:
            self._forget_unreadable(missing)
        self.run()

    def _forget_unreadable(self, missing: Sequence[int]) -> None:
        """Drop messages whose entries cannot be decoded, so that they do not hold up others.

        Their entries stay in the stream, for ``headgate log dump``, until it is truncated.
        """
        for number in missing:
            location = self.staged.withdraw(number)
            if location is not None:
                self._state.settled([(number, location)])

    def _append(self, due: Sequence[Item], now_unix_ms: int) -> None:
        """Append messages and their removal entries. Errors: those of ``Broker.append``."""
        found = DueBatch(self._state, self._broker, self._topics, now_unix_ms)
        found.add(due)
        self.refused += found.refused
        writes = found.writes(self._partition)
        moved = Moved(found.count, sum([len(write.batch) for write in writes]), [], [])
        if writes:
            self._broker.append(writes, partial(self._done, moved))
            self._rounds_in_flight += 1
            self._in_flight_bytes += moved.size_bytes
        moved.rows.extend(self.staged.pop(found.rows))  # nobody can cancel them any more
        for run, numbers in found.parts:
            [(_, location)] = self.staged.pop([run.first])
            run.location = location
            run.gone |= frozenset(numbers)
            moved.parts.append((run, len(numbers), location))
        if found.damaged:  # as ``_forget_unreadable``
            log.warning("delayed messages are damaged", count=len(found.damaged))
            self._state.settled(self.staged.pop(found.damaged))
        self._retry_at_ms = 0
        for number, location in self.staged.pop(found.later):
            self._state.back(number, location, now_unix_ms + RETRY_MS)

    def take_out(self, rows: Sequence[PendingEntry]) -> None:
        """Remove entries appended after a purge of their topic: a start would restore them."""
        alone = [number for _, number, run_count, _ in rows if not run_count]
        runs = [number for _, number, run_count, _ in rows if run_count]
        writes = removal_writes(self._partition, alone, self._clock.unix_ms(), runs)
        try:
            self._broker.append(writes, _ignore, reserved=True)
        except GatewayError as error:
            log.warning("purged messages come back at the next start", error=str(error))

    def end_run(self, run: DelayedRun) -> None:
        """Forget a run: all its messages were moved or cancelled."""
        location = (
            run.location or self._state.remove(run.first) or self.staged.withdraw(run.first)
        )
        self._bodies.drop(run.first)
        if location is not None:  # else it was purged, and goes with that
            self._state.settled([(run.first, location)])

    def _done(self, moved: Moved, error: StorageUnavailable | None) -> None:
        was_full = self._is_full
        self._rounds_in_flight -= 1
        self._in_flight_bytes -= moved.size_bytes
        if error is not None:  # the node stops; the next start finds them waiting
            return
        self._state.settled(moved.rows)
        for run, count, location in moved.parts:
            self._state.settle_part(run, count, location)
            if not run.left:
                self.end_run(run)
        self.moved += moved.message_count
        if was_full and not self._is_full:
            self.wake_at(0)


def _ignore(_error: StorageUnavailable | None) -> None:
    """Ignore the result: the messages are removed from memory already."""
