"""Moves what is due: out of ``__delays`` and into its topic, in one append.

A timer stands at the next due time, and at least every second, so that a step of the wall
clock is noticed. What is due together is appended together: a batch or more for each
partition, and one entry that takes all of them out.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final
from uuid import UUID

import structlog

from features.delay.entries import encode_removed, parse_waiting
from features.delay.places import Place
from features.delay.state import DelayState
from gateway.broker import Broker
from gateway.clock import Clock
from gateway.delay_batches import Tail, cut, encode_tails, tail_of
from gateway.delay_bodies import Bodies
from gateway.errors import GatewayError, PolicyViolation, StorageUnavailable
from gateway.model import TIMESTAMP_TYPE_MASK, parse_batch_header
from gateway.partition import Partition, Write
from gateway.records import NO_HEADERS
from gateway.topics import TopicManager

TICK_MS: Final = 3  # at least between two looks, so that a little is moved together
RECHECK_MS: Final = 1_000
RETRY_MS: Final = 1_000  # after the storage, or a full queue, has refused
DEALT_MAX: Final = 2_000  # entries of the wheel in one go: 2 ms of the loop
MOVED_BYTES_MAX: Final = 1 << 18  # in one append: 10 ms of the loop for small messages
ROUNDS_MAX: Final = 8  # on their way into the log

_REMOVED_MAX: Final = 4_096  # numbers in one entry

Chunk = list[tuple[int, Place]]
_Group = tuple[Chunk, list[Tail]]

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
        self._chunk: Chunk = []  # taken, and not appended yet
        self._retry_at_ms = 0  # monotonic
        self._rounds_in_flight = 0
        self._is_held = False
        self._is_behind = False  # buckets of the wheel are to be dealt out
        self._is_started = False
        self._is_closed = False
        self.moved = 0
        self.refused = 0

    @property
    def is_busy(self) -> bool:
        """Whether something is being found, read or moved, and no refusal is in the way."""
        is_at_it = self._bodies.is_fetching or self._rounds_in_flight > 0
        return is_at_it or self._is_behind or bool(self._chunk and not self._retry_at_ms)

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
        wait_ms = self._move(now_unix_ms)
        self._bodies.prefetch(now_unix_ms, self._prefetched)
        if wait_ms is None:
            next_unix_ms = self._state.wheel.next_unix_ms
            wait_ms = RECHECK_MS if next_unix_ms is None else next_unix_ms - now_unix_ms
            wait_ms = TICK_MS if self._is_behind else max(wait_ms, TICK_MS)
        return wait_ms

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

    def _move(self, now_unix_ms: int) -> int | None:
        """Append what is due; return in how many ms to come again, None when nothing is left.

        Where something else has to happen first, that comes back here by itself.
        """
        wait_ms = self._hindered_ms()
        if wait_ms:
            return wait_ms
        if not self._chunk:
            self._chunk, gone = self._state.take(self._due_per_tick, MOVED_BYTES_MAX)
            for number in gone:
                self._bodies.drop(number)
        if not self._chunk:
            return None
        get = self._bodies.get
        missing = [(place[0], number) for number, place in self._chunk if get(number) is None]
        if missing:
            if not self._bodies.is_fetching:  # else that may bring them; its end comes here
                self._bodies.fetch(missing, partial(self._fetched, self._chunk))
            return RECHECK_MS
        try:
            self._append(now_unix_ms)
        except GatewayError as error:
            self.refused += 1
            log.warning("delayed messages are due and refused", error=str(error))
            self._retry_at_ms = self._clock.monotonic_ms() + RETRY_MS
            return RETRY_MS
        return 0  # there may be more

    def _hindered_ms(self) -> int:
        """Return for how long nothing can be moved; 0 when something can."""
        if self._is_held or self._rounds_in_flight >= ROUNDS_MAX:
            return RECHECK_MS
        if self._broker.writer.is_saturated:
            self._is_held = True
            self._broker.writer.hold(self._release)
            return RECHECK_MS
        return max(self._retry_at_ms - self._clock.monotonic_ms(), 0)

    def _fetched(self, chunk: Chunk, error: GatewayError | None) -> None:
        if error is not None:
            log.warning("delayed messages not read", error=str(error))
            self._retry_at_ms = self._clock.monotonic_ms() + RETRY_MS
        elif chunk is self._chunk:  # else it had all it needed before the read was over
            self._forget_unreadable()
        self.run()

    def _prefetched(self, _error: GatewayError | None) -> None:
        """What could not be read ahead is read again when it is due."""
        self.run()

    def _forget_unreadable(self) -> None:
        """What was read and has no body cannot be decoded: it must not hold up the others.

        Its entry stays in the stream, for ``headgate log dump``, until it is cut off.
        """
        get = self._bodies.get
        for number, place in self._chunk:
            if get(number) is None:
                self._state.settled(number, place)
        self._chunk = [one for one in self._chunk if get(one[0]) is not None]

    def _append(self, now_unix_ms: int) -> None:
        """Append the chunk and what takes it out. Errors: those of ``Broker.append``."""
        groups, moved, later = self._grouped(now_unix_ms)
        writes: list[Write] = []
        for (topic_uuid, partition_number), (members, tails) in groups.items():
            topic = self._topics.by_uuid(UUID(bytes=topic_uuid))
            try:
                if topic is not None:  # else it is gone, and what waited for it goes too
                    partition = self._broker.partition(topic, partition_number)
                    writes += self._writes(partition, tails, now_unix_ms)
            except PolicyViolation:  # its queue is full; the others need not wait for it
                self.refused += 1
                later += [(*one, now_unix_ms + RETRY_MS) for one in members]
            else:
                moved += members
        if moved:
            writes += removal_writes(self._partition, [one[0] for one in moved], now_unix_ms)
            self._broker.append(writes, partial(self._done, moved))
            self._rounds_in_flight += 1
        self._chunk = []
        self._retry_at_ms = 0
        for number, place, due_unix_ms in later:
            self._state.back(number, place, due_unix_ms)

    def _grouped(
        self, now_unix_ms: int
    ) -> tuple[dict[tuple[bytes, int], _Group], Chunk, list[tuple[int, Place, int]]]:
        """Return the chunk by topic and partition; what is gone; what waits again."""
        groups: dict[tuple[bytes, int], _Group] = {}
        gone: Chunk = []
        later: list[tuple[int, Place, int]] = []
        get, parse, is_purged = self._bodies.get, parse_waiting, self._state.is_purged
        for one in self._chunk:
            number, place = one
            value = get(number)
            assert value is not None
            due_unix_ms, _, topic_uuid, partition, timestamp_unix_ms, tail = parse(value)
            if is_purged(number, place):
                gone.append(one)
            elif due_unix_ms > now_unix_ms:
                # A cancellation took it out, was refused, and put it back without its time.
                later.append((number, place, due_unix_ms))
            else:
                group = groups.get((topic_uuid, partition))
                if group is None:
                    group = groups[topic_uuid, partition] = ([], [])
                group[0].append(one)
                group[1].append((timestamp_unix_ms, tail))
        return groups, gone, later

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

    def _done(self, moved: Chunk, error: StorageUnavailable | None) -> None:
        self._rounds_in_flight -= 1
        if error is not None:  # the node stops; the next start finds them waiting
            return
        settled, drop = self._state.settled, self._bodies.drop
        for number, place in moved:
            settled(number, place)
            drop(number)
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
