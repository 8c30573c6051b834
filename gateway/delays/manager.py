"""Delayed messages of the partitions of one shard.

``Delays`` stores what is not due in the shard's partition of the internal topic ``__delays``
instead of its own; when it is due, one append adds it to its topic and removes it there, so that it
is delivered once, whatever happens in between. Until then no reader sees it. It keeps its key,
headers and timestamp, and gets ``deliver-at`` (decimal unix ms) and, unless it has one,
``message-id``. ``gateway.delays.sharded`` has the delays of all shards.

Due times are by the wall clock, which is read at least every second: after it is set, messages
are delivered by its new time.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from features.delay.entries import count_of, encode_purged, parse_waiting, renumbered
from features.delay.message_locations import MessageLocation
from features.delay.runs import DelayedRun, start_of_run
from features.delay.state import DelayState
from gateway.broker import Broker
from gateway.clock import Clock
from gateway.config.queues import DelayConfig
from gateway.delays.due_batch import entry_writes, removal_writes
from gateway.delays.due_message_cache import KEEP_MS, DueMessageCache
from gateway.delays.mover import DelayMover
from gateway.delays.node_counts import NodeCounts
from gateway.delays.pending_messages import (
    PendingEntry,
    PendingMessage,
    PendingMessages,
    entries_of,
)
from gateway.delays.stream import (
    ENTRY_OVERHEAD_BYTES,
    NUMBER_MAX,
    ROOM_BYTES,
    DelayStream,
    HomeOf,
)
from gateway.errors import GatewayError, StorageUnavailable
from gateway.partition import Partition, Write
from gateway.records.codec import NO_HEADERS
from gateway.records.keyed import KeyedRecords
from gateway.records.record_run import RecordRun
from gateway.records.runs import nullable
from gateway.storage import OnDone
from gateway.topics.manager import Topic, TopicManager

_STAGED_PART: Final = 4  # of the bytes of bodies, as much again is made ready to go


DelayedMessage = tuple[
    int, MessageLocation, DelayedRun | None
]  # number, location of its entry, its run


class DelayBounds(NamedTuple):
    """Bounds in bytes: of ``__delays`` beyond twice its live entries, and of cached entries."""

    room_bytes: int = ROOM_BYTES
    bodies_bytes: int = 64 << 20


DEFAULT_BOUNDS: Final = DelayBounds()


class Delays:
    """Store of messages of one shard until they are due. Loop only."""

    def __init__(  # noqa: PLR0913 - its surroundings, made once
        self,
        partition: Partition,
        broker: Broker,
        topics: TopicManager,
        clock: Clock,
        config: DelayConfig,
        *,
        counts: NodeCounts,
        bounds: DelayBounds = DEFAULT_BOUNDS,
    ) -> None:
        """``counts`` are shared with the delays of the node's other shards."""
        self._broker = broker
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self.state = DelayState(clock.unix_ms())
        self._counts = counts
        self.stream = DelayStream(
            partition, broker, clock, self.state, room_bytes=bounds.room_bytes
        )
        self.bodies = DueMessageCache(
            self.state, broker, partition, bytes_max=bounds.bodies_bytes
        )
        self.mover = DelayMover(
            self.state,
            self.bodies,
            partition,
            broker,
            topics,
            clock,
            due_per_tick=config.due_per_tick,
            staged_bytes_max=bounds.bodies_bytes // _STAGED_PART,
        )

    async def load(self, home_of: HomeOf) -> None:
        """Read the stream. Errors: as ``DelayStream.load``."""
        highest = await self.stream.load(home_of)
        self._counts.last_number = max(highest, self._counts.last_number)
        self.forget_moved()

    def start(self) -> None:
        """Start to move due messages, after all followers of topics are registered."""
        self.stream.start()
        self.mover.start()

    def stop(self) -> None:
        """Stop to move messages, and the upkeep of the stream."""
        self.mover.close()
        self.stream.close()

    def close(self) -> None:
        """Drop the state."""
        self.stop()
        self.bodies.close()

    # --- delayed messages

    @property
    def total(self) -> int:
        """Number of delayed messages of the shard."""
        return self.state.count

    def count(self, topic: Topic) -> int:
        """Return the number of delayed messages of a topic."""
        return self.state.count_of(topic.uuid.bytes)

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
        self._counts.check(partition.topic, due_unix_ms, len(run.values), run.size_bytes)
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
        return self._as_part(pending)

    def _as_part(self, pending: PendingMessages) -> PendingMessages:
        record = RecordRun(None, pending.values, NO_HEADERS, self._clock.unix_ms())
        pending.part = (self.stream.partition, record)
        return pending

    def reserve(self, topic: Topic, messages: Sequence[PendingMessage]) -> None:
        """Count messages that are about to be appended, for this turn of the loop.

        Errors: as ``prepare_run``.
        """
        due_unix_ms = max([message[0] for message in messages])
        size_bytes = _size_bytes(messages)
        self._counts.check(topic, due_unix_ms, len(messages), size_bytes)
        self._counts.reserve(len(messages), size_bytes)

    def prepare(
        self, partition: Partition, messages: Sequence[PendingMessage]
    ) -> PendingMessages:
        """Return messages that were reserved as writes, which the caller appends."""
        self._counts.unreserve(len(messages), _size_bytes(messages))
        pending = self._prepare(partition, messages)
        pending.writes = entry_writes(
            self.stream.partition, pending.values, self._clock.unix_ms()
        )
        return pending

    def _prepare(
        self, partition: Partition, messages: Sequence[PendingMessage]
    ) -> PendingMessages:
        """Number messages and count them as expected."""
        rows = list(entries_of(partition, messages, self._counts.last_number))
        _, number, run_count, _ = rows[-1]
        self._counts.last_number = number + max(run_count - 1, 0)
        return self._begin(partition.topic.uuid.bytes, rows)

    def _begin(self, topic_uuid: bytes, rows: Sequence[PendingEntry]) -> PendingMessages:
        pending = PendingMessages(self._on_kept, topic_uuid, rows)
        self._counts.begin(pending.count, pending.size_bytes)
        self.state.expect(topic_uuid)
        return pending

    def _on_kept(
        self, pending: PendingMessages, base_offset: int, error: GatewayError | None
    ) -> None:
        """Take over messages stored from ``base_offset`` on, or drop them after an error."""
        rows, topic_uuid = pending.rows, pending.topic_uuid
        self._counts.end(pending.count, pending.size_bytes)
        if error is None:
            add = self.state.add
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
        self.state.expected(topic_uuid)

    # --- messages that come from other shards, and go there

    def adopt(self, values: Sequence[bytes]) -> list[PendingMessages]:
        """Return entries of another shard, with numbers of this one, as parts of an append.

        Their bounds were checked when they were stored.
        """
        by_topic: defaultdict[bytes, list[PendingEntry]] = defaultdict(list)
        for value in values:
            due_unix_ms, _, topic_uuid, *_ = parse_waiting(value)
            run_count = count_of(value)
            number = start_of_run(self._counts.last_number, run_count or 1)
            self._counts.last_number = number + max(run_count - 1, 0)
            row = due_unix_ms, number, run_count, renumbered(value, number)
            by_topic[topic_uuid].append(row)
        return [self._as_part(self._begin(uuid, rows)) for uuid, rows in by_topic.items()]

    def forget_moved(self) -> None:
        """Forget which messages are in another shard than their own, of those that are gone."""
        stream, find, staged = self.stream, self.state.find, self.mover.staged
        stream.misplaced = {
            number: home
            for number, home in stream.misplaced.items()
            if find(number) is not None or staged.location_of(number) is not None
        }

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
            elif self.state.remove(number) is None:
                self.mover.staged.withdraw(number)
        present = set(own)
        return [number in present for number in numbers]

    def _find(self, number: int) -> DelayedMessage | None:
        """Return a delayed message, its location and run; None when it is not delayed."""
        run = self.state.runs.of(number)
        row = number if run is None else run.first
        if run is not None and number in run.gone:
            return None
        location = self.state.find(row)
        if location is None:
            location = self.mover.staged.location_of(row)
            if location is None or self.state.is_purged(row, location):
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
                self.state.back(number, location, 0)
        if error is None:
            self.state.settled(alone)
        for number, location, run in waiting:
            # A run that was purged meanwhile went as a whole.
            if run is not None and self.state.runs.get(run.first) is run:
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
            self.state.settle_part(run, 1, location)
            if not run.left:
                self.mover.end_run(run)
            return
        run.gone -= {number}
        if run.location is not None:  # the others have gone without it
            self.state.back(run.first, run.location, 0)
            run.location = None

    def purge_writes(self, topic: Topic) -> list[Write]:
        """Return the writes that cancel all delayed messages of a topic; ``purged`` follows."""
        entry = encode_purged(topic.uuid.bytes, self._counts.last_number + 1)
        return entry_writes(self.stream.partition, [entry], self._clock.unix_ms())

    def purged(self, topic: Topic) -> None:
        """Forget the delayed messages of a topic, in the turn of ``purge_writes``."""
        self.state.purge(topic.uuid.bytes, self._counts.last_number + 1)

    def on_topic_deleted(self, topic: Topic) -> None:
        """Forget the delayed messages of a deleted topic; a hook of the ``TopicManager``.

        Nothing is written: a start drops delayed messages of unknown topics.
        """
        self.state.purge(topic.uuid.bytes, NUMBER_MAX)


def _size_bytes(messages: Sequence[PendingMessage]) -> int:
    return sum([len(one[2]) + len(one[3]) for one in messages])
