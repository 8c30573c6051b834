"""Settling and extending of deliveries in batches, answered when all are durable."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from features.queue.model import Effects, Result, SettledRange
from features.queue.range_settling import ENDING_OF
from gateway.errors import StorageUnavailable
from gateway.queues.lanes import QueueContext, QueueLane
from gateway.queues.model import DeliveryId, Outcome
from gateway.storage import OnDone

OnRangesSettled = Callable[[list[int], StorageUnavailable | None], None]
OnSettled = Callable[[list[Result], StorageUnavailable | None], None]
Ids = list[tuple[int, int]]  # offset, attempt


class _SettleBatch:
    """Results of one call, and the number of journal entries they wait for."""

    __slots__ = ("_error", "_on_done", "_waits_for", "results")

    def __init__(self, count: int, on_done: OnSettled) -> None:
        self.results = [Result.GONE] * count
        self._on_done = on_done
        self._waits_for = 1  # for the end of the call itself
        self._error: StorageUnavailable | None = None

    def put(self, indexes: Sequence[int], results: Sequence[Result]) -> None:
        if len(indexes) == len(self.results):  # they ascend: all of them
            self.results = list(results)
            return
        for index, result in zip(indexes, results, strict=True):
            self.results[index] = result

    def wait(self) -> None:
        self._waits_for += 1

    def end_call(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the answer go out after the call has returned."""
        if self._waits_for > 1:
            self._waits_for -= 1
        else:
            loop.call_soon(self.arrived, None)

    def arrived(self, error: StorageUnavailable | None) -> None:
        self._error = error or self._error
        self._waits_for -= 1
        if not self._waits_for:
            self._on_done(self.results, self._error)


class _Acked:
    """Acknowledged messages of one lane, until the journal has them."""

    __slots__ = ("_ack_number", "_acked", "_lane", "_on_done")

    def __init__(
        self,
        lane: QueueLane,
        acked: Iterable[tuple[int, int]],
        ack_number: int,
        on_done: OnDone,
    ) -> None:
        self._lane = lane
        self._acked = acked
        self._ack_number = ack_number
        self._on_done = on_done

    def arrived(self, error: StorageUnavailable | None) -> None:
        """Finish the batch; after an error, acknowledged messages are in flight again."""
        end_ack(self._lane, self._ack_number, error, self._acked)
        self._on_done(error)


class _RangeAnswer:
    """Answer to one call of ``settle_ranges``; it waits for the journal, and for moves."""

    __slots__ = (
        "_counts",
        "_done",
        "_error",
        "_lane",
        "_on_done",
        "_ranges",
        "ack_number",
        "waits_for",
    )

    def __init__(
        self,
        lane: QueueLane,
        ranges: Sequence[SettledRange],
        counts: list[int],
        done: Sequence[range],
        on_done: OnRangesSettled,
    ) -> None:
        self._lane = lane
        self._ranges = ranges
        self._counts = counts
        self._done = done
        self._on_done = on_done
        self._error: StorageUnavailable | None = None
        self.ack_number = 0
        self.waits_for = 1

    def kept(self, error: StorageUnavailable | None) -> None:
        """See what became of the journal entry; acknowledged messages go on if it is not kept."""
        if self._done:
            end_ack(self._lane, self.ack_number, error, ids_of(self._done, self._ranges))
        self.arrived(error)

    def arrived(self, error: StorageUnavailable | None) -> None:
        """Answer when nothing is left to wait for."""
        self._error = error or self._error
        self.waits_for -= 1
        if not self.waits_for:
            self._on_done(self._counts, self._error)


class _Group:
    """Items of a batch for one lane, settled in one call."""

    __slots__ = ("ids", "indexes", "lease_ms")

    def __init__(self) -> None:
        self.indexes: list[int] = []
        self.ids: Ids = []
        self.lease_ms: list[int] = []


