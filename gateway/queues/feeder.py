"""Telling a lane which messages there are: a tail of its partition, paused when it knows enough."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from features.queue.lane import Lane
from features.queue.model import Effects, Order, Run
from gateway.broker import Broker
from gateway.clock import Clock
from gateway.errors import GatewayError, OffsetOutOfRange, TopicNotFound
from gateway.model import BatchHeader, Octets, parse_batch_header
from gateway.partition import Partition, Write
from gateway.queues.bodies import Bodies
from gateway.queues.delay_changes import LaneDelay, lane_delay
from gateway.queues.marks import Delay, delayed_runs, keyed_runs, runs_of_records
from gateway.queues.model import EarlierDelay, QueueSettings
from gateway.records.of_runs import keys_of_runs
from gateway.waiting import Tail

RETRY_S: Final = 1.0

_log = structlog.get_logger()


class Feeder:
    """Feeds one lane. What comes live is kept for those who take it in a moment."""

    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        partition: Partition,
        bodies: Bodies,
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
        self._with_keys = False
        self._delay = LaneDelay()
        self.is_paused = False

    def start(
        self, lane: Lane, settings: QueueSettings, earlier: Sequence[EarlierDelay]
    ) -> None:
        """Feed a lane from where what it knows ends."""
        self.close()
        self._lane = lane
        self.configure(settings, earlier)
        self._open(lane)

    def configure(self, settings: QueueSettings, earlier: Sequence[EarlierDelay]) -> None:
        """Go by other settings from now on; what was fed stays as it is."""
        self._with_keys = settings.order is not Order.NONE
        number = self._partition.number
        self._delay = lane_delay(settings, earlier, number, self._clock.unix_ms())

    @property
    def delay_ms(self) -> int:
        """The queue's own delay, by which it feeds."""
        return self._delay.delay_ms

    def _is_delayed(self, base_offset: int) -> bool:
        """Whether what begins there has to be looked at for when it is visible."""
        return self._delay.delay_ms > 0 or base_offset < self._delay.earlier_end

    def feed_held(self) -> None:
        """Feed what became readable in this turn of the loop, not only in the next one."""
        if self._tail is not None:
            self._tail.push_held()

    def resume(self) -> None:
        """The lane wants more again."""
        if self.is_paused and self._tail is not None:
            self.is_paused = False
            self._tail.resume()

    def close(self) -> None:
        """Feed nothing more."""
        if self._tail is not None:
            self._tail.close()
            self._tail = None
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self.is_paused = False

    def _open(self, lane: Lane) -> None:
        """Tail the partition; what a lane misses at the log's start is gone."""
        partition = self._partition
        end = partition.log_end_offset
        if partition.is_gone:
            return
        if lane.fed_end > end:  # the journal is not of this log
            _log.error(
                "queue is ahead of its partition, and goes back", partition=repr(partition)
            )
            self._on_effects(lane.seek(end, end_offset=end))
        if lane.fed_end < partition.log_start_offset:
            self._on_effects(lane.expire_before(partition.log_start_offset))
        offset = max(lane.fed_end, partition.log_start_offset)
        self._tail = self._broker.tail(partition, offset, self)

    # --- gateway.waiting.Receiver

    def on_batches(self, partition: Partition, batches: Sequence[Octets]) -> bool:
        """See ``Receiver``."""
        runs: list[Run] = []
        for batch in batches:
            header = parse_batch_header(batch)
            is_delayed = self._is_delayed(header.base_offset)
            if self._with_keys and not is_delayed and not header.is_control:
                records = self._bodies.keep_read(partition, batch, header)
                runs += runs_of_records(records, header)
            else:
                self._note(runs, batch, header, header.base_offset)
        return self._feed(runs)

    def on_writes(self, partition: Partition, writes: Sequence[Write]) -> bool:
        """See ``Receiver``.

        Of what tells its keys itself the lane takes as much as comes, when it has room for the
        runs: to read and decode it later costs 2 us a message.
        """
        runs: list[Run] = []
        is_told = True
        for write in writes:
            is_delayed = self._is_delayed(write.base_offset)
            if write.runs is not None and self._with_keys and not is_delayed:
                runs += [Run(*one) for one in keys_of_runs(write.runs, write.base_offset)]
            else:
                self._note(runs, write.batch, write.header, write.base_offset)
                is_told = is_told and not (self._with_keys or is_delayed)
            if type(write.batch) is bytearray:  # a view would keep all of its request
                self._bodies.keep(partition, write)
        return self._feed(runs, is_told=is_told)

    def on_tail_error(self, partition: Partition, error: GatewayError) -> None:
        """See ``Receiver``: begin anew where there is something, or a while later."""
        self.close()
        lane = self._lane
        if lane is None or isinstance(error, TopicNotFound):
            return
        if isinstance(error, OffsetOutOfRange):
            self._open(lane)
            return
        _log.warning("queue is not fed", partition=repr(partition), error=str(error))
        loop = asyncio.get_running_loop()
        self._retry = loop.call_later(RETRY_S, self._open, lane)

    # --- marks

    def _note(
        self, runs: list[Run], batch: Octets, header: BatchHeader, base_offset: int
    ) -> None:
        if header.is_control:
            return
        if self._is_delayed(base_offset):
            now_unix_ms = self._clock.unix_ms()
            step_ms = self._clock.steady_unix_ms() - now_unix_ms
            delay = Delay(self._delay, now_unix_ms, step_ms)
            runs += delayed_runs(batch, base_offset, header, delay, with_keys=self._with_keys)
        elif self._with_keys:
            runs += keyed_runs(batch, header, base_offset)
        else:
            runs.append(Run(base_offset, base_offset + header.last_offset_delta, None))

    def _feed(self, runs: list[Run], *, is_told: bool = False) -> bool:
        lane = self._lane
        assert lane is not None
        self._on_effects(lane.feed(runs, self._clock.steady_unix_ms()))
        self.is_paused = not (lane.has_room if is_told else lane.wants_more)
        return not self.is_paused
