"""Delayed messages of all protocols and topics.

As a step of the write path, ``Delays`` stores what is not due in the internal topic ``__delays``
instead of its own; when it is due, one append adds it to its topic and removes it there, so that it
is delivered once, whatever happens in between. Until then no reader sees it. It keeps its key,
headers and timestamp, and gets ``deliver-at`` (decimal unix ms) and, unless it has one,
``message-id``.

Due times are by the wall clock, which is read at least every second: after it is set, messages
are delivered by its new time.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from features.delay.entries import encode_purged
from features.delay.message_locations import MessageLocation
from features.delay.runs import DelayedRun
from features.delay.state import DelayState
from features.delay.wheel import DUE_UNIX_MS_MAX
from gateway.broker import Broker
from gateway.clock import Clock
from gateway.config.queues import DelayConfig
from gateway.delays.due_batch import entry_writes, removal_writes
from gateway.delays.due_message_cache import KEEP_MS, DueMessageCache
from gateway.delays.mover import DelayMover
from gateway.delays.pending_messages import PendingMessage, PendingMessages, entries_of
from gateway.delays.split import due_time_in, split
from gateway.delays.stream import ENTRY_OVERHEAD_BYTES, ROOM_BYTES, DelayStream
from gateway.errors import (
    GatewayError,
    Overloaded,
    PolicyViolation,
    StorageUnavailable,
)
from gateway.partition import Partition, Write
from gateway.records.codec import NO_HEADERS
from gateway.records.keyed import KeyedRecords
from gateway.records.record_run import RecordRun, Run
from gateway.records.runs import nullable
from gateway.storage import OnDone
from gateway.topics.manager import Topic, TopicManager
from gateway.write_steps import BatchSplit

_STAGED_PART: Final = 4  # of the bytes of bodies, as much again is made ready to go
_COUNTER_BITS: Final = 40  # of a number, below the incarnation that gave it
_EVERYTHING: Final = (1 << 64) - 1


DelayedMessage = tuple[
    int, MessageLocation, DelayedRun | None
]  # number, location of its entry, its run


class DelayBounds(NamedTuple):
    """Bounds in bytes: of ``__delays`` beyond twice its live entries, and of cached entries."""

    room_bytes: int = ROOM_BYTES
    bodies_bytes: int = 64 << 20


DEFAULT_BOUNDS: Final = DelayBounds()


class Delays:
    """Store of messages until they are due. Loop only."""

    def __init__(
        self,
        partition: Partition,
        broker: Broker,
        topics: TopicManager,
        clock: Clock,
        config: DelayConfig,
        *,
        bounds: DelayBounds = DEFAULT_BOUNDS,
    ) -> None:
        self._broker = broker
        self._topics = topics
        self._clock = clock
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._state = DelayState(clock.unix_ms())
        self._pending_count = 0
        self._pending_bytes = 0
        self._reserved_count = 0  # by batches that are checked, and not appended yet
        self._reserved_bytes = 0
        self._last_number = 0
        self.stream = DelayStream(
            partition, broker, clock, self._state, room_bytes=bounds.room_bytes
        )
        self.bodies = DueMessageCache(
            self._state, broker, partition, bytes_max=bounds.bodies_bytes
        )
        self.mover = DelayMover(
            self._state,
            self.bodies,
            partition,
            broker,
            topics,
            clock,
            due_per_tick=config.due_per_tick,
            staged_bytes_max=bounds.bodies_bytes // _STAGED_PART,
        )

    @classmethod
    async def open(
        cls,
        broker: Broker,
        topics: TopicManager,
        clock: Clock,
        config: DelayConfig,
        *,
        bounds: DelayBounds = DEFAULT_BOUNDS,
        starts: bool = True,
    ) -> "Delays":
        """Return the node's delays, loaded; messages that became due meanwhile are moved at once.

        If it does not start by itself, from ``start`` on. Errors: as ``DelayStream.load``.
        """
        partition = await DelayStream.partition_of(broker, topics)
        delays = cls(partition, broker, topics, clock, config, bounds=bounds)
        await delays._load()
        if starts:
            delays.start()
        return delays

    async def _load(self) -> None:
        highest = await self.stream.load(self._topics)
        self._last_number = max(highest, self._broker.incarnation << _COUNTER_BITS)
        self._topics.on_deleted.append(self.on_topic_deleted)
        self._broker.write_steps.append(self)

    def start(self) -> None:
        """Start to move due messages, after all followers of topics are registered."""
        self.stream.start()
        self.mover.start()

    def close(self) -> None:
        """Stop to move messages."""
        self.mover.close()
        self.stream.close()
        self.bodies.close()

    # --- delayed messages

    @property
    def total(self) -> int:
        """Number of delayed messages of all topics."""
        return self._state.count

    def count(self, topic: Topic) -> int:
        """Return the number of delayed messages of a topic."""
        return self._state.count_of(topic.uuid.bytes)

    # --- the step of the write path: see ``gateway.write_steps.WriteStep``

    def take_batch(self, write: Write) -> BatchSplit | None:
        """Return the records that are due, and those to be delayed; None when all are due.

        Those to be delayed count against the bounds from here on, until the turn of the loop ends.
        Errors: those of ``split``, and as ``prepare_run``.
        """
        found = split(write, self._clock.unix_ms())
        if found is None:
            return None
        due, messages = found
        self._reserve(write.partition.topic, messages)
        return BatchSplit(due, partial(self.prepare, write.partition, messages))

    def take_run(self, partition: Partition, run: Run) -> PendingMessages | None:
        """Return a run to be delayed, as a part of its append; None for a run that is due.

        A run has its time, or its headers have one, in a topic with ``delay.enable``. Errors:
        ``InvalidRecord`` for a time that is none, and as ``prepare_run``.
        """
        if not isinstance(run, RecordRun | KeyedRecords):
            return None  # its records have headers of their own, and none of a reserved name
        due_unix_ms = run.deliver_at_unix_ms
        if due_unix_ms is None:
            due_unix_ms = due_time_in(run.headers)
            if due_unix_ms <= self._clock.unix_ms():
                return None
        return self.prepare_run(partition, run, due_unix_ms)

    def prepare_run(
        self, partition: Partition, run: RecordRun | KeyedRecords, deliver_at_unix_ms: int
    ) -> PendingMessages:
        """Return the records of a run as a part of what the caller gives to a coalescer.

        The caller has checked the run. They count against the bounds until
        ``PendingMessages.done``. Errors, with nothing changed: ``PolicyViolation`` for a time that
        is further ahead than the topic's ``delay.max.ms``, ``Overloaded`` above
        ``delay.messages_max`` and ``delay.drafted_bytes_max``.
        """
        due_unix_ms = max(deliver_at_unix_ms, 0)
        self._check(partition.topic, due_unix_ms, len(run.values), run.size_bytes)
        keys = (
            [nullable(run.key)] * len(run.values)
            if isinstance(run, RecordRun)
            else map(nullable, run.keys)
        )
        timestamp_unix_ms, headers = run.timestamp_unix_ms, run.headers
        pending = self._prepare(
            partition,
            [
                PendingMessage(due_unix_ms, timestamp_unix_ms, key + nullable(value), headers)
                for key, value in zip(keys, run.values, strict=True)
            ],
        )
        record = RecordRun(None, pending.values, NO_HEADERS, self._clock.unix_ms())
        pending.part = (self.stream.partition, record)
        return pending

    def _reserve(self, topic: Topic, messages: Sequence[PendingMessage]) -> None:
        """Count messages that are about to be appended, for this turn of the loop.

        What is prepared and then not appended, as another part of it is refused, is given back.
        """
        due_unix_ms = max([message[0] for message in messages])
        size_bytes = _size_bytes(messages)
        self._check(topic, due_unix_ms, len(messages), size_bytes)
        if not self._reserved_count:
            self._loop.call_soon(self._release)
        self._reserved_count += len(messages)
        self._reserved_bytes += size_bytes

    def _release(self) -> None:
        self._reserved_count = self._reserved_bytes = 0

    def prepare(
        self, partition: Partition, messages: Sequence[PendingMessage]
    ) -> PendingMessages:
        """Return messages as writes, which the caller appends; see ``take_batch``."""
        self._reserved_count = max(self._reserved_count - len(messages), 0)
        self._reserved_bytes = max(self._reserved_bytes - _size_bytes(messages), 0)
        pending = self._prepare(partition, messages)
        pending.writes = entry_writes(
            self.stream.partition, pending.values, self._clock.unix_ms()
        )
        return pending

    def _prepare(
        self, partition: Partition, messages: Sequence[PendingMessage]
    ) -> PendingMessages:
        """Number messages and count them as expected."""
        rows = list(entries_of(partition, messages, self._last_number))
        _, number, run_count, _ = rows[-1]
        self._last_number = number + max(run_count - 1, 0)
        pending = PendingMessages(self._on_kept, partition, rows)
        self._pending_count += pending.count
        self._pending_bytes += pending.size_bytes
        self._state.expect(pending.topic_uuid)
        return pending

    def _check(self, topic: Topic, due_unix_ms: int, count: int, size_bytes: int) -> None:
        """Check the bounds for ``count`` more messages, of which the last is due then."""
        pending_bytes = self._pending_bytes + self._reserved_bytes
        if pending_bytes and pending_bytes + size_bytes > self._config.drafted_bytes_max:
            msg = f"{pending_bytes} bytes of delayed messages are on their way into the log"
            raise Overloaded(msg)
        waiting = self._state.count + self._pending_count + self._reserved_count
        if waiting + count > self._config.messages_max:
            msg = f"{waiting} messages wait, at most {self._config.messages_max} may"
            raise Overloaded(msg)
        ahead_ms = due_unix_ms - self._clock.unix_ms()
        ahead_ms_max = topic.settings.delay_ms_max
        if ahead_ms > ahead_ms_max or due_unix_ms > DUE_UNIX_MS_MAX:
            msg = f"due in {ahead_ms} ms, the topic's delay.max.ms is {ahead_ms_max}"
            raise PolicyViolation(msg)

    def _on_kept(
        self, pending: PendingMessages, base_offset: int, error: GatewayError | None
    ) -> None:
        """Take over messages stored from ``base_offset`` on, or drop them after an error."""
        rows, topic_uuid = pending.rows, pending.topic_uuid
        self._pending_count -= pending.count
        self._pending_bytes -= pending.size_bytes
        if error is None:
            add = self._state.add
            is_present = True
            for offset, (due_unix_ms, number, run_count, value) in enumerate(rows, base_offset):
                size_bytes = len(value) + ENTRY_OVERHEAD_BYTES
                is_present = add(due_unix_ms, number, topic_uuid, offset, size_bytes, run_count)
            earliest_unix_ms = min(rows)[0]
            if not is_present:  # none of them is: a purge is of all numbers below one
                self.mover.take_out(rows)
            elif earliest_unix_ms < self._clock.unix_ms() + KEEP_MS:
                self.bodies.keep([row[1] for row in rows], [row[3] for row in rows])
            self.mover.wake_at(earliest_unix_ms)
        self._state.expected(topic_uuid)

    # --- cancelling and purging

    def cancel(self, numbers: Sequence[int], on_done: OnDone) -> list[bool]:
        """Cancel delayed messages; return for each whether it was delayed.

        They are not delivered once ``on_done`` has run without an error. Works on a full disk
        too. Errors, with nothing changed: ``StorageUnavailable``.
        """
        found = [self._find(number) for number in dict.fromkeys(numbers)]
        waiting = [one for one in found if one is not None]
        if not waiting:
            self._loop.call_soon(on_done, None)
            return [False] * len(numbers)
        own = [number for number, _, _ in waiting]
        writes = removal_writes(self.stream.partition, own, self._clock.unix_ms())
        self._broker.append(writes, partial(self._cancelled, waiting, on_done), reserved=True)
        for number, _, run in waiting:
            if run is not None:
                run.gone |= {number}  # the others of it wait on
            elif self._state.remove(number) is None:
                self.mover.staged.withdraw(number)
        present = set(own)
        return [number in present for number in numbers]

    def _find(self, number: int) -> DelayedMessage | None:
        """Return a delayed message, its location and run; None when it is not delayed."""
        run = self._state.runs.of(number)
        row = number if run is None else run.first
        if run is not None and number in run.gone:
            return None
        location = self._state.find(row)
        if location is None:
            location = self.mover.staged.location_of(row)
            if location is None or self._state.is_purged(row, location):
                return None
        return number, location, run

    def _cancelled(
        self,
        waiting: Sequence[DelayedMessage],
        on_done: OnDone,
        error: StorageUnavailable | None,
    ) -> None:
        alone = [(number, location) for number, location, run in waiting if run is None]
        for number, location in alone:
            self.bodies.drop(number)
            if error is not None:  # its own time stands in its entry
                self._state.back(number, location, 0)
        if error is None:
            self._state.settled(alone)
        for number, location, run in waiting:
            # A run that was purged meanwhile went as a whole.
            if run is not None and self._state.runs.get(run.first) is run:
                self._cancelled_of_run(run, number, location, error)
        on_done(error)

    def _cancelled_of_run(
        self,
        run: DelayedRun,
        number: int,
        location: MessageLocation,
        error: StorageUnavailable | None,
    ) -> None:
        if error is None:
            self._state.settle_part(run, 1, location)
            if not run.left:
                self.mover.end_run(run)
            return
        run.gone -= {number}
        if run.location is not None:  # the others have gone without it
            self._state.back(run.first, run.location, 0)
            run.location = None

    def purge(self, topic: Topic, on_done: OnDone) -> None:
        """Cancel all delayed messages of a topic.

        They are not delivered once ``on_done`` has run without an error. Errors, with nothing
        changed: ``StorageUnavailable``.
        """
        uuid = topic.uuid.bytes
        below = self._last_number + 1
        entry = encode_purged(uuid, below)
        writes = entry_writes(self.stream.partition, [entry], self._clock.unix_ms())
        self._broker.append(writes, on_done, reserved=True)
        self._state.purge(uuid, below)

    def on_topic_deleted(self, topic: Topic) -> None:
        """Forget the delayed messages of a deleted topic; a hook of the ``TopicManager``.

        Nothing is written: a start drops delayed messages of unknown topics.
        """
        self._state.purge(topic.uuid.bytes, _EVERYTHING)


def _size_bytes(messages: Sequence[PendingMessage]) -> int:
    return sum([len(one[2]) + len(one[3]) for one in messages])
