"""Expiry of messages at the head of a queue, at the millisecond in which their time is over.

A message expires when it is ready for longer than the queue's ``message_ttl_ms``, counted from its
arrival, or at its own ``expires-at``, whichever is first. As in a classic queue of RabbitMQ, only
the head is looked at: a message waits behind one that lives longer, and is never delivered after
its time nevertheless (``gateway.queues.delivery_filter``). Receivers are served before: a message
with a time of 0 ms is delivered to a receiver that waits for it, or expires.

One timer for each partition is set to the end of its first ready message. Queues without a
``message_ttl_ms`` and without a dead-letter exchange have none.
"""

from collections.abc import Sequence
from typing import Final

import structlog

from features.queue.model import TakenRange
from features.ranges import contiguous_ranges
from gateway.clock import Clock
from gateway.errors import GatewayError
from gateway.model import Record
from gateway.queues.cached_batch import CachedBatch, Unreadable
from gateway.queues.delivered_ranges import FoundRange
from gateway.queues.delivery_filter import EXPIRED, expires_unix_ms
from gateway.queues.lanes import QueueContext, QueueLane
from gateway.queues.length_limit import MOVING_MAX
from gateway.queues.message_arrival import arrival_unix_ms
from gateway.queues.model import QueueSettings
from gateway.queues.receivers import Receivers

HEAD_MESSAGES: Final = 256  # looked at in a turn of the loop, when the first one has expired
HEAD_BYTES: Final = 4 * 1024 * 1024  # of their batches, and one more
ROUTING_MS: Final = 50  # until another look while exchanges are loaded
RETRY_MS: Final = 1_000  # until another look at messages that could not be read

_Head = tuple[int, int, int]
"""Next offset, and numbers of returned and of delayed messages: they change with the head."""

_log = structlog.get_logger()


def expires(settings: QueueSettings) -> bool:
    """Return whether a queue has timers for the end of its messages."""
    return settings.message_ttl_ms >= 0 or bool(settings.dead_letter_exchange)


