"""Messages that wait for their time, of all protocols and topics.

``put`` keeps a message in the internal topic ``__delays``; when its time has come it is
appended to its topic and taken out of there in one append, so that it comes once, whatever
happens in between. Until then no reader sees it. It keeps its key, its headers and the
timestamp it had, and gets ``deliver-at`` (decimal unix ms) and, unless it has one, ``message-id``.

What is due is due by the wall clock, which is looked at every second at least: when somebody
sets it, messages come by the time it says then.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from features.delay.entries import encode_purged, encode_waiting
from features.delay.places import Place
from features.delay.state import DelayState
from features.delay.wheel import DUE_UNIX_MS_MAX
from gateway.broker import Broker
from gateway.clock import Clock
from gateway.coalescer import Coalescer, Part
from gateway.config import DelayConfig
from gateway.delay_batches import has_header, with_header
from gateway.delay_bodies import KEEP_MS, Bodies
from gateway.delay_drafts import Draft, Message
from gateway.delay_mover import DelayMover, entry_writes, removal_writes
from gateway.delay_stream import ENTRY_OVERHEAD_BYTES, ROOM_BYTES, DelayStream
from gateway.errors import GatewayError, Overloaded, PolicyViolation, StorageUnavailable
from gateway.message_ids import message_id
from gateway.model import DELIVER_AT, MESSAGE_ID
from gateway.partition import Partition
from gateway.record_runs import nullable
from gateway.records import NO_HEADERS, RecordRun
from gateway.storage import OnDone
from gateway.topics import Topic, TopicManager

_STAGED_PART: Final = 4  # of the octets of bodies, as much again is made ready to go
_COUNTER_BITS: Final = 40  # of a number, below the incarnation that gave it
_DELIVER_AT: Final = nullable(DELIVER_AT.encode())
_MESSAGE_ID: Final = nullable(MESSAGE_ID.encode())
_EVERYTHING: Final = (1 << 64) - 1


class DelayBounds(NamedTuple):
    """Octets that ``__delays`` may have beside twice the live ones; octets of bodies kept."""

    room_bytes: int = ROOM_BYTES
    bodies_bytes: int = 64 << 20


DEFAULT_BOUNDS: Final = DelayBounds()


class Delays:
    """Keeps messages until they are due. All on the loop."""

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
        self._drafted_bytes = 0
        self._last_number = 0
        self._coalescer = Coalescer(broker)
        self.stream = DelayStream(
            partition, broker, clock, self._state, room_bytes=bounds.room_bytes
        )
        self.bodies = Bodies(self._state, broker, partition, bytes_max=bounds.bodies_bytes)
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
        """Return the node's delays, loaded; what became due meanwhile is moved at once.

        Or from ``start`` on, when it does not start by itself. Errors: as ``DelayStream.load``.
        """
        partition = await DelayStream.partition_of(broker, topics)
        delays = cls(partition, broker, topics, clock, config, bounds=bounds)
        await delays._load()
        if starts:
            delays.start()
        return delays

    async def _load(self) -> None:
        highest = await self.stream.load(self._topics)
        self._last_number = max(highest, self._broker.storage.incarnation << _COUNTER_BITS)
        self._topics.on_deleted.append(self.on_topic_deleted)

    def start(self) -> None:
        """Move what is due. Whoever follows topics as they are written is there by now."""
        self.stream.start()
        self.mover.start()

    def close(self) -> None:
        """Take and move nothing more; hand over what waits for the tick's end."""
        self.mover.close()
        self.stream.close()
        self.bodies.close()
        self._coalescer.seal()

    # --- what waits

    @property
    def total(self) -> int:
        """How many messages wait, of all topics."""
        return self._state.count

    def count(self, topic: Topic) -> int:
        """Return how many messages of a topic wait."""
        return self._state.count_of(topic.uuid.bytes)

    def put(
        self,
        topic: Topic,
        number: int,
        run: RecordRun,
        deliver_at_unix_ms: int,
        on_done: OnDone,
        *,
        beside: Sequence[Part] = (),
    ) -> Sequence[int]:
        """Keep the records of a run for a partition until ``deliver_at_unix_ms``.

        Returns the numbers of the messages, by which they can be cancelled. What is ``beside``
        is part of the same append. ``on_done`` runs once, when they are durable, never before
        this returns; its error is retriable (a full disk). A time that has passed is now.
        Errors, with nothing changed: those of ``draft_run``, and what ``Coalescer.add_many``
        says of what is beside.
        """
        draft = self.draft_run(self._broker.partition(topic, number), run, deliver_at_unix_ms)
        assert draft.part is not None

        def done(error: StorageUnavailable | None) -> None:
            draft.done(error)
            on_done(error)

        try:
            self._coalescer.add_many([draft.part, *beside], done)
        except GatewayError as error:
            draft.done(error)
            raise
        return draft.numbers

    def draft_run(self, partition: Partition, run: RecordRun, deliver_at_unix_ms: int) -> Draft:
        """Return the records of a run as a part of what the caller gives to a coalescer.

        They count against the bounds until ``Draft.done``. Errors, with nothing changed:
        ``PolicyViolation`` for a time that is further ahead than the topic's ``delay.max.ms``,
        ``Overloaded`` above ``delay.messages_max`` and ``delay.drafted_bytes_max``, and what
        ``Coalescer.check`` says.
        """
        self._coalescer.check(partition, run)
        due_unix_ms = max(deliver_at_unix_ms, 0)
        self._check(partition.topic, due_unix_ms, len(run.values), run.size_bytes)
        key = nullable(run.key)
        headers = _with_time(run.headers, due_unix_ms)
        has_id = has_header(headers, _MESSAGE_ID)
        common = (partition, due_unix_ms, run.timestamp_unix_ms)
        entries = [
            self._entry(*common, key + nullable(value), headers, has_id) for value in run.values
        ]
        draft = Draft(self._on_kept, partition, [due_unix_ms] * len(entries), entries)
        record = RecordRun(None, draft.values, NO_HEADERS, self._clock.unix_ms())
        draft.part = (self.stream.partition, record)
        self._expect(partition.topic, draft)
        return draft

    def draft(self, partition: Partition, messages: Sequence[Message]) -> Draft:
        """Return messages as writes, which the caller appends with others.

        They count against the bounds until ``Draft.done``. Errors: as ``draft_run``, but for the
        size of messages, which the caller has checked.
        """
        due_unix_ms = [message.due_unix_ms for message in messages]
        size_bytes = sum(len(one.key_value) + len(one.headers) for one in messages)
        self._check(partition.topic, max(due_unix_ms), len(messages), size_bytes)
        entries = [self._entry(partition, *message) for message in messages]
        draft = Draft(self._on_kept, partition, due_unix_ms, entries)
        draft.writes = entry_writes(self.stream.partition, draft.values, self._clock.unix_ms())
        self._expect(partition.topic, draft)
        return draft

    def _check(self, topic: Topic, due_unix_ms: int, count: int, size_bytes: int) -> None:
        """Raise what refuses ``count`` more messages, of which the last is due then."""
        drafted_bytes = self._drafted_bytes
        if drafted_bytes and drafted_bytes + size_bytes > self._config.drafted_bytes_max:
            msg = f"{drafted_bytes} bytes of delayed messages are on their way into the log"
            raise Overloaded(msg)
        waiting = self._state.count + self._pending_count
        if waiting + count > self._config.messages_max:
            msg = f"{waiting} messages wait, at most {self._config.messages_max} may"
            raise Overloaded(msg)
        ahead_ms = due_unix_ms - self._clock.unix_ms()
        ahead_ms_max = topic.settings.delay_ms_max
        if ahead_ms > ahead_ms_max or due_unix_ms > DUE_UNIX_MS_MAX:
            msg = f"due in {ahead_ms} ms, the topic's delay.max.ms is {ahead_ms_max}"
            raise PolicyViolation(msg)

    def _entry(  # noqa: PLR0917 - the fields of a message; per message
        self,
        partition: Partition,
        due_unix_ms: int,
        timestamp_unix_ms: int,
        key_value: bytes,
        headers: bytes,
        has_id: bool | None = None,  # noqa: FBT001 - None: not known
    ) -> tuple[int, bytes]:
        """Return the number and the entry of one message."""
        self._last_number = number = self._last_number + 1
        topic_uuid = partition.topic.uuid
        if has_id is None:
            headers = _with_time(headers, due_unix_ms)
            has_id = has_header(headers, _MESSAGE_ID)
        if not has_id:
            # No offset of a partition is as high as a number.
            own_id = message_id(topic_uuid, partition.number, number)
            headers = with_header(headers, _MESSAGE_ID + nullable(own_id.encode()))
        entry = encode_waiting(
            due_unix_ms,
            number,
            topic_uuid.bytes,
            partition.number,
            timestamp_unix_ms,
            key_value + headers,
        )
        return number, entry

    def _expect(self, topic: Topic, draft: Draft) -> None:
        self._pending_count += len(draft.numbers)
        self._drafted_bytes += draft.size_bytes
        self._state.expect(topic.uuid.bytes)

    def _on_kept(  # noqa: PLR0917 - columns of a run
        self,
        topic_uuid: bytes,
        due_unix_ms: Sequence[int],
        numbers: Sequence[int],
        values: Sequence[bytes],
        base_offset: int,
        error: GatewayError | None,
    ) -> None:
        """What was put lies in the stream from ``base_offset`` on, or does not; see ``Draft``."""
        self._pending_count -= len(numbers)
        self._drafted_bytes -= sum(map(len, values))
        if error is None:
            add = self._state.add
            is_present = True
            for at, number in enumerate(numbers):
                size_bytes = len(values[at]) + ENTRY_OVERHEAD_BYTES
                is_present = add(
                    due_unix_ms[at], number, topic_uuid, base_offset + at, size_bytes
                )
            earliest_unix_ms = min(due_unix_ms)
            if not is_present:  # none of them is: their numbers lie side by side
                self.mover.take_out(numbers)
            elif earliest_unix_ms < self._clock.unix_ms() + KEEP_MS:
                self.bodies.keep(numbers, values)
            self.mover.wake_at(earliest_unix_ms)
        self._state.expected(topic_uuid)

    # --- what does not wait any more

    def cancel(self, numbers: Sequence[int], on_done: OnDone) -> list[bool]:
        """Take out messages that wait; say of each whether it did.

        Those do not come any more once ``on_done`` has run without an error. A full disk does
        not hinder it. Errors, with nothing changed: ``StorageUnavailable``.
        """
        found = [(number, self._find(number)) for number in dict.fromkeys(numbers)]
        waiting = [(number, place) for number, place in found if place is not None]
        if not waiting:
            self._loop.call_soon(on_done, None)
            return [False] * len(numbers)
        own = [number for number, _ in waiting]
        writes = removal_writes(self.stream.partition, own, self._clock.unix_ms())
        self._broker.append(writes, partial(self._cancelled, waiting, on_done), reserved=True)
        for number in own:
            if self._state.remove(number) is None:
                self.mover.staged.withdraw(number)
        present = set(own)
        return [number in present for number in numbers]

    def _find(self, number: int) -> Place | None:
        """Return where a message lies that waits, None when it does not (any more)."""
        place = self._state.find(number)
        if place is None:
            place = self.mover.staged.place_of(number)
            if place is not None and self._state.is_purged(number, place):
                return None
        return place

    def _cancelled(
        self,
        waiting: Sequence[tuple[int, Place]],
        on_done: OnDone,
        error: StorageUnavailable | None,
    ) -> None:
        for number, place in waiting:
            self.bodies.drop(number)
            if error is not None:  # its own time stands in its entry
                self._state.back(number, place, 0)
        if error is None:
            self._state.settled(waiting)
        on_done(error)

    def purge(self, topic: Topic, on_done: OnDone) -> None:
        """Take out all messages of a topic that wait.

        They do not come any more once ``on_done`` has run without an error. Errors, with
        nothing changed: ``StorageUnavailable``.
        """
        uuid = topic.uuid.bytes
        below = self._last_number + 1
        # What was put before this must lie before it.
        self._coalescer.seal()
        entry = encode_purged(uuid, below)
        writes = entry_writes(self.stream.partition, [entry], self._clock.unix_ms())
        self._broker.append(writes, on_done, reserved=True)
        self._state.purge(uuid, below)

    def on_topic_deleted(self, topic: Topic) -> None:
        """A topic is gone, with all that waits for it; a hook of the ``TopicManager``.

        Nothing is written: a start drops what waits for a topic that it does not know.
        """
        self._state.purge(topic.uuid.bytes, _EVERYTHING)


def _with_time(headers: bytes, due_unix_ms: int) -> bytes:
    """Return headers that say when the message is due, as it came or as it is."""
    if has_header(headers, _DELIVER_AT):
        return headers
    return with_header(headers, _DELIVER_AT + nullable(b"%d" % due_unix_ms))
