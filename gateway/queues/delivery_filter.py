"""Filter between take and delivery: removes old, expired and unreadable messages."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple, cast

from features.queue.model import TakenRange
from features.queue.retrying import DeliveryEnd
from features.ranges import contiguous_ranges
from gateway.clock import Clock
from gateway.model import EXPIRES_AT, unix_ms_in
from gateway.queues.cached_batch import Body, CachedBatch, Unreadable
from gateway.queues.delivered_ranges import DeliveredRange, FoundRange
from gateway.queues.lanes import QueueContext, QueueLane
from gateway.queues.message_arrival import arrival_unix_ms
from gateway.queues.model import QueueSettings
from gateway.records.codec import I64_MIN

EXPIRED: Final = "expired"  # the reasons of dead letters
CORRUPT: Final = "corrupt"

_SMALL_BYTES: Final = 65_536  # batches whose whole size may stand for that of a few messages
_NOTHING_LEFT: Final = -1  # of the bytes: not even an empty message fits

TakenPart = tuple[QueueLane, list[TakenRange]]
FoundPart = tuple[QueueLane, list[FoundRange]]
Id = tuple[int, int]  # offset, attempt
Headers = tuple[tuple[str, bytes | None], ...]


# Without a frame of Python: 0.1 us a range where its class costs 0.4.
_as_delivered = cast(
    "Callable[[FoundRange], DeliveredRange]", partial(tuple.__new__, DeliveredRange)
)


class _Rest(NamedTuple):
    """Messages taken of one lane and not delivered, by outcome."""

    gone: list[Id]
    expired: list[Id]
    corrupt: list[Id]
    back: list[Id]

    def of(self, reason: Unreadable) -> list[Id]:
        """Return the messages that are not delivered for a reason."""
        if reason is Unreadable.CORRUPT:
            return self.corrupt
        return self.back if reason is Unreadable.UNREAD else self.gone


_AT_ONCE_MS: Final = 10
"""A message whose own time ends up to so long before it was stored is for receivers that wait."""


def oldest_kept(clock: Clock, retention_ms: int) -> int:
    """Return the unix ms before which messages are too old; -1 when there is no limit."""
    return clock.unix_ms_ago(retention_ms) if retention_ms >= 0 else I64_MIN


class _Looking:
    """Look at each message of a range: in batches where some may not be delivered."""

    def __init__(self, clock: Clock, oldest: "_Oldest", left_bytes: int, rest: _Rest) -> None:
        self._clock = clock
        self._oldest_unix_ms = oldest.retained_unix_ms
        self._oldest_alive_unix_ms = oldest.alive_unix_ms
        self._takes_at_once = oldest.takes_at_once
        self._left_bytes = left_bytes
        self._rest = rest

    def look(
        self, found: FoundRange, batch: CachedBatch, delivered: list[DeliveredRange]
    ) -> int:
        """Add what may be delivered of a range to ``delivered``; return the bytes left."""
        partition, offsets, attempt, first_taken_unix_ms, failed_count, _ = found
        rest = self._rest
        next_offset = offsets.start
        good: list[int] = []
        headers: Headers = ()  # of the message before: those of one sender are shared
        header_bytes, deadline_unix_ms = 0, None
        for record in batch.records_of(offsets):
            offset, timestamp_unix_ms, _, value, found_headers = record
            rest.gone.extend((at, attempt) for at in range(next_offset, offset))
            next_offset = offset + 1
            if timestamp_unix_ms < self._oldest_unix_ms:
                rest.gone.append((offset, attempt))
                continue
            if found_headers is not headers:
                headers = found_headers
                header_bytes, deadline_unix_ms = _size_and_expiry(headers)
            size_bytes = header_bytes if value is None else header_bytes + len(value)
            if self._is_over(deadline_unix_ms, timestamp_unix_ms, attempt) or (
                timestamp_unix_ms < self._oldest_alive_unix_ms
                and arrival_unix_ms(record) < self._oldest_alive_unix_ms
            ):
                rest.expired.append((offset, attempt))
            elif size_bytes > self._left_bytes and (delivered or good):
                self._left_bytes = _NOTHING_LEFT  # what follows goes back too: order is kept
                rest.back.append((offset, attempt))
            else:
                self._left_bytes -= size_bytes
                good.append(offset)
        rest.gone.extend((at, attempt) for at in range(next_offset, offsets.stop))
        delivered += [
            DeliveredRange(partition, part, attempt, first_taken_unix_ms, failed_count, batch)
            for part in contiguous_ranges(good)
        ]
        return self._left_bytes

    def _is_over(
        self, deadline_unix_ms: int | None, timestamp_unix_ms: int, attempt: int
    ) -> bool:
        if deadline_unix_ms is None:
            return False
        if (
            self._takes_at_once  # else nothing but this would end it
            and attempt == 1
            and timestamp_unix_ms - _AT_ONCE_MS <= deadline_unix_ms <= timestamp_unix_ms
        ):
            return False
        clock = self._clock
        deadline = clock.steady_deadline(deadline_unix_ms, timestamp_unix_ms)
        return deadline <= clock.steady_unix_ms()


class _Oldest(NamedTuple):
    """Lowest times of messages that may be delivered, in unix ms.

    ``retained``: by the retention, ``alive``: by the TTL of the queue. ``takes_at_once``:
    messages that live 0 ms may be delivered, as ``gateway.queues.head_expiry`` ends them otherwise.
    """

    retained_unix_ms: int
    alive_unix_ms: int
    takes_at_once: bool


class DeliveryFilter:
    """Filter for messages taken of one queue."""

    def __init__(self, context: QueueContext) -> None:
        self._context = context

    def filter_found(
        self,
        parts: list[FoundPart],
        bytes_max: int,
        settings: QueueSettings,
        *,
        has_waited: bool,
    ) -> list[DeliveredRange]:
        """Return the deliverable messages of those taken, and settle or requeue the others.

        ``has_waited``: for a consumer, or a receive that waits: they get messages that live 0 ms.
        The first message is delivered whatever its size. Messages beyond the retention are
        dropped; expired or undecodable ones are dead letters.
        """
        delivered: list[DeliveredRange] = []
        clock = self._context.clock
        oldest_unix_ms = retained_unix_ms = oldest_kept(clock, settings.retention_ms)
        ttl_ms = settings.message_ttl_ms
        if ttl_ms >= 0:
            # A message arrives and is over in one millisecond where its TTL is 0.
            oldest_unix_ms = max(retained_unix_ms, clock.unix_ms_ago(ttl_ms) + 1)
        left_bytes = bytes_max
        for lane, found in parts:
            rest = _Rest([], [], [], [])
            for one in found:
                batch = one.batch
                if isinstance(batch, Unreadable):
                    rest.of(batch).extend(_ids_of(one))
                    continue
                if batch.runs is None:
                    self._context.message_cache.decode(one.partition, batch)
                    if batch.is_corrupt:
                        rest.corrupt.extend(_ids_of(one))
                        continue
                oldest_of_batch_unix_ms, may_expire = batch.limits
                if (
                    batch.is_dense
                    and not may_expire
                    and oldest_of_batch_unix_ms >= oldest_unix_ms
                    and batch.read_bytes <= min(left_bytes, _SMALL_BYTES)
                ):
                    left_bytes -= batch.read_bytes  # at least what the messages have
                    delivered.append(_as_delivered(one))
                    continue
                is_at_once = ttl_ms == 0 and one.attempt == 1 and has_waited
                oldest = _Oldest(
                    retained_unix_ms,
                    I64_MIN if ttl_ms < 0 or is_at_once else clock.unix_ms_ago(ttl_ms) + 1,
                    has_waited and (ttl_ms >= 0 or bool(settings.dead_letter_exchange)),
                )
                looking = _Looking(clock, oldest, left_bytes, rest)
                self._context.message_cache.decode(one.partition, batch)
                left_bytes = looking.look(one, batch, delivered)
            if any(rest):
                self._see_to(lane, rest)
        return delivered

    def release_taken(self, parts: list[TakenPart], *, delay_ms: int = 0) -> None:
        """Release taken messages, without counting the attempt."""
        for lane, taken in parts:
            ids = [(at, one.attempt) for one in taken for at in one.offsets]
            self._release(lane, ids, delay_ms)

    def _see_to(self, lane: QueueLane, rest: _Rest) -> None:
        counters = lane.owner.counters
        now = self._context.clock.steady_unix_ms()
        if rest.gone:
            lane.done(lane.lane.ack(rest.gone, now=now)[1])
        if rest.expired:
            counters.expired += len(rest.expired)
            lane.done(lane.lane.reject(rest.expired, reason=EXPIRED, now=now)[1])
        if rest.corrupt:
            counters.corrupt += len(rest.corrupt)
            lane.done(lane.lane.reject(rest.corrupt, reason=CORRUPT, now=now)[1])
        if rest.back:
            self._release(lane, rest.back, 0)

    def _release(self, lane: QueueLane, ids: list[Id], delay_ms: int) -> None:
        now = self._context.clock.steady_unix_ms()
        _, effects = lane.lane.release(
            ids, delay_ms=delay_ms, now=now, ending=DeliveryEnd.UNSEEN
        )
        lane.done(effects)


def expires_unix_ms(body: Body, clock: Clock) -> int | None:
    """Return a message's expiry in steady time, None without one."""
    if isinstance(body, Unreadable):
        return None
    _, deadline_unix_ms = _size_and_expiry(body.headers)
    if deadline_unix_ms is None:
        return None
    return clock.steady_deadline(deadline_unix_ms, body.timestamp_unix_ms)


def _size_and_expiry(headers: Headers) -> tuple[int, int | None]:
    """Return the size of a message's headers and its last expiry header."""
    size_bytes = 0
    deadline_unix_ms = None
    for name, value in headers:
        if value is None:
            continue
        size_bytes += len(name) + len(value)
        if name == EXPIRES_AT and (said := unix_ms_in(value)) is not None:
            deadline_unix_ms = said
    return size_bytes, deadline_unix_ms


def _ids_of(found: FoundRange) -> Iterator[Id]:
    return ((offset, found.attempt) for offset in found.offsets)
