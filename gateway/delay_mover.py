"""Moves what is due: out of ``__delays`` and into its topic, in one append.

What is due soon is taken from the wheel and decoded ahead of its time, a bounded number at a
time, so that little is left to do when it comes. A timer stands at the next due time, and at
least every second, so that a step of the wall clock is noticed. What is due together is appended
together: a batch or more for each partition, and one entry that takes all of them out.
"""

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter, sub
from typing import Final
from uuid import UUID

import structlog

from features.delay.entries import encode_removed, parse_destination, parse_many
from features.delay.places import Place
from features.delay.staged import Item, Staged
from features.delay.state import DelayState, Taken
from gateway.broker import Broker
from gateway.clock import Clock
from gateway.delay_batches import Tail, cut, encode_tails, tail_of
from gateway.delay_bodies import Bodies
from gateway.errors import GatewayError, PolicyViolation, StorageUnavailable
from gateway.model import TIMESTAMP_TYPE_MASK, parse_batch_header
from gateway.partition import Partition, Write
from gateway.records import NO_HEADERS
from gateway.topics import TopicManager

TICK_MS: Final = 2  # at least between two looks, so that a little is moved together
RECHECK_MS: Final = 1_000
RETRY_MS: Final = 1_000  # after the storage, or a full queue, has refused
DEALT_MAX: Final = 2_000  # entries of the wheel in one go: 2 ms of the loop
STAGE_AHEAD_MS: Final = 250  # what is due sooner is made ready; the wheel has dealt that out
STAGED_MAX: Final = 500  # messages in one go, ahead of their time: 1 ms of the loop
MOVED_BYTES_MAX: Final = 1 << 18  # in one append: 3 ms of the loop for small messages
ROUNDS_MAX: Final = 8  # on their way into the log

_REMOVED_MAX: Final = 4_096  # numbers in one entry

Moved = list[tuple[int, Place]]

log = structlog.get_logger()