class Settler:
    """Settles delivered messages of one queue."""

    def __init__(self, context: QueueContext, on_freed: Callable[[], None]) -> None:
        self._context = context
        self._on_freed = on_freed
        self.lanes: Mapping[int, QueueLane] = {}

    def settle(
        self,
        items: Sequence[tuple[DeliveryId, Outcome]],
        on_done: OnSettled,
        *,
        delay_ms: int,
        reason: str,
    ) -> None:
        """See ``Queue.settle``."""
        batch = _SettleBatch(len(items), on_done)
        groups: dict[tuple[int, Outcome], _Group] = {}
        group: _Group | None = None
        key: tuple[int, Outcome] | None = None
        for index, ((number, offset, attempt), outcome) in enumerate(items):
            # What came together is mostly of one lane; an enum's hash is a call of Python's.
            if group is None or key != (number, outcome):
                key = (number, outcome)
                group = groups.setdefault(key, _Group())
            group.indexes.append(index)
            group.ids.append((offset, attempt))
        for (number, outcome), group in groups.items():
            lane = self.lanes.get(number)
            if lane is None:
                continue
            if outcome is Outcome.ACK:
                self._ack(lane, group, batch)
            elif outcome is Outcome.REJECT:
                self._reject(lane, group, batch, reason)
            else:
                now = self._context.clock.steady_unix_ms()
                results, effects = lane.lane.release(
                    group.ids, delay_ms=delay_ms, now=now, ending=ENDING_OF[outcome]
                )
                self._done(lane, group, batch, results, effects)
        self._on_freed()
        batch.end_call(self._context.loop)

    def settle_ranges(
        self,
        number: int,
        ranges: Sequence[SettledRange],
        on_done: OnRangesSettled,
        *,
        holder: int,
        delay_ms: int,
        reason: str,
    ) -> None:
        """See ``Queue.settle_ranges``."""
        lane = self.lanes.get(number)
        if lane is None:
            self._context.loop.call_soon(on_done, [0] * len(ranges), None)
            return
        counts, effects = lane.lane.settle_ranges(
            ranges,
            holder=holder,
            now=self._context.clock.steady_unix_ms(),
            delay_ms=delay_ms,
            reason=reason,
        )
        dead, effects.dead = effects.dead, []
        answer = _RangeAnswer(lane, ranges, counts, effects.done, on_done)
        if effects.done:
            answer.ack_number = lane.lane.ack_number
            for one in effects.done:
                lane.owner.counters.settled += len(one)
            if (tracer := self._context.broker.append_queue.tracer) is not None:
                for one in effects.done:
                    tracer.settled(lane.partition, one, "ack")
        if dead:
            answer.waits_for = 2
            self._context.mover.move_dead(lane, dead, answer.arrived)
        lane.done(effects, answer.kept)
        self._on_freed()

    def extend(
        self,
        items: Sequence[tuple[DeliveryId, int]],
        on_done: OnSettled,
        *,
        latest_only: bool,
    ) -> None:
        """See ``Queue.extend``."""
        batch = _SettleBatch(len(items), on_done)
        groups: dict[int, _Group] = {}
        for index, (delivery_id, lease_ms) in enumerate(items):
            group = groups.setdefault(delivery_id.number, _Group())
            group.indexes.append(index)
            group.ids.append((delivery_id.offset, delivery_id.attempt))
            group.lease_ms.append(lease_ms)
        now = self._context.clock.steady_unix_ms()
        for number, group in groups.items():
            lane = self.lanes.get(number)
            if lane is not None:
                results, effects = lane.lane.extend(
                    group.ids, lease_ms=group.lease_ms, now=now, latest_only=latest_only
                )
                self._done(lane, group, batch, results, effects)
        batch.end_call(self._context.loop)

    def _ack(self, lane: QueueLane, group: _Group, batch: _SettleBatch) -> None:
        now = self._context.clock.steady_unix_ms()
        results, effects = lane.lane.ack(group.ids, now=now)
        batch.put(group.indexes, results)
        if effects.journal is None:
            lane.done(effects)
            return
        batch.wait()
        acked: Ids = group.ids
        if results.count(Result.DONE) != len(results):
            found = zip(group.ids, results, strict=True)
            acked = [one for one, result in found if result is Result.DONE]
        lane.owner.counters.settled += len(acked)
        if (tracer := self._context.broker.append_queue.tracer) is not None:
            tracer.settled(lane.partition, [offset for offset, _ in acked], "ack")
        done = _Acked(lane, acked, lane.lane.ack_number, batch.arrived)
        lane.done(effects, done.arrived)

    def _reject(self, lane: QueueLane, group: _Group, batch: _SettleBatch, reason: str) -> None:
        """Settle a rejected message once it has moved."""
        now = self._context.clock.steady_unix_ms()
        results, effects = lane.lane.reject(group.ids, reason=reason, now=now)
        batch.put(group.indexes, results)
        dead, effects.dead = effects.dead, []
        lane.done(effects)
        if dead:
            batch.wait()
            self._context.mover.move_dead(lane, dead, batch.arrived)

    def _done(
        self,
        lane: QueueLane,
        group: _Group,
        batch: _SettleBatch,
        results: Sequence[Result],
        effects: Effects,
    ) -> None:
        batch.put(group.indexes, results)
        if effects.journal is None:
            lane.done(effects)
        else:
            batch.wait()
            lane.done(effects, batch.arrived)


def ids_of(done: Sequence[range], ranges: Sequence[SettledRange]) -> Iterator[tuple[int, int]]:
    """Yield (offset, attempt) of acknowledged messages, which are among ``ranges``."""
    attempts = {
        offset: attempt
        for offsets, attempt, outcome in ranges
        if outcome is Outcome.ACK
        for offset in offsets
    }
    for part in done:
        for offset in part:
            yield offset, attempts[offset]


def end_ack(
    lane: QueueLane,
    ack_number: int,
    error: StorageUnavailable | None,
    acked: Iterable[tuple[int, int]],
) -> None:
    """Forget acknowledged messages; after an error they are in flight again."""
    if error is None:
        lane.lane.kept(ack_number)
    else:
        lane.lane.put_back(list(acked))
        lane.done(Effects(wake=True))  # its floor is lower, and some may wait to go again
