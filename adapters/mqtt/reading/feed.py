"""Feeds: partitions of the log that hold MQTT messages, each followed from its live end.

The tail of a feed passes every run to the distributor once. Followers behind it read older runs.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import structlog

from adapters.mqtt.mapping import mixed_runs_of_batch, runs_of_batch
from adapters.mqtt.reading.slow_receivers import NO_BOUNDS, LagBounds, SlowReceivers
from adapters.mqtt.records.foreign_batches import (
    decode_beside,
    handed_out_together,
    kept_bytes,
)
from adapters.mqtt.records.mixed_topic_batch import MixedTopicBatch, end_offset
from adapters.mqtt.records.native_runs import runs_of_native, was_live, were_live
from adapters.mqtt.records.record_kinds import CORRUPT_BATCH
from adapters.mqtt.route_config import RouteConfig
from adapters.mqtt.wire import PublishRun
from gateway.broker import Broker
from gateway.clock import Clock
from gateway.errors import GatewayError, OffsetOutOfRange
from gateway.model import Buffer, parse_batch_header
from gateway.partition import Partition
from gateway.reader import MAX_INT64
from gateway.records.decoding_cost import is_large
from gateway.storage import KeySpans, WantedKeys
from gateway.tail import Tail
from gateway.writer import Write

RECENT_BATCHES_MAX: Final = 128
RECENT_BYTES_MAX: Final = 16 << 20  # of batches as they are stored, for each partition
READ_BYTES_MAX: Final = 256 * 1024
READ_BYTES_PER_MESSAGE: Final = 1024  # of messages read by offset; a batch is read whole
RETRY_S: Final = 1.0  # before a read that failed is tried again

log = structlog.get_logger()


class Live(Protocol):
    """Delivery of new messages to connected receivers."""

    @property
    def wants_runs(self) -> bool:
        """Whether there are receivers; without them nothing is decoded."""
        ...

    def deliver(self, run: PublishRun, feed: "Feed") -> None:
        """Deliver a run; called once for each run, in the order of its partition."""
        ...


class Feed:
    """One partition, followed from its end. Records before ``live_offset`` were delivered."""

    def __init__(  # noqa: PLR0913, PLR0917 - its surroundings, made once
        self,
        broker: Broker,
        partition: Partition,
        route: RouteConfig,
        live: Live,
        skipped: Counter[str],
        clock: Clock,
        bounds: LagBounds = NO_BOUNDS,
    ) -> None:
        self.partition = partition
        self.partition_id = partition.partition_id
        self.live_offset = partition.stable_end
        self.on_new_foreign: Callable[[PublishRun], None] | None = None
        self._broker = broker
        self._route = route
        self._live = live
        self._skipped = skipped
        self._clock = clock
        self._recent: OrderedDict[int, list[PublishRun]] = OrderedDict()
        self._sizes: dict[int, int] = {}
        self._recent_bytes = 0
        self.slow_receivers = SlowReceivers(self, clock, bounds)
        self._tail: Tail | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._beside: asyncio.Task[None] | None = None  # while a large batch is delivered
        self._follow()

    @property
    def log_start_offset(self) -> int:
        """First offset that the partition still has."""
        return self.partition.log_start_offset

    def close(self) -> None:
        """Follow no more."""
        self.slow_receivers.close()
        if self._tail is not None:
            self._tail.close()
            self._tail = None
        if self._retry is not None:
            self._retry.cancel()
        if self._beside is not None:
            self._beside.cancel()
        self._recent.clear()
        self._sizes.clear()
        self._recent_bytes = 0

    def push_held(self) -> None:
        """Deliver now what the loop's next turn would: its publishers may be answered."""
        if self._tail is not None:
            self._tail.push_held()

    # --- gateway.tail.Receiver

    def on_writes(self, partition: Partition, writes: Sequence[Write]) -> bool:  # noqa: ARG002
        """See ``Receiver``: deliver new batches; those of MQTT come with their runs."""
        for write in writes:
            natives = write.natives
            end = write.end_offset
            if natives is None:
                if self._waits_for_thread(write.batch, write.base_offset):
                    return True  # the tail is closed; the rest is read from the log
                self._hand_out_foreign(write.batch, write.base_offset)
            elif self._live.wants_runs and not were_live(natives):
                # A run that was cut into several batches is beside each of them, and delivered
                # whole with the first: the other batches are in the same append.
                runs: list[PublishRun] = []
                new: list[PublishRun] = []
                for offset, native in natives:
                    is_new = offset >= write.base_offset
                    for run in runs_of_native(native):
                        run.base_offset = offset
                        offset += len(run.payloads)  # noqa: PLW2901 - of the next of its runs
                        runs.append(run)
                        if is_new:
                            new.append(run)
                            end = max(end, offset)
                self._keep(write.base_offset, runs, write.size_bytes)
                self._hand_out(new)
            self._advance(end, write.batch, natives or ())
        return True

    def _advance(
        self, end: int, batch: Buffer, natives: Sequence[tuple[int, object]] = ()
    ) -> None:
        """Set the live end: all records below ``end`` were delivered."""
        self.live_offset = max(self.live_offset, end)
        self.slow_receivers.on_batch(natives, len(batch), self.live_offset)

    def on_batches(self, partition: Partition, batches: Sequence[Buffer]) -> bool:  # noqa: ARG002
        """See ``Receiver``: deliver batches read from the log, when the tail was not at its end.

        Messages that came by MQTT at QoS 0 since this feed began were delivered already.
        """
        for batch in batches:
            header = parse_batch_header(batch)
            if header.last_offset < self.live_offset:
                continue
            if self._waits_for_thread(batch, header.base_offset, may_have_been_live=True):
                return True
            self._hand_out_foreign(batch, header.base_offset, may_have_been_live=True)
            self._advance(header.last_offset + 1, batch)
        return True

    def on_tail_error(self, partition: Partition, error: GatewayError) -> None:
        """See ``Receiver``: continue at the start of the log, or try again after ``RETRY_S``."""
        self._tail = None
        if partition.is_gone:
            return
        log.warning("feed", topic=partition.topic.name.name, error=str(error))
        if isinstance(error, OffsetOutOfRange):
            self.live_offset = max(self.live_offset, partition.log_start_offset)
            self._follow()
        else:
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._follow)

    def _follow(self) -> None:
        self._retry = None
        self._tail = self._broker.tail(self.partition, self.live_offset, self)

    def _hand_out_foreign(
        self, batch: Buffer, base_offset: int, *, may_have_been_live: bool = False
    ) -> None:
        """Decode and deliver a batch of another protocol, or one that was read from the log."""
        if not self._is_looked_into:
            return
        runs = self._decode(batch, base_offset, is_stored=may_have_been_live)
        self._keep(base_offset, runs, kept_bytes(batch, runs))
        self._hand_out_decoded(runs, may_have_been_live=may_have_been_live)

    @property
    def _is_looked_into(self) -> bool:
        return self._live.wants_runs or self.on_new_foreign is not None

    def _waits_for_thread(
        self, batch: Buffer, base_offset: int, *, may_have_been_live: bool = False
    ) -> bool:
        """Start to decode a large batch in a thread; False for a small one.

        The tail is closed, and goes on behind the batch when it is delivered.
        """
        if not (self._is_looked_into and is_large(parse_batch_header(batch))):
            return False
        self.live_offset = max(self.live_offset, base_offset)
        if self._tail is not None:
            self._tail.close()
            self._tail = None
        self._beside = asyncio.get_running_loop().create_task(
            self._hand_out_large(batch, base_offset, may_have_been_live=may_have_been_live)
        )
        self._beside.add_done_callback(_raise_bug)
        return True

    async def _hand_out_large(
        self, batch: Buffer, base_offset: int, *, may_have_been_live: bool
    ) -> None:
        """Decode a large batch in a thread; deliver some of its runs in each turn of the loop."""
        runs = await self._decode_beside(batch, is_stored=may_have_been_live)
        self._keep(base_offset, runs, kept_bytes(batch, runs))
        for some in handed_out_together(runs):
            self._hand_out_decoded(some, may_have_been_live=may_have_been_live)
            self.live_offset = max(self.live_offset, end_offset(some[-1]))
            await asyncio.sleep(0)
        last_offset = base_offset + parse_batch_header(batch).last_offset_delta
        self._advance(last_offset + 1, batch)
        self._beside = None
        self._follow()

    def _hand_out_decoded(
        self, runs: Sequence[PublishRun], *, may_have_been_live: bool
    ) -> None:
        # Messages of a cut run that were delivered with its first batch are left out.
        runs = [_from_offset(run, self.live_offset) for run in runs if self._is_new(run)]
        for run in runs:
            if may_have_been_live and was_live(run):
                run.live_number = 0 if run.qos else self.slow_receivers.see(run)
            elif run.retain and self.on_new_foreign is not None:
                self.on_new_foreign(run)
        self._hand_out(runs)

    def _is_new(self, run: PublishRun) -> bool:
        return end_offset(run) > self.live_offset

    def _hand_out(self, runs: Sequence[PublishRun]) -> None:
        deliver = self._live.deliver
        for run in runs:
            if run.live_number:
                continue
            try:
                deliver(run, self)
            except Exception:
                # A bug in the delivery of one message must not stop the others.
                self._skipped["bug"] += len(run.payloads)
                log.exception("message not delivered", topic=run.topic[:80])

    # --- reading again

    async def read(
        self, offset: int, *, end: int | None = None
    ) -> tuple[list[PublishRun], int]:
        """Return the runs at or after ``offset``, from one or more batches, and the next offset.

        The first run may begin before ``offset``. Batches at or after ``end`` are not decoded:
        redelivery of one message does not pay for hundreds behind it. Errors:
        ``OffsetOutOfRange`` when retention has deleted the offset, ``StorageUnavailable``,
        ``TopicNotFound``.
        """
        bytes_max = READ_BYTES_MAX
        if end is not None:
            bytes_max = min(bytes_max, (end - offset) * READ_BYTES_PER_MESSAGE)
        batches = await self.read_batches(offset, bytes_max=bytes_max)
        found: list[PublishRun] = []
        next_offset = offset
        for batch in batches:
            header = parse_batch_header(batch)
            if end is not None and header.base_offset >= end:
                break
            runs = self._recent.get(header.base_offset)
            if runs is None:
                if is_large(header):
                    runs = await self._decode_beside(batch, is_stored=True)
                else:
                    runs = self._decode(batch, header.base_offset, is_stored=True)
                self._keep(header.base_offset, runs, kept_bytes(batch, runs))
            for run in runs:
                # A run that was cut is whole in the cache of each batch, or decoded in parts.
                covered = end_offset(found[-1]) if found else run.base_offset
                if end_offset(run) > covered:
                    found.append(_from_offset(run, covered))
            next_offset = header.last_offset + 1
        return found, next_offset

    async def read_batches(
        self, offset: int, *, bytes_max: int, end: int = MAX_INT64
    ) -> Sequence[Buffer]:
        """Return the batches that overlap [offset, end), in order. Errors: those of ``read``."""
        batches = self._broker.read(self.partition, offset, bytes_max=bytes_max, end=end)
        if batches is None:
            batches = await self._broker.read_disk(
                self.partition, offset, bytes_max=bytes_max, end=end
            )
        return batches

    @property
    def has_key_spans(self) -> bool:
        """Whether the storage has an index of keys for ``spans_with_keys``."""
        return self._broker.has_key_spans

    async def spans_with_keys(self, keys: WantedKeys, start: int, end: int) -> KeySpans:
        """Return the offsets where messages of wanted topics may be; see ``IndexedStorage``."""
        return await self._broker.spans_with_keys(self.partition, keys, start, end)

    def runs_of(
        self, batch: Buffer, wants: Callable[[bytes], bool] | None
    ) -> Sequence[PublishRun | MixedTopicBatch]:
        """Return the runs of a batch whose topics ``wants`` accepts, or all if they are cached.

        Runs decoded for some topics are not cached: the cache holds whole batches.
        """
        base_offset = parse_batch_header(batch).base_offset
        runs = self._recent.get(base_offset)
        if runs is not None:
            return runs
        if not self._is_intact(batch):
            return []
        return mixed_runs_of_batch(
            batch,
            self._route,
            from_offset=base_offset,
            skipped=self._skipped,
            wants=wants,
            steady_deadline=self._clock.steady_deadline,
        )

    async def runs_of_large(
        self, batch: Buffer
    ) -> Sequence[PublishRun | MixedTopicBatch] | None:
        """Decode a large batch in a thread and return its runs; None for a small one."""
        header = parse_batch_header(batch)
        if not is_large(header) or header.base_offset in self._recent:
            return None
        if not self._is_intact(batch):
            return []
        deadline = self._clock.steady_deadline
        return await decode_beside(
            mixed_runs_of_batch, batch, self._route, self._skipped, deadline
        )

    def _is_intact(self, batch: Buffer) -> bool:
        """Check the checksum of a batch that was read from the log."""
        is_intact = self._broker.stored.is_intact(self.partition, batch)
        self._skipped[CORRUPT_BATCH] += not is_intact
        return is_intact

    async def _decode_beside(self, batch: Buffer, *, is_stored: bool) -> list[PublishRun]:
        if is_stored and not self._is_intact(batch):
            return []
        deadline = self._clock.steady_deadline
        return await decode_beside(runs_of_batch, batch, self._route, self._skipped, deadline)

    def _decode(self, batch: Buffer, base_offset: int, *, is_stored: bool) -> list[PublishRun]:
        if is_stored and not self._is_intact(batch):
            return []
        return runs_of_batch(
            batch,
            self._route,
            from_offset=base_offset,
            skipped=self._skipped,
            steady_deadline=self._clock.steady_deadline,
        )

    def _keep(self, base_offset: int, runs: list[PublishRun], size_bytes: int) -> None:
        """Cache the decoded runs of a batch: receivers with small windows read it again."""
        recent, sizes = self._recent, self._sizes
        self._recent_bytes += size_bytes - sizes.get(base_offset, 0)
        recent[base_offset] = runs
        sizes[base_offset] = size_bytes
        while len(recent) > RECENT_BATCHES_MAX or self._recent_bytes > RECENT_BYTES_MAX:
            oldest, _ = recent.popitem(last=False)
            self._recent_bytes -= sizes.pop(oldest)


def _raise_bug(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.result()


def _from_offset(run: PublishRun, offset: int) -> PublishRun:
    """Return the messages of a run from ``offset`` on."""
    if run.base_offset >= offset:
        return run
    part = run.part(run.payloads[offset - run.base_offset :], qos=run.qos)
    part.base_offset = offset
    return part