class DelayMover:
    """Takes from a state what is due and appends it. All on the loop."""

    def __init__(  # noqa: PLR0913, PLR0917 - its surroundings, made once
        self,
        state: DelayState,
        bodies: Bodies,
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
        self._is_held = False
        self._is_behind = False  # buckets of the wheel are to be dealt out
        self._has_more = False  # that is due
        self._is_started = False
        self._is_closed = False
        self.moved = 0
        self.refused = 0

    @property
    def is_busy(self) -> bool:
        """Whether something is being found, read or moved, and no refusal is in the way."""
        is_at_it = self._bodies.is_fetching or self._rounds_in_flight > 0
        return is_at_it or self._is_behind or self._has_more

    def start(self) -> None:
        """Move what is due from now on, and what became due before."""
        self._is_started = True
        self.wake_at(0)

    def close(self) -> None:
        """Move nothing more."""
        self._is_closed = True
        self._broker.writer.unhold(self._release)
        if self._timer is not None:
            self._timer.cancel()

    def wake_at(self, due_unix_ms: int) -> None:
        """Something is due then, maybe before all else."""
        if self._timer is None or due_unix_ms < self._timer_unix_ms:
            now_unix_ms = self._clock.unix_ms()
            self._arm(max(due_unix_ms - now_unix_ms, 0), now_unix_ms)

    def run(self) -> None:
        """Move what is due now, a bounded part of it, and set the timer for the rest."""
        if self._is_closed or not self._is_started:
            return
        now_unix_ms = self._clock.unix_ms()
        wait_ms = RETRY_MS
        try:
            wait_ms = self._run(now_unix_ms)
        finally:  # a bug above must not leave all that waits without a timer
            self._arm(wait_ms, now_unix_ms)

    def _run(self, now_unix_ms: int) -> int:
        """Do one part; return in how many ms to come again."""
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
        """Return in how many ms there is something to do; 0 when there is now."""
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
        """Return until when what is due is to be taken from the wheel by now."""
        unread_unix_ms = self.staged.unread_unix_ms
        if unread_unix_ms is not None:  # nothing that is due then or later can go before it
            return min(now_unix_ms, unread_unix_ms - 1)
        if self.staged.size_bytes >= self._staged_bytes_max:
            return now_unix_ms
        return now_unix_ms + STAGE_AHEAD_MS

    def _stage(self, now_unix_ms: int, until_unix_ms: int) -> None:
        """Take what is due until then, a bounded part of it, and see that it has its bodies."""
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
            unread = [(place[0], number) for _, number, place in self.staged.unread()]
            self._bodies.fetch(unread, self._fetched)

    def _read(self, taken: Sequence[Taken]) -> None:
        """Decode what was taken from the wheel, as far as there are bodies."""
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
        places: Sequence[Place]
        dues, numbers, places = zip(*taken, strict=True)
        own_unix_ms, *columns = parse_many(bodies)
        items = list(zip(dues, numbers, *columns, strict=True))
        if max(map(sub, own_unix_ms, dues)) > 0:
            items, places = self._without_early(items, places, own_unix_ms)
        self.staged.add(items, places)

    def _without_early(
        self, items: Sequence[Item], places: Sequence[Place], own_unix_ms: Iterable[int]
    ) -> tuple[list[Item], Sequence[Place]]:
        """Put back what is due later: a cancellation that was refused lost its time."""
        rows = list(zip(items, places, own_unix_ms, strict=True))
        for item, place, due_unix_ms in rows:
            if due_unix_ms > item[0]:
                self.staged.withdraw(item[1])
                self._state.back(item[1], place, due_unix_ms)
        kept = [(item, place) for item, place, due_unix_ms in rows if due_unix_ms <= item[0]]
        return [item for item, _ in kept], [place for _, place in kept]

    def _move(self, now_unix_ms: int) -> bool:
        """Append what is due, a bounded part of it; False when that was refused."""
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
            log.warning("delayed messages are due and refused", error=str(error))
            self._retry_at_ms = self._clock.monotonic_ms() + RETRY_MS
            return False
        return True

    def _hindered_ms(self) -> int:
        """Return for how long nothing can be moved; 0 when something can."""
        if self._is_held or self._rounds_in_flight >= ROUNDS_MAX:
            return RECHECK_MS
        if self._broker.writer.is_saturated:
            self._is_held = True
            self._broker.writer.hold(self._release)
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
        """What was read and has no body cannot be decoded: it must not hold up the others.

        Its entry stays in the stream, for ``headgate log dump``, until it is cut off.
        """
        for number in missing:
            place = self.staged.withdraw(number)
            if place is not None:
                self._state.settled([(number, place)])

    def _append(self, due: Sequence[Item], now_unix_ms: int) -> None:
        """Append messages and what takes them out. Errors: those of ``Broker.append``."""
        groups: dict[bytes, list[Item]] = {}
        for destination, some in groupby(due, itemgetter(2)):
            groups.setdefault(destination, []).extend(some)
        writes: list[Write] = []
        later: list[int] = []
        moved: list[int] = []
        for destination, items in groups.items():
            topic_uuid, partition_number = parse_destination(destination)
            topic = self._topics.by_uuid(UUID(bytes=topic_uuid))
            below = self._state.purged_below(topic_uuid)
            numbers = [item[1] for item in items]
            tails = [(item[3], item[4]) for item in items if item[1] >= below]
            try:
                if topic is not None and tails:  # else it is gone, with all that waits for it
                    partition = self._broker.partition(topic, partition_number)
                    writes += self._writes(partition, tails, now_unix_ms)
            except PolicyViolation:  # its queue is full; the others need not wait for it
                self.refused += 1
                later += numbers
            else:
                moved += numbers
        if moved:
            writes += removal_writes(self._partition, moved, now_unix_ms)
            popped: Moved = []
            self._broker.append(writes, partial(self._done, popped))
            popped += self.staged.pop(moved)  # nobody can cancel them any more
            self._rounds_in_flight += 1
        self._retry_at_ms = 0
        for number, place in self.staged.pop(later):
            self._state.back(number, place, now_unix_ms + RETRY_MS)

    def _writes(
        self, partition: Partition, tails: Sequence[Tail], now_unix_ms: int
    ) -> list[Write]:
        """Return what appends messages to their partition. Error: ``PolicyViolation``."""
        settings = partition.topic.settings
        holders = self._broker.holders
        if settings.is_queue or holders.stopped:
            holders.check_room(partition, sum(len(tail) for _, tail in tails))
        attributes = 0
        if settings.log_append_time:
            attributes = TIMESTAMP_TYPE_MASK
            tails = [(now_unix_ms, tail) for _, tail in tails]
        writes = []
        for piece in cut(tails, settings.message_bytes_max):
            # Retention counts from now, not from when the message was put: a message may wait
            # for longer than its topic keeps any. It stands in the batch, because the log's
            # copies of closed segments know nothing else.
            octets = encode_tails(piece, attributes=attributes, max_unix_ms=now_unix_ms)
            header = parse_batch_header(octets)._replace(max_timestamp_unix_ms=now_unix_ms)
            writes.append(Write(partition, octets, header))
        return writes

    def take_out(self, numbers: Sequence[int]) -> None:
        """What was purged on its way lies behind the purge: a start would find it waiting."""
        writes = removal_writes(self._partition, numbers, self._clock.unix_ms())
        try:
            self._broker.append(writes, _ignore, reserved=True)
        except GatewayError as error:
            log.warning("purged messages come back at the next start", error=str(error))

    def _done(self, moved: Moved, error: StorageUnavailable | None) -> None:
        self._rounds_in_flight -= 1
        if error is not None:  # the node stops; the next start finds them waiting
            return
        self._state.settled(moved)
        self.moved += len(moved)
        if self._rounds_in_flight == ROUNDS_MAX - 1:
            self.wake_at(0)


def removal_writes(
    partition: Partition, numbers: Sequence[int], now_unix_ms: int
) -> list[Write]:
    """Return the writes into ``__delays`` that take messages out."""
    values = [
        encode_removed(numbers[start : start + _REMOVED_MAX])
        for start in range(0, len(numbers), _REMOVED_MAX)
    ]
    return entry_writes(partition, values, now_unix_ms)


def entry_writes(
    partition: Partition, values: Sequence[bytes], now_unix_ms: int
) -> list[Write]:
    """Return the writes that append entries to ``__delays``, in order."""
    tails = [(now_unix_ms, tail_of(None, value, NO_HEADERS)) for value in values]
    writes = []
    for piece in cut(tails, partition.topic.settings.message_bytes_max):
        octets = encode_tails(piece)
        writes.append(Write(partition, octets, parse_batch_header(octets)))
    return writes


def _ignore(_error: StorageUnavailable | None) -> None:
    """Nobody waits: what is still in the log is gone here."""
