"""Dead letters: moves undeliverable messages to a dead-letter topic, or through an exchange.

A message moves with its original key, value, headers and (mostly) timestamp, and with headers
for reason and source. The move and the message's end in its queue are one append: after a crash
the message is in exactly one of the two. Across logs they are one decision (``gateway.transfer``).
A message that cannot be moved (full disk, full queue, missing topic) stays in its queue, whose
other messages go on, and the move is retried (``gateway.queues.move_retries``); one too large for
the dead-letter topic moves as a record without a value that names its position. Without a
dead-letter topic it is dropped; but if there was one when it died, or if its attempts limit was
raised, it is delivered again. While a configured dead-letter topic is missing, the attempts limit
does not apply.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

import structlog

from features.queue.journal import encode_done
from features.queue.model import Dead, Effects
from features.queue.retrying import may_go_again
from gateway.coalescer import ROUND_BYTES_MAX
from gateway.errors import (
    GatewayError,
    MessageTooLarge,
    StorageUnavailable,
    TopicNotFound,
    as_value,
)
from gateway.model import Record, TopicName
from gateway.queues.dead_letter_targets import (
    DeadLetterRoutes,
    ExchangeTarget,
    TopicTarget,
    reference,
)
from gateway.queues.due_target import DueTarget
from gateway.queues.lanes import DeadLetterTarget, OnMoved, QueueContext, QueueLane
from gateway.queues.message_cache import Unreadable
from gateway.queues.move_retries import MoveRetries, limit_of
from gateway.storage import OnDone
from gateway.topics.manager import Topic, TopicManager
from gateway.transfer.payload import Addressed

MOVED_PER_APPEND_MAX: Final = 128

_log = structlog.get_logger()


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

    def __init__(
        self,
        context: QueueContext,
        topics: TopicManager,
        is_timed: Callable[[TopicName], bool],
    ) -> None:
        """``is_timed``: the queue of a topic ends messages by the time of their arrival."""
        self._context = context
        self._is_timed = is_timed
        self._topics = topics
        self._waiting: dict[QueueLane, deque[DeadMessage]] = {}
        self._turn = 0
        self.retries = MoveRetries(context, self.move_dead)
        self.routes: DeadLetterRoutes | None = None
        """Exchanges, once they are loaded; until then dead letters for them wait."""
        self.due_topic: Topic | None = None
        """Topic whose messages are those of delayed exchanges: ``exchange_delays``."""

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
        has_target = lane.owner.settings.has_dead_letters
        # Only a move is tried again, and that had somewhere to go.
        waiting.extend(DeadMessage(one, told, has_target or one.is_again) for one in dead)

    def forget(self, lane: QueueLane) -> None:
        """See ``DeadLetterMover``."""
        self.retries.forget(lane)

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
        try:
            target = self.target(lane)
            if not some:
                pass
            elif target is not None:
                await self._move(lane, target, some, waiting)
            else:
                self._drop(lane, some)
        except TopicNotFound as error:
            self._failed(lane, some, as_value(error))
        await asyncio.sleep(0)  # others have their turn

    @property
    def is_routing(self) -> bool:
        """See ``DeadLetterMover``."""
        return self.routes is not None

    def target(self, lane: QueueLane) -> DeadLetterTarget | None:
        """Return where dead messages of a lane go; None: nowhere. Error: ``TopicNotFound``."""
        settings = lane.owner.settings
        if lane.partition.topic is self.due_topic:
            return DueTarget(self._context, self.routes)
        if settings.dead_letter_exchange:
            return ExchangeTarget(self._context, self.routes, self._next_turn)
        if not settings.dead_letter_topic:
            return None
        namespace = lane.partition.topic.name.namespace
        topic = self._topics.get(TopicName(namespace, settings.dead_letter_topic))
        return TopicTarget(
            self._context, topic, self._next_turn, is_timed=self._is_timed(topic.name)
        )

    def _without_revived(self, lane: QueueLane, some: list[DeadMessage]) -> list[DeadMessage]:
        """Requeue messages that need not move after a policy change; return the others."""
        settings = lane.owner.settings
        policy = lane.lane.policy  # without limits while the topic is not there
        moved: list[DeadMessage] = []
        revived: list[DeadMessage] = []
        for one in some:
            may_go = may_go_again(policy, one.dead)
            lost_target = one.had_target and not settings.has_dead_letters
            (revived if may_go or lost_target else moved).append(one)
        if revived:
            now = self._context.clock.steady_unix_ms()
            offsets = [one.dead.offset for one in revived]
            lane.done(lane.lane.not_moved(offsets, now=now))
            self.retries.moved(lane, offsets)
            _tell(revived, StorageUnavailable("the message is handed out again"))
        return moved

    async def _move(
        self,
        lane: QueueLane,
        target: DeadLetterTarget,
        some: list[DeadMessage],
        waiting: deque[DeadMessage],
    ) -> None:
        """Move as many of ``some`` as one append holds; the others stay at the front."""
        moved: list[DeadMessage] = []
        failed: dict[object, tuple[GatewayError, list[DeadMessage]]] = {}
        parts: list[Addressed] = []
        size_bytes = dropped = tried = 0
        try:
            for one in some:
                if size_bytes >= ROUND_BYTES_MAX:
                    break
                tried += 1
                try:
                    found = await self._addressed(lane, target, one.dead)
                except GatewayError as error:
                    why = as_value(error)
                    failed.setdefault(limit_of(why), (why, []))[1].append(one)
                    continue
                moved.append(one)
                parts += found
                size_bytes += sum(part.run.size_bytes for part in found)
                dropped += not found
        except Exception:
            self._failed(lane, some, StorageUnavailable("a message could not be moved"))
            raise
        waiting.extendleft(reversed(some[tried:]))
        for why, alike in failed.values():
            self._failed(lane, alike, why)
        if moved:
            self._append(lane, moved, parts, dropped)

    async def _addressed(
        self, lane: QueueLane, target: DeadLetterTarget, dead: Dead
    ) -> list[Addressed]:
        """Return a message's dead letter for each partition; without any it is dropped.

        Errors: ``StorageUnavailable``, and those of ``DeadLetterTarget.addressed``.
        """
        source = lane.partition
        bodies = self._context.message_cache.find(source, [dead.offset])
        if bodies is None:
            bodies = await self._context.message_cache.read(source, (dead.offset,))
        body = bodies[0]
        if body is Unreadable.GONE:
            return []
        why = ""
        if isinstance(body, Unreadable):  # nothing of it is known but where it lies
            body = Record(dead.offset, self._context.clock.unix_ms(), None, None)
            why = "it cannot be read"
        try:
            return target.addressed(lane, dead, body, left_out=why)
        except MessageTooLarge as error:
            why = str(error)
        body = reference(body)
        try:
            return target.addressed(lane, dead, body, left_out=why)
        except MessageTooLarge:  # the key is as large
            return target.addressed(lane, dead, body._replace(key=None), left_out=why)

    def _next_turn(self) -> int:
        self._turn += 1
        return self._turn

    # --- how it ends

    def _append(
        self,
        lane: QueueLane,
        some: list[DeadMessage],
        parts: list[Addressed],
        dropped: int,
    ) -> None:
        offsets = [dead.offset for dead, _, _ in some]
        try:
            write_down(lane)
            append_and_end(self._context, lane, parts, offsets, partial(_tell, some))
        except GatewayError as error:
            self._failed(lane, some, as_value(error))
            return
        except Exception:
            self._failed(lane, some, StorageUnavailable("a message could not be moved"))
            raise
        lane.lane.moved(offsets)
        lane.done(Effects(wake=True))
        self.retries.moved(lane, offsets)
        lane.owner.counters.dead_lettered += len(some) - dropped
        lane.owner.counters.dropped += dropped
        if (tracer := self._context.broker.append_queue.tracer) is not None:
            tracer.settled(lane.partition, offsets, "dead_letter")

    def _drop(self, lane: QueueLane, some: list[DeadMessage]) -> None:
        offsets = [dead.offset for dead, _, _ in some]
        lane.journal.put(lane, lane.lane.moved(offsets), partial(_tell, some))
        self.retries.moved(lane, offsets)
        lane.done(Effects(wake=True))
        lane.owner.counters.dropped += len(some)

    def _failed(self, lane: QueueLane, some: list[DeadMessage], error: GatewayError) -> None:
        if self.retries.failed(lane, [dead.offset for dead, _, _ in some], error):
            _log.warning(
                "dead letters stay where they are", lane=repr(lane.partition), error=str(error)
            )
        if not isinstance(error, StorageUnavailable):
            error = StorageUnavailable(str(error))
        _tell(some, error)


def write_down(lane: QueueLane) -> None:
    """Write a lane's pending changes to the journal, before messages of it are ended.

    Error: ``StorageUnavailable``.
    """
    if lane.is_ahead:
        lane.journal.put(lane, b"")  # a snapshot, then
        lane.journal.seal()
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
        beside=lane.journal.parts(lane, encode_done(offsets)),
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
