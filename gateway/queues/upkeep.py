"""Periodic upkeep of queues: reports their holds to retention, drops expired messages.

A message expires by its record's timestamp and the wall clock. Expired messages at the front of
a backlog are dropped here, a few seconds late at most; they are never handed out, and one in
flight is dropped when it is requeued (``gateway.queues.delivery_filter``). The same holds for
messages with an expiry time of their own: where dead letters are kept, those at the front,
new or requeued, are moved even without a receive.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

import structlog

from gateway.errors import GatewayError
from gateway.queues.cache_eviction import drop_settled
from gateway.queues.delivery_filter import EXPIRED, expires_unix_ms
from gateway.queues.lanes import QueueContext, QueueLane
from gateway.queues.model import QueueSettings

HOLD_EVERY_S: Final = 1.0
EXPIRE_EVERY_TURNS: Final = 3  # of holding
LANES_PER_TURN: Final = 256  # that are told before others have their turn
HEAD_MESSAGES: Final = 64  # of the front that are looked at, and of what came back
HEADS_MAX: Final = 1_000  # looks at one lane, as long as more have expired
NEVER_UNIX_MS: Final = 1 << 63
WAITING: Final = frozenset({"ready", "delayed"})  # what is delayed goes once it is ready

_log = structlog.get_logger()


class MaintainedQueue(Protocol):
    """Queue as upkeep uses it."""

    settings: QueueSettings
    lanes: list[QueueLane]


class QueueUpkeep:
    """Periodic upkeep of all queues. Loop only."""

    def __init__(
        self, context: QueueContext, queues: Callable[[], Iterable[MaintainedQueue]]
    ) -> None:
        self._context = context
        self._queues = queues

    def start(self) -> None:
        """Run until the context is closed."""
        self._context.start(self._run())

    async def _run(self) -> None:
        turns = 0
        while True:
            await asyncio.sleep(HOLD_EVERY_S)
            turns += 1
            try:
                await self.hold_all()
                if turns % EXPIRE_EVERY_TURNS == 0:
                    await self.expire_all()
            except GatewayError as error:
                _log.warning("retention of queues ended early", error=str(error))
            except Exception:  # noqa: BLE001 - a bug that one queue meets is not the end of it
                _log.exception("upkeep of queues ended early")

    async def hold_all(self) -> None:
        """Report the holds of changed lanes, and drop their settled batches from the cache."""
        touched, self._context.touched = self._context.touched, set()
        for count, lane in enumerate(touched, 1):
            if lane.is_open and not lane.partition.is_gone:  # it may have left meanwhile
                try:
                    lane.hold()
                    await drop_settled(self._context, lane)
                except Exception:  # noqa: BLE001 - others are to be told nevertheless
                    _log.exception("queue holds nothing", lane=repr(lane.partition))
            if count % LANES_PER_TURN == 0:
                await asyncio.sleep(0)

    async def expire_all(self) -> None:
        """Drop messages that are too old at the front of every backlog. Errors: of the storage."""
        for queue in list(self._queues()):
            try:
                await self._expire_queue(queue)
            except GatewayError:
                raise
            except Exception:  # noqa: BLE001 - a bug that one queue meets is not all others'
                _log.exception("retention of a queue ended early")

    async def _expire_queue(self, queue: MaintainedQueue) -> None:
        settings = queue.settings
        for lane in list(queue.lanes):
            if settings.retention_ms >= 0:
                await self._expire(lane, settings.retention_ms)
            if settings.has_dead_letters:
                await self._expire_heads(lane)

    async def _expire(self, lane: QueueLane, retention_ms: int) -> None:
        partition = lane.partition
        clock, end = self._context.clock, partition.stable_end
        now = clock.steady_unix_ms()
        if partition.is_gone or lane.lane.floor >= end or now < lane.retained_unix_ms:
            return
        oldest_unix_ms = clock.unix_ms_ago(retention_ms)
        found = await self._context.broker.offset_for_time(partition, oldest_unix_ms)
        if not lane.is_open or partition.is_gone:
            return
        offset = end if found is None else found[0]
        lane.done(lane.lane.expire_before(offset))
        lane.feed_more()
        if found is not None and lane.lane.floor >= offset:  # else one that is out comes back
            lane.retained_unix_ms = clock.steady_deadline(found[1] + retention_ms, found[1])

    async def _expire_heads(self, lane: QueueLane) -> None:
        for _ in range(HEADS_MAX):
            if lane.partition.is_gone or not await self._expire_head(lane):
                return
            await asyncio.sleep(0)  # others have their turn

    async def _expire_head(self, lane: QueueLane) -> bool:
        """Move expired messages at the front; return whether there may be more.

        None is handed out for that: who looks changes nothing of those that have not expired.
        """
        partition, clock = lane.partition, self._context.clock
        start = lane.lane.next_offset
        end = min(start + HEAD_MESSAGES, partition.stable_end)
        returned = lane.lane.returned(HEAD_MESSAGES) if lane.lane.returned_count else []
        front = (start, end, returned)
        if front == lane.front and clock.steady_unix_ms() < lane.front_unix_ms:
            return False  # it is still as it was: most lanes cost nothing
        waiting = {at for at, state in lane.lane.browse(start, end - start) if state in WAITING}
        offsets = sorted(waiting.union(returned))
        bodies = await self._context.message_cache.read(partition, offsets)
        times = [expires_unix_ms(body, clock) for body in bodies]
        lane.front = front
        lane.front_unix_ms = min(
            (time for time in times if time is not None), default=NEVER_UNIX_MS
        )
        now = clock.steady_unix_ms()
        pairs = zip(offsets, times, strict=True)
        return self._give_up(
            lane, [at for at, time in pairs if time is not None and time <= now]
        )

    def _give_up(self, lane: QueueLane, offsets: Sequence[int]) -> bool:
        """Move delayed or returned messages that are too old; return whether there were any."""
        if not offsets or not lane.is_open:
            return False
        now = self._context.clock.steady_unix_ms()
        effects = lane.lane.reject_ready(offsets, reason=EXPIRED, now=now)
        lane.owner.counters.expired += len(effects.dead)
        lane.done(effects)
        lane.feed_more()
        return bool(effects.dead)
