"""Redrive: moves dead letters back to their source, or elsewhere, in the background.

A redrive moves the ready messages of a dead-letter queue, at most as many as there were at its
start, so that it ends even when moved messages come back. Each message's move and its end in the
dead-letter queue are one append, or one decision across logs (``gateway.transfer``). A redrive is
in memory: a restart ends it, and the rest of the messages stays in the queue.

A moved message is a new one, with the current time and no attempts. It loses the headers of a
dead letter, except for the number of moves.

The source of a message is taken from its headers, which any writer to the dead-letter topic can
set: so it never goes to an internal topic, nor to one outside ``origins``.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final, Literal, Protocol
from uuid import uuid4

from features.dead_letter import origin
from features.queue.delivery import each_taken
from features.queue.model import Effects, Result, Taken
from features.queue.retrying import DeliveryEnd
from gateway.coalescer import ROUND_BYTES_MAX
from gateway.errors import (
    GatewayError,
    InvalidRequest,
    PolicyViolation,
    StorageUnavailable,
    TopicNotFound,
)
from gateway.futures import set_result_if_pending
from gateway.model import (
    Record,
    TopicName,
    is_dead_letter_reference,
    strip_dead_letter_headers,
)
from gateway.queues.dead_letters import append_and_end, write_down
from gateway.queues.lanes import QueueContext, QueueLane
from gateway.queues.message_cache import Unreadable
from gateway.queues.model import LEASE_MS_MAX
from gateway.queues.queue import Queue
from gateway.records.codec import encode_headers
from gateway.records.record_run import RecordRun
from gateway.slots import partition_for_key
from gateway.topics.manager import Topic, TopicManager
from gateway.transfer.payload import Addressed

KEPT_MAX: Final = 10  # of one queue, the newest
MOVED_PER_APPEND_MAX: Final = 128
LEASE_MS: Final = LEASE_MS_MAX  # what is not moved stays with a redrive until that ends
LOOK_AGAIN_S: Final = 0.05  # for messages that are there and cannot be taken just now
LOOKS_MAX: Final = 100

Status = Literal["RUNNING", "COMPLETED", "CANCELLING", "CANCELLED", "FAILED"]


class Redrive:
    """One redrive, running or ended. ``destination`` None: each to where it came from.

    ``origins``: the only topics that count as such; None for all but internal ones.
    """

    def __init__(
        self,
        destination: TopicName | None,
        rate_per_s: int | None,
        *,
        total_at_start: int,
        started_unix_ms: int,
        origins: frozenset[TopicName] | None = None,
    ) -> None:
        self.handle = uuid4().hex
        self.destination = destination
        self.rate_per_s = rate_per_s
        self.origins = origins
        self.total_at_start = total_at_start
        self.started_unix_ms = started_unix_ms
        self.status: Status = "RUNNING"
        self.moved = 0
        self.skipped = 0  # there is no place that they came from, or none any more
        self.failure = ""
        self.is_cancelled = asyncio.Event()

    @property
    def is_active(self) -> bool:
        """Whether it has not ended."""
        return self.status in {"RUNNING", "CANCELLING"}


class QueueDirectory(Protocol):
    """Directory of the queues."""

    def find(self, name: TopicName) -> Queue | None:
        """Return the queue of a topic."""
        ...

    def new_holder(self) -> int:
        """Return an unused holder id."""
        ...


class Redrives:
    """All redrives of a node. Loop only."""

    def __init__(
        self, context: QueueContext, topics: TopicManager, queues: QueueDirectory
    ) -> None:
        self._context = context
        self._topics = topics
        self._queues = queues
        self._of: dict[Queue, deque[Redrive]] = {}

    def start(
        self,
        source: Queue,
        *,
        destination: TopicName | None,
        rate_per_s: int | None,
        origins: frozenset[TopicName] | None = None,
    ) -> Redrive:
        """Begin to move what is in ``source``, at most so many messages in a second.

        ``origins``: see ``Redrive``; what came from elsewhere stays. Errors:
        ``PolicyViolation`` when one of that queue runs already.
        """
        known = self._of.setdefault(source, deque(maxlen=KEPT_MAX))
        if known and known[0].is_active:
            raise PolicyViolation(f"a redrive of {source.name.name} runs already")
        counts = source.counts()
        redrive = Redrive(
            destination,
            rate_per_s,
            total_at_start=counts.ready + counts.delayed,
            started_unix_ms=self._context.clock.unix_ms(),
            origins=origins,
        )
        known.appendleft(redrive)
        self._context.start(self._run(source, redrive))
        return redrive

    def cancel(self, handle: str) -> Redrive:
        """End a redrive; what it has moved stays moved.

        Errors: ``InvalidRequest`` when there is no such one, ``PolicyViolation`` when it has
        ended.
        """
        for known in self._of.values():
            for redrive in known:
                if redrive.handle == handle:
                    if not redrive.is_active:
                        raise PolicyViolation(f"redrive {handle} has ended")
                    redrive.status = "CANCELLING"
                    redrive.is_cancelled.set()
                    return redrive
        raise InvalidRequest(f"no redrive {handle[:80]}")

    def of(self, queue: Queue) -> list[Redrive]:
        """Return a queue's redrives, newest first."""
        return list(self._of.get(queue, ()))

    def forget(self, queue: Queue) -> None:
        """End the redrives of a deleted queue."""
        for redrive in self._of.pop(queue, ()):
            redrive.is_cancelled.set()

    # --- one redrive

    async def _run(self, source: Queue, redrive: Redrive) -> None:
        holder = self._queues.new_holder()
        try:
            await self._move_all(source, redrive, holder)
            redrive.status = "CANCELLED" if redrive.is_cancelled.is_set() else "COMPLETED"
        except GatewayError as error:
            redrive.status = "FAILED"
            redrive.failure = str(error)
        except asyncio.CancelledError:  # the node stops
            redrive.status = "CANCELLED"
            raise
        finally:
            if not source.is_gone:
                source.end_holder(holder, ending=DeliveryEnd.UNSEEN)

    async def _move_all(self, source: Queue, redrive: Redrive, holder: int) -> None:
        started_ms = self._context.clock.monotonic_ms()
        looks = 0
        while redrive.moved < redrive.total_at_start and not redrive.is_cancelled.is_set():
            moved = 0
            for lane in list(source.lanes):
                wanted = min(
                    MOVED_PER_APPEND_MAX,
                    redrive.total_at_start - redrive.moved,
                    redrive.rate_per_s or MOVED_PER_APPEND_MAX,
                )
                moved += await self._move_some(lane, redrive, holder, wanted)
                await self._keep_rate(redrive, started_ms)
                if redrive.is_cancelled.is_set():
                    return
            looks = 0 if moved else looks + 1
            if not moved:
                if looks > LOOKS_MAX or not source.counts().ready:
                    return
                await _wait(redrive, LOOK_AGAIN_S)

    async def _keep_rate(self, redrive: Redrive, started_ms: int) -> None:
        """Wait as long as the rate limit asks for the messages moved."""
        if redrive.rate_per_s is None:
            await asyncio.sleep(0)  # others have their turn
            return
        due_ms = started_ms + redrive.moved * 1_000 // redrive.rate_per_s
        left_ms = due_ms - self._context.clock.monotonic_ms()
        if left_ms > 0:
            await _wait(redrive, left_ms / 1_000)

    async def _move_some(
        self, lane: QueueLane, redrive: Redrive, holder: int, wanted: int
    ) -> int:
        """Move messages of one lane in one append; return how many."""
        if wanted <= 0:
            return 0
        context = self._context
        now = context.clock.steady_unix_ms()
        ranges, effects = lane.lane.take_ranges(
            wanted, holder=holder, lease_ms=LEASE_MS, now=now
        )
        taken = each_taken(ranges)
        lane.done(effects)
        lane.feed_more()
        if not taken:
            return 0
        parts: list[Addressed] = []
        ids: list[tuple[int, int]] = []
        size_bytes = 0
        for at, one in enumerate(taken):
            if size_bytes >= ROUND_BYTES_MAX:
                self._give_back(lane, taken[at:])
                break
            body = (await context.message_cache.read(lane.partition, (one.offset,)))[0]
            if body is Unreadable.CORRUPT:
                continue  # it stays, in flight until this redrive ends
            if not isinstance(body, Unreadable):
                part = self._part(lane, redrive, body)
                if part is None:
                    redrive.skipped += 1
                    continue  # so does that
                parts.append(part)
                size_bytes += part.run.size_bytes
            ids.append((one.offset, one.attempt))
        if ids:
            await self._append(lane, ids, parts)
        redrive.moved += len(ids)
        return len(ids)

    def _part(self, lane: QueueLane, redrive: Redrive, record: Record) -> Addressed | None:
        """Return what a dead letter becomes, and where; None for one that stays.

        It has no place to go to, or is without its message: an empty one is none. Error:
        ``TopicNotFound`` when the destination that was named is not there.
        """
        if is_dead_letter_reference(record.headers):
            return None
        try:
            topic, number = self._target(self._place(lane, redrive, record), record)
        except TopicNotFound:
            if redrive.destination is not None:
                raise
            return None
        headers = encode_headers(strip_dead_letter_headers(record.headers))
        now_unix_ms = self._context.clock.unix_ms()
        run = RecordRun(record.key, (record.value,), headers, now_unix_ms)
        return Addressed(topic, number, run)

    def _place(self, lane: QueueLane, redrive: Redrive, record: Record) -> TopicName:
        """Return the topic that a dead letter goes to. Error: ``TopicNotFound``."""
        if redrive.destination is not None:
            return redrive.destination
        name = TopicName(lane.partition.topic.name.namespace, _source_of(record))
        if redrive.origins is not None and name not in redrive.origins:
            raise TopicNotFound(f"{name.name} is no source of this queue")
        return name

    def _target(self, name: TopicName, record: Record) -> tuple[Topic, int]:
        """Return a topic and the number of the partition. Error: ``TopicNotFound``."""
        queue = self._queues.find(name)
        if queue is not None and not queue.is_away:
            partition = queue.partition_for(record.key)
            return partition.topic, partition.number
        topic = self._topics.get(name)
        if topic.is_internal:
            raise TopicNotFound(f"{name.name} is the node's own")
        count = len(topic.partition_ids)
        number = record.offset % count
        if record.key is not None:
            number = partition_for_key(record.key, count)
        return topic, number

    async def _append(
        self, lane: QueueLane, ids: list[tuple[int, int]], parts: list[Addressed]
    ) -> None:
        """Append the messages elsewhere and their end here. Errors: as ``append_and_end``."""
        lane.partition.check_present()
        context = self._context
        write_down(lane)  # as it is before the acknowledgement
        results, effects = lane.lane.ack(ids, now=context.clock.steady_unix_ms())
        if any(result is not Result.DONE for result in results):
            lane.lane.put_back(
                [one for one, result in zip(ids, results, strict=True) if result is Result.DONE]
            )
            raise StorageUnavailable("what was read came back to the queue meanwhile")
        kept: asyncio.Future[StorageUnavailable | None] = context.loop.create_future()
        try:
            offsets = [offset for offset, _ in ids]
            append_and_end(context, lane, parts, offsets, partial(set_result_if_pending, kept))
        except GatewayError:
            lane.lane.put_back(ids)
            lane.done(Effects(wake=True))
            raise
        effects.journal = None  # it is in the append
        lane.done(effects)
        error = await kept
        if error is not None:
            raise error

    def _give_back(self, lane: QueueLane, taken: Sequence[Taken]) -> None:
        now = self._context.clock.steady_unix_ms()
        ids = [(one.offset, one.attempt) for one in taken]
        lane.done(lane.lane.release(ids, delay_ms=0, now=now, ending=DeliveryEnd.UNSEEN)[1])


def _source_of(record: Record) -> str:
    """Return the topic that a dead letter came from. Error: ``TopicNotFound``."""
    found = origin(record.headers)
    if found is None or not found.topic:
        raise TopicNotFound(f"offset {record.offset} does not say where it came from")
    return found.topic


async def _wait(redrive: Redrive, seconds: float) -> None:
    """Wait, or until the redrive is cancelled."""
    try:
        await asyncio.wait_for(redrive.is_cancelled.wait(), seconds)
    except TimeoutError:
        return
