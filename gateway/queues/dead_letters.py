"""Dead letters: moves undeliverable messages to a dead-letter topic.

A message moves with its original key, value, headers and (mostly) timestamp, and with headers
for reason and source. The move and the message's end in its queue are one append: after a crash
the message is in exactly one of the two. Across logs they are one decision (``gateway.transfer``).
A message that cannot be moved (full disk, missing topic) stays in its queue and the move is
retried; one too large for the dead-letter topic moves as a record without a value that names its
position. Without a dead-letter topic it is dropped; but if
there was one when it died, or if its attempts limit was raised, it is delivered again. While
a configured dead-letter topic is missing, the attempts limit does not apply.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

import structlog

from features.dead_letter import Origin, dead_letter_headers, hops_of
from features.queue.journal import encode_done
from features.queue.model import ATTEMPTS, Dead, Effects, Order
from gateway.coalescer import ROUND_BYTES_MAX
from gateway.errors import (
    GatewayError,
    MessageTooLarge,
    StorageUnavailable,
    TopicNotFound,
    as_value,
)
from gateway.model import DLQ_HOPS, MESSAGE_ID, Record, TopicName
from gateway.queues.lanes import OnMoved, QueueContext, QueueLane
from gateway.queues.message_cache import Unreadable
from gateway.records.codec import encode_headers
from gateway.records.message_ids import message_id
from gateway.records.record_run import RecordRun
from gateway.slots import partition_for_key
from gateway.storage import OnDone
from gateway.topics.manager import Topic, TopicManager
from gateway.transfer.payload import Addressed

MOVED_PER_APPEND_MAX: Final = 128
RETRY_MS: Final = 5_000
ID_BYTES_MAX: Final = 128  # of an id that goes along with a message that is too large itself

_log = structlog.get_logger()


def dead_letter(
    lane: QueueLane, dead: Dead, body: Record, now_unix_ms: int, *, left_out: str = ""
) -> RecordRun | None:
    """Return the record that a message becomes, or None when it has moved too often.

    It keeps its time, but for one of a queue in order of its keys: that is sent anew, so its
    retention begins with the move (Amazon SQS, "dead-letter queues and message retention"). So
    does that of one without a time, or with one that is still to come.

    ``left_out``: why what the message held is not in it, where that is so; see ``reference``.
    """
    partition = lane.partition
    topic = partition.topic
    headers = dead_letter_headers(
        body.headers,
        Origin(
            topic.name.name,
            partition.number,
            dead.offset,
            lane.owner.group,
            dead.attempts,
            dead.reason,
            lane.owner.protocol,
        ),
        message_id=_own_id(lane, dead),
        left_out=left_out,
    )
    if headers is None:
        return None
    sent_unix_ms = body.timestamp_unix_ms
    is_ordered = lane.lane.policy.order is Order.KEY
    if is_ordered or not 0 <= sent_unix_ms <= now_unix_ms:
        sent_unix_ms = now_unix_ms
    return RecordRun(body.key, (body.value,), encode_headers(headers), sent_unix_ms)


def _own_id(lane: QueueLane, dead: Dead) -> str:
    partition = lane.partition
    return message_id(partition.topic.uuid, partition.number, dead.offset)


def reference(body: Record) -> Record:
    """Return a reference record for a message that is too large to move.

    It has the key, the time, how often the message was a dead letter, and its id.
    """
    ids = [one for one in body.headers if one[0] == MESSAGE_ID]
    kept = [one for one in ids[:1] if len(one[1] or b"") <= ID_BYTES_MAX]
    kept.append((DLQ_HOPS, str(hops_of(body.headers)).encode()))
    return body._replace(value=None, headers=tuple(kept))


class _MoveCallback:
    """Callback for the move of some messages."""

    __slots__ = ("_error", "_left", "_on_moved")

    def __init__(self, count: int, on_moved: OnMoved) -> None:
        self._left = count
        self._on_moved = on_moved
        self._error: StorageUnavailable | None = None

    def one(self, error: StorageUnavailable | None) -> None:
        self._error = error or self._error
        self._left -= 1
        if not self._left:
            self._on_moved(self._error)


class DeadMessage(NamedTuple):
    """Message to be moved. ``had_target``: a dead-letter topic existed when it was rejected."""

    dead: Dead
    told: _MoveCallback | None
    had_target: bool


class DeadLetters:
    """Moves dead messages of all queues. Loop only."""

    def __init__(self, context: QueueContext, topics: TopicManager) -> None:
        self._context = context
        self._topics = topics
        self._waiting: dict[QueueLane, deque[DeadMessage]] = {}
        self._turn = 0
        self._warned: set[bytes] = set()  # ids of lanes

    def move_dead(
        self, lane: QueueLane, dead: Sequence[Dead], on_moved: OnMoved | None = None
    ) -> None:
        """Move messages of a lane to the dead letters, starting in a later turn of the loop.

        ``on_moved`` runs once, when all of them are kept elsewhere (or dropped, where that is
        what happens), or with an error when some stay, to be tried again or handed out again.
        """
        told = None if on_moved is None else _MoveCallback(len(dead), on_moved)
        waiting = self._waiting.get(lane)
        if waiting is None:
            waiting = self._waiting[lane] = deque()
            self._context.start(self._move_all(lane, waiting))
        has_target = bool(lane.owner.settings.dead_letter_topic)
        # Only a move is tried again, and that had somewhere to go.
        waiting.extend(DeadMessage(one, told, has_target or one.is_again) for one in dead)

    def is_there(self, name: TopicName) -> bool:
        """Say whether there is a topic of that name to move messages to."""
        return self._topics.find(name) is not None

    async def _move_all(self, lane: QueueLane, waiting: deque[DeadMessage]) -> None:
        """Move the waiting messages of a lane; one task per lane while there are any."""
        try:
            while waiting and not lane.partition.is_gone:
                try:
                    await self._move_some(lane, waiting)
                except Exception:  # noqa: BLE001 - a bug that some meet is not all others'
                    _log.exception(
                        "dead letters stay where they are", lane=repr(lane.partition)
                    )
        finally:
            del self._waiting[lane]
            _tell(waiting, StorageUnavailable("the queue is gone"))

    async def _move_some(self, lane: QueueLane, waiting: deque[DeadMessage]) -> None:
        """Take some from the front and move them in one append."""
        some = [waiting.popleft() for _ in range(min(len(waiting), MOVED_PER_APPEND_MAX))]
        some = self._without_revived(lane, some)
        name = lane.owner.settings.dead_letter_topic
        try:
            if not some:
                pass
            elif name:
                topic = self._topics.get(TopicName(lane.partition.topic.name.namespace, name))
                await self._move(lane, topic, some, waiting)
            else:
                self._drop(lane, some)
        except TopicNotFound as error:
            self._failed(lane, some, as_value(error))
        await asyncio.sleep(0)  # others have their turn

    def _without_revived(self, lane: QueueLane, some: list[DeadMessage]) -> list[DeadMessage]:
        """Requeue messages that need not move after a policy change; return the others."""
        settings = lane.owner.settings
        attempts_max = lane.lane.policy.attempts_max  # none while the topic is not there
        moved: list[DeadMessage] = []
        revived: list[DeadMessage] = []
        for one in some:
            may_go = one.dead.reason == ATTEMPTS and not 0 < attempts_max <= one.dead.attempts
            lost_target = one.had_target and not settings.dead_letter_topic
            (revived if may_go or lost_target else moved).append(one)
        if revived:
            now = self._context.clock.steady_unix_ms()
            lane.done(lane.lane.not_moved([one.dead.offset for one in revived], now=now))
            _tell(revived, StorageUnavailable("the message is handed out again"))
        return moved

    async def _move(
        self,
        lane: QueueLane,
        topic: Topic,
        some: list[DeadMessage],
        waiting: deque[DeadMessage],
    ) -> None:
        """Move as many of ``some`` as one append holds; the others stay at the front."""
        moved: list[DeadMessage] = []
        failed: list[DeadMessage] = []
        parts: list[Addressed] = []
        why: GatewayError | None = None
        size_bytes = 0
        try:
            for one in some:
                if size_bytes >= ROUND_BYTES_MAX:
                    break
                try:
                    part = await self._part(lane, topic, one[0])
                except GatewayError as error:
                    why = as_value(error)
                    failed.append(one)
                    continue
                moved.append(one)
                if part is not None:
                    parts.append(part)
                    size_bytes += part.run.size_bytes
        except Exception:
            self._failed(lane, some, StorageUnavailable("a message could not be moved"))
            raise
        waiting.extendleft(reversed(some[len(moved) + len(failed) :]))
        if why is not None:
            self._failed(lane, failed, why)
        if moved:
            self._append(lane, moved, parts)

    async def _part(self, lane: QueueLane, topic: Topic, dead: Dead) -> Addressed | None:
        """Return a message's dead-letter record and its partition; None when it is dropped.

        Errors: ``StorageUnavailable``, and as ``Coalescer.check``.
        """
        source = lane.partition
        bodies = self._context.message_cache.find(source, [dead.offset])
        if bodies is None:
            bodies = await self._context.message_cache.read(source, (dead.offset,))
        body = bodies[0]
        if body is Unreadable.GONE:
            return None
        why = ""
        if isinstance(body, Unreadable):  # nothing of it is known but where it lies
            body = Record(dead.offset, self._context.clock.unix_ms(), None, None)
            why = "it cannot be read"
        try:
            return self._checked(lane, topic, dead, body, left_out=why)
        except MessageTooLarge as error:
            why = str(error)
        body = reference(body)
        try:
            return self._checked(lane, topic, dead, body, left_out=why)
        except MessageTooLarge:  # the key is as large
            return self._checked(lane, topic, dead, body._replace(key=None), left_out=why)

    def _checked(
        self, lane: QueueLane, topic: Topic, dead: Dead, body: Record, *, left_out: str = ""
    ) -> Addressed | None:
        """Return the checked dead-letter run and its partition. Errors: as ``Coalescer.check``."""
        if topic.settings.compacts and body.key is None:  # it takes none without a key,
            value = b"" if body.value is None else body.value  # and removes the empty
            body = body._replace(key=_own_id(lane, dead).encode(), value=value)
        run = dead_letter(lane, dead, body, self._context.clock.unix_ms(), left_out=left_out)
        if run is None:
            return None
        found = Addressed(topic, self._number(run.key, topic), run)
        self._context.transfers.check(found, self._context.messages)
        return found

    def _number(self, key: bytes | None, topic: Topic) -> int:
        count = len(topic.partition_ids)
        if key is not None:
            return partition_for_key(key, count)
        self._turn += 1
        return self._turn % count

    # --- how it ends

    def _append(self, lane: QueueLane, some: list[DeadMessage], parts: list[Addressed]) -> None:
        offsets = [dead.offset for dead, _, _ in some]
        try:
            write_down(self._context, lane)
            append_and_end(self._context, lane, parts, offsets, partial(_tell, some))
        except GatewayError as error:
            self._failed(lane, some, as_value(error))
            return
        except Exception:
            self._failed(lane, some, StorageUnavailable("a message could not be moved"))
            raise
        lane.lane.moved(offsets)
        lane.done(Effects(wake=True))
        self._warned.discard(lane.lane_id)
        self._context.counters.dead_lettered += len(parts)
        self._context.counters.dropped += len(some) - len(parts)

    def _drop(self, lane: QueueLane, some: list[DeadMessage]) -> None:
        entry = lane.lane.moved([dead.offset for dead, _, _ in some])
        self._context.journal.put(lane, entry, partial(_tell, some))
        lane.done(Effects(wake=True))
        self._context.counters.dropped += len(some)

    def _failed(self, lane: QueueLane, some: list[DeadMessage], error: GatewayError) -> None:
        if lane.lane_id not in self._warned:  # once, until something moves again
            self._warned.add(lane.lane_id)
            _log.warning(
                "dead letters stay where they are", lane=repr(lane.partition), error=str(error)
            )
        now = self._context.clock.steady_unix_ms()
        lane.lane.move_failed([dead.offset for dead, _, _ in some], now=now, retry_ms=RETRY_MS)
        self._context.arm(lane)
        if not isinstance(error, StorageUnavailable):
            error = StorageUnavailable(str(error))
        _tell(some, error)


def write_down(context: QueueContext, lane: QueueLane) -> None:
    """Write a lane's pending changes to the journal, before messages of it are ended.

    Error: ``StorageUnavailable``.
    """
    if lane.is_ahead:
        context.journal.put(lane, b"")  # a snapshot, then
        context.journal.seal()
    if lane.is_ahead:
        raise StorageUnavailable("the queue's journal cannot be written")


def append_and_end(
    context: QueueContext,
    lane: QueueLane,
    parts: Sequence[Addressed],
    offsets: Sequence[int],
    on_done: OnDone,
) -> None:
    """Append records elsewhere, and the end of messages of a lane, as one decision.

    It is one append, or a transfer of what lies in other nodes' logs. ``write_down`` comes first.
    It is appended when this returns: what the journal gets after it lies behind it. ``on_done``
    runs once it is durable. Errors, with nothing changed: as ``Transfers.append``, and
    ``StorageUnavailable`` when the storage refuses it.
    """
    context.journal.seal()  # entries keep their order, whichever way they go
    outcome = _Outcome(on_done)
    context.transfers.append(
        lane.partition.shard,
        parts,
        outcome.done,
        beside=[context.journal.delta(lane, encode_done(offsets))],
        coalescer=context.messages,
    )
    outcome.check()


class _Outcome:
    """Outcome of an append: raises a refusal made at once, reports a later one by callback."""

    __slots__ = ("_is_appended", "_on_done", "_refusal")

    def __init__(self, on_done: OnDone) -> None:
        self._on_done = on_done
        self._is_appended = False
        self._refusal: StorageUnavailable | None = None

    def done(self, error: StorageUnavailable | None) -> None:
        if self._is_appended:
            self._on_done(error)
        else:
            self._refusal = error

    def check(self) -> None:
        if self._refusal is not None:
            raise self._refusal
        self._is_appended = True


def _tell(some: Iterable[DeadMessage], error: StorageUnavailable | None) -> None:
    for _, told, _ in some:
        if told is not None:
            told.one(error)