class HeadExpiry:
    """Timers of one queue for its first ready messages. Loop only."""

    def __init__(self, context: QueueContext, receivers: Receivers) -> None:
        self._context = context
        self._receivers = receivers
        self._heads: dict[QueueLane, _Head] = {}  # looked at, and not expired then
        self._to_look: dict[QueueLane, None] = {}
        self._reading: set[QueueLane] = set()
        self._is_scheduled = False

    def check_soon(self, lane: QueueLane) -> None:
        """Look at the head of a partition, unless it is as before, when receivers are served."""
        head = self._heads.get(lane)
        if head is not None and head == _head_of(lane):
            return
        self._to_look[lane] = None
        self._schedule()

    def on_due(self, lane: QueueLane) -> None:
        """Look at a partition whose first message has reached its end."""
        self._heads.pop(lane, None)
        self._to_look[lane] = None
        self._schedule()

    def forget(self) -> None:
        """Look at every partition again: the settings may be others."""
        self._heads.clear()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._context.loop.call_soon(self._look_at_all)

    def _look_at_all(self) -> None:
        self._is_scheduled = False
        if self._receivers.is_closed or not expires(self._receivers.settings):
            self._to_look.clear()
        elif self._receivers.is_scheduled:
            self._schedule()  # those who wait come first
        else:
            lanes, self._to_look = self._to_look, {}
            for lane in lanes:
                self._look(lane)

    def _look(self, lane: QueueLane) -> None:
        self._heads.pop(lane, None)
        if not lane.is_open or lane.partition.is_gone or lane in self._reading:
            return
        taken = _ready(lane, 1)
        if not taken:
            return  # the next message comes with another call
        context = self._context
        if self._receivers.settings.dead_letter_exchange and not context.mover.is_routing:
            self._arm(lane, context.clock.steady_unix_ms() + ROUTING_MS)  # at a start
            return
        found = self._find(lane, taken)
        if found is None:
            self._reading.add(lane)
            self._context.start(self._look_at_stored(lane))
            return
        self._judge(lane, found)

    def _judge(self, lane: QueueLane, found: Sequence[FoundRange]) -> None:
        """Set the timer for the first message, or reject it and those behind it."""
        deadline_unix_ms = self._deadline(found[0])
        if deadline_unix_ms is None:
            self._heads[lane] = _head_of(lane)
        elif deadline_unix_ms > self._context.clock.steady_unix_ms():
            self._heads[lane] = _head_of(lane)
            self._arm(lane, deadline_unix_ms)
        else:
            self._expire(lane, self._find(lane, _ready(lane, HEAD_MESSAGES)) or found)

    def _find(self, lane: QueueLane, taken: Sequence[TakenRange]) -> list[FoundRange] | None:
        return self._context.message_cache.find_ranges(
            lane.partition, taken, bytes_max=HEAD_BYTES
        )

    async def _look_at_stored(self, lane: QueueLane) -> None:
        """Read the head from the disk, then look again."""
        taken = _ready(lane, HEAD_MESSAGES)
        try:
            async with self._context.cold_reads:
                found = await self._context.message_cache.read_ranges(
                    lane.partition, taken, bytes_max=HEAD_BYTES
                )
        except GatewayError as error:
            _log.warning("first messages of a queue cannot be read", error=str(error))
            self._arm(lane, self._context.clock.steady_unix_ms() + RETRY_MS)
            return
        finally:
            self._reading.discard(lane)
        if not lane.is_open or self._receivers.is_closed:
            return
        if taken and _ready(lane, 1)[:1] == [_first_of(taken)]:
            self._judge(lane, found)
        else:  # another message is the first by now
            self.check_soon(lane)

    def _arm(self, lane: QueueLane, deadline_unix_ms: int) -> None:
        self._context.expiries.arm(lane, deadline_unix_ms - self._context.steady_ahead_ms)

    def _expire(self, lane: QueueLane, found: Sequence[FoundRange]) -> None:
        """Reject the first messages, up to one whose time is not over."""
        now = self._context.clock.steady_unix_ms()
        expired: list[int] = []
        for one in found:
            count = self._expired_count(one, now)
            expired += one.offsets[:count]
            if count < len(one.offsets):
                break
        moving_max = min(MOVING_MAX, max(self._receivers.settings.in_flight_max // 2, 1))
        room = max(moving_max - lane.lane.moving_count, 0)
        effects = lane.lane.reject_ready(expired[:room], reason=EXPIRED, now=now)
        lane.owner.counters.expired += len(effects.dead)
        if effects.dead:  # look behind them; without any, a move that ends calls ``check_soon``
            self._to_look[lane] = None
            self._schedule()
        lane.done(effects)
        lane.feed_more()

    def _expired_count(self, found: FoundRange, now: int) -> int:
        """Return how many messages of a range, from the first on, are to be rejected."""
        batch = found.batch
        if not isinstance(batch, CachedBatch):
            return len(found.offsets) if batch is Unreadable.GONE else 0
        self._context.message_cache.decode(found.partition, batch)
        if batch.is_corrupt:
            return 0
        ends = {
            record.offset: message_end(
                record, self._receivers.settings.message_ttl_ms, self._context.clock
            )
            for record in batch.records_of(found.offsets)
        }
        for count, offset in enumerate(found.offsets):
            end_unix_ms = ends.get(offset, now)  # an offset without a record is given up, too
            if end_unix_ms is None or end_unix_ms > now:
                return count
        return len(found.offsets)

    def _deadline(self, found: FoundRange) -> int | None:
        """Return when to look at a message again, in steady time; None without an end."""
        batch = found.batch
        clock = self._context.clock
        if not isinstance(batch, CachedBatch):
            return clock.steady_unix_ms() if batch is Unreadable.GONE else None
        ttl_ms = self._receivers.settings.message_ttl_ms
        if batch.runs is None:
            self._context.message_cache.decode(found.partition, batch)
            if batch.is_corrupt:
                return None
        oldest_unix_ms, may_expire = batch.limits
        if not may_expire:  # mostly that is enough, and nothing is decoded
            if ttl_ms < 0:
                return None
            end_unix_ms = clock.steady_deadline(oldest_unix_ms + ttl_ms, oldest_unix_ms)
            if end_unix_ms > clock.steady_unix_ms():
                return end_unix_ms
        self._context.message_cache.decode(found.partition, batch)
        records = batch.records_of(found.offsets)
        return message_end(records[0], ttl_ms, clock) if records else clock.steady_unix_ms()


def message_end(record: Record, ttl_ms: int, clock: Clock) -> int | None:
    """Return the end of a message in a queue with that TTL, in steady time; None without one."""
    own_unix_ms = expires_unix_ms(record, clock)
    if ttl_ms < 0:
        return own_unix_ms
    arrived_unix_ms = arrival_unix_ms(record)
    end_unix_ms = clock.steady_deadline(arrived_unix_ms + ttl_ms, arrived_unix_ms)
    return end_unix_ms if own_unix_ms is None else min(own_unix_ms, end_unix_ms)


def _ready(lane: QueueLane, count: int) -> list[TakenRange]:
    """Return the first ready messages, those that came back before new ones."""
    return [TakenRange(part, 0, 0) for part in contiguous_ranges(lane.lane.ready(count))]


def _first_of(taken: Sequence[TakenRange]) -> TakenRange:
    first = taken[0]
    return first._replace(offsets=first.offsets[:1])


def _head_of(lane: QueueLane) -> _Head:
    lane_state = lane.lane
    delayed_count = lane_state.counts(lane_state.next_offset).delayed
    return lane_state.next_offset, lane_state.returned_count, delayed_count
