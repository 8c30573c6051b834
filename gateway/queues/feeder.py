"""Feeder of a lane: a tail of its partition, paused when the lane knows enough messages."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from features.queue.lane import Lane
from features.queue.model import Effects, Order, Run
from gateway.broker import Broker
from gateway.clock import Clock
from gateway.errors import GatewayError, NotLeader, OffsetOutOfRange, TopicNotFound
from gateway.model import BatchHeader, Buffer, parse_batch_header
from gateway.partition import Partition, Write
from gateway.queues.batch_runs import (
    Delay,
    delayed_runs,
    keyed_runs,
    plain_run,
    priority_runs,
    runs_of_records,
)
from gateway.queues.delay_changes import LaneDelay, current_delay
from gateway.queues.lane_keys import LaneKeys
from gateway.queues.message_cache import MessageCache
from gateway.queues.model import EarlierDelay, QueueSettings
from gateway.records.decoding_cost import LOOP_WORK_MAX, decoding_cost_of
from gateway.tail import Tail

RETRY_S: Final = 1.0
RUNS_FED_MAX: Final = 4_096  # at a time, of what a thread has found: 10 ms of the loop

_Piece = tuple[Buffer, BatchHeader, int]  # a batch and its base offset

_log = structlog.get_logger()


class Feeder:
    """Feeds one lane. New batches are cached for the receives that follow."""

    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        partition: Partition,
        bodies: MessageCache,
        on_effects: Callable[[Effects], None],
    ) -> None:
        self._broker = broker
        self._clock = clock
        self._partition = partition
        self._bodies = bodies
        self._on_effects = on_effects
        self._lane: Lane | None = None
        self._tail: Tail | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._beside: asyncio.Task[None] | None = None
        self._behind = 0  # where the tail goes on that was closed for it
        self._keys: LaneKeys | None = None  # where the order is by key or priority
        self._delay = LaneDelay()
        self.is_paused = False

    def start(
        self, lane: Lane, settings: QueueSettings, earlier: Sequence[EarlierDelay]
    ) -> None:
        """Start to feed a lane, from ``fed_end`` on."""
        self.close()
        self._lane = lane
        self.configure(settings, earlier)
        self._open(lane)

    def configure(self, settings: QueueSettings, earlier: Sequence[EarlierDelay]) -> None:
        """Apply changed settings; messages fed already stay as they are."""
        self._keys = LaneKeys(settings) if settings.order is not Order.NONE else None
        number = self._partition.number
        self._delay = current_delay(settings, earlier, number, self._clock.unix_ms())

    @property
    def delay_ms(self) -> int:
        """Delay of the queue, used for feeding."""
        return self._delay.delay_ms

    def _is_delayed(self, base_offset: int) -> bool:
        """Return whether batches from that offset on must be decoded for their delays."""
        return self._delay.delay_ms > 0 or base_offset < self._delay.earlier_end

    def feed_held(self) -> None:
        """Feed batches that became readable in this turn of the loop."""
        if self._tail is not None:
            self._tail.push_held()

    def resume(self) -> None:
        """Go on after the lane needs more."""
        if not self.is_paused:
            return
        self.is_paused = False
        if self._tail is not None:
            self._tail.resume()
        elif self._beside is None and self._lane is not None:
            self._open(self._lane, from_offset=self._behind)

    def close(self) -> None:
        """Stop feeding."""
        if self._tail is not None:
            self._tail.close()
            self._tail = None
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self._beside is not None:
            self._beside.cancel()
            self._beside = None
        self.is_paused = False

    def _open(self, lane: Lane, *, from_offset: int = 0) -> None:
        """Tail the partition; messages missing at the log's start were deleted."""
        partition = self._partition
        end = partition.log_end_offset
        if partition.is_gone:
            return
        if lane.fed_end > end:  # the journal is not of this log
            _log.error(
                "queue position is above the log end and was reset", partition=repr(partition)
            )
            self._on_effects(lane.seek(end, end_offset=end))
        if lane.fed_end < partition.log_start_offset:
            self._on_effects(lane.expire_before(partition.log_start_offset))
        offset = max(lane.fed_end, partition.log_start_offset, from_offset)
        self._tail = self._broker.tail(partition, offset, self)

    # --- gateway.tail.Receiver

    def on_batches(self, partition: Partition, batches: Sequence[Buffer]) -> bool:
        """See ``Receiver``."""
        runs: list[Run] = []
        work = 0
        for index, batch in enumerate(batches):
            header = parse_batch_header(batch)
            is_delayed = self._is_delayed(header.base_offset)
            work += self._work(header, header.base_offset)
            if work > LOOP_WORK_MAX:
                rest = [_piece(one) for one in batches[index:]]
                return self._feed_beside(runs, rest, is_stored=True)
            if self._keys is not None and not is_delayed and not header.is_control:
                records = self._bodies.keep_read(partition, batch, header)
                runs += runs_of_records(records, header, self._keys)
            else:
                self._note(runs, _piece(batch), is_stored=True)
        return self._feed(runs, end=header.last_offset + 1)

    def on_writes(self, partition: Partition, writes: Sequence[Write]) -> bool:
        """See ``Receiver``.

        Batches whose runs are known without decoding are all fed while the lane has room: to read
        and decode them later costs 2 us a message.
        """
        runs: list[Run] = []
        is_told = True
        work = 0
        for index, write in enumerate(writes):
            is_delayed = self._is_delayed(write.base_offset)
            if write.runs is None:
                work += self._work(write.header, write.base_offset)
            if work > LOOP_WORK_MAX:
                rest = [(one.batch, one.header, one.base_offset) for one in writes[index:]]
                return self._feed_beside(runs, rest, is_stored=False)
            if self._keys is None and not is_delayed:  # and its bytes are not needed
                if not write.header.is_control:
                    runs += plain_run(write.base_offset, write.end_offset - 1)
            elif write.runs is not None and self._keys is not None and not is_delayed:
                runs += self._keys.runs_of(write.runs, write.base_offset)
            else:
                self._note(runs, (write.batch, write.header, write.base_offset))
                is_told = False
            if type(write.stored.batch) is bytearray:  # a view would keep all of its request
                self._bodies.keep(partition, write)
        return self._feed(runs, is_told=is_told)

    def on_tail_error(self, partition: Partition, error: GatewayError) -> None:
        """See ``Receiver``: start again, at once or after a pause."""
        self.close()
        lane = self._lane
        if lane is None or isinstance(error, (TopicNotFound, NotLeader)):
            return
        if isinstance(error, OffsetOutOfRange):
            self._open(lane)
            return
        _log.warning("queue is not fed", partition=repr(partition), error=str(error))
        loop = asyncio.get_running_loop()
        self._retry = loop.call_later(RETRY_S, self._open, lane)

    # --- decoding in a thread

    def _feed_beside(self, runs: list[Run], rest: Sequence[_Piece], *, is_stored: bool) -> bool:
        """Feed ``runs``, then batches decoded in a thread; the tail is closed meanwhile."""
        self._feed(runs)
        assert self._tail is not None
        self._tail.close()
        self._tail = None
        self._beside = asyncio.get_running_loop().create_task(
            self._look(rest, is_stored=is_stored)
        )
        self._beside.add_done_callback(_raise_bug)
        return True  # the tail is closed, and asks nobody any more

    async def _look(self, rest: Sequence[_Piece], *, is_stored: bool) -> None:
        """Feed the runs of batches decoded in a thread, then tail behind the last one.

        When the lane knows enough, the rest is left to the tail that ``resume`` opens. A restart
        of the lane cancels this: ``close`` ends it.
        """
        for piece in rest:
            _, header, base_offset = piece
            self._behind = base_offset
            if self.is_paused:
                break
            runs: list[Run] = []
            await asyncio.to_thread(self._note, runs, piece, is_stored=is_stored)
            for start in range(0, len(runs), RUNS_FED_MAX):
                self._feed(runs[start : start + RUNS_FED_MAX])
                await asyncio.sleep(0)  # others have their turn
            self._behind = base_offset + header.last_offset_delta + 1
            self._feed([], end=self._behind)
        self._beside = None
        if not self.is_paused and self._lane is not None:
            self._open(self._lane, from_offset=self._behind)

    # --- batch runs

    def _work(self, header: BatchHeader, base_offset: int) -> int:
        """Return the cost of finding a batch's runs, as ``decoding_cost_of``."""
        is_read = self._keys is not None or self._is_delayed(base_offset)
        return decoding_cost_of(header) if is_read and not header.is_control else 0

    def _note(self, runs: list[Run], piece: _Piece, *, is_stored: bool = False) -> None:
        """Add the runs of a batch to ``runs``. May run in a thread: nothing else is changed.

        A ``stored`` batch is checked before decoding; a damaged one is one run.
        """
        batch, header, base_offset = piece
        if header.is_control:
            return
        keys = self._keys
        is_read = keys is not None or self._is_delayed(base_offset)
        if is_stored and is_read and not self._broker.stored.is_intact(self._partition, batch):
            runs += plain_run(base_offset, base_offset + header.last_offset_delta)
            return
        if self._is_delayed(base_offset):
            now_unix_ms = self._clock.unix_ms()
            step_ms = self._clock.steady_unix_ms() - now_unix_ms
            delay = Delay(self._delay, now_unix_ms, step_ms)
            runs += delayed_runs(batch, base_offset, header, delay, keys)
        elif keys is None:
            runs += plain_run(base_offset, base_offset + header.last_offset_delta)
        elif keys.by_priority:
            runs += priority_runs(batch, base_offset, header, keys)
        else:
            runs += keyed_runs(batch, header, base_offset)

    def _feed(self, runs: list[Run], *, is_told: bool = False, end: int = 0) -> bool:
        """Feed runs; there is nothing else below ``end``. False when the lane is full."""
        lane = self._lane
        assert lane is not None
        self._on_effects(lane.feed(runs, self._clock.steady_unix_ms()))
        if end > lane.fed_end:
            lane.pass_to(end)
        self.is_paused = not (lane.has_room if is_told else lane.wants_more)
        return not self.is_paused


def _raise_bug(task: asyncio.Task[None]) -> None:
    """Report an error through the loop's exception handler."""
    if not task.cancelled():
        task.result()


def _piece(batch: Buffer) -> _Piece:
    header = parse_batch_header(batch)
    return batch, header, header.base_offset
