"""The internal topic ``__delays``: read at a start, cut off at its front, kept small.

What is in front of the first message that waits is cut off once a second. When the stream
exceeds twice its live bytes and some room, what lives in its oldest part is appended again, a
bounded part at a time, until it does not.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from features.delay.entries import (
    Ended,
    Purged,
    count_of,
    decode_other,
    encode_removed,
    is_waiting,
    parse_waiting,
)
from features.delay.message_locations import MessageLocation
from features.delay.state import DelayState
from gateway.broker import Broker
from gateway.clock import Clock
from gateway.delays.batches import values_of
from gateway.delays.due_batch import entry_writes
from gateway.errors import GatewayError, StorageUnavailable
from gateway.model import DEFAULT_NAMESPACE, Buffer, TopicName, parse_batch_header
from gateway.partition import Partition
from gateway.topics.internal import internal_topic
from gateway.topics.manager import Topic, TopicManager

DELAYS_TOPIC: Final = "__delays"
ROOM_BYTES: Final = 64 << 20
ENTRY_OVERHEAD_BYTES: Final = 16  # what a record has beside its value
CHECK_S: Final = 1.0
NUMBER_MAX: Final = (1 << 64) - 1

HomeOf = Callable[[bytes, int], int | None]
"""Shard of a message by its topic's uuid and partition; None when the topic was deleted."""

_READ_BYTES: Final = 1 << 20
_CONFIGS: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
    "max.message.bytes": str(48 << 20),  # above that of any topic, with its headers
}

log = structlog.get_logger()


class DelayStream:
    """Owner of the log of delayed messages. Call ``load`` first."""

    def __init__(
        self,
        partition: Partition,
        broker: Broker,
        clock: Clock,
        state: DelayState,
        *,
        room_bytes: int = ROOM_BYTES,
    ) -> None:
        self.partition = partition
        self._broker = broker
        self.clock = clock
        self.state = state
        self.misplaced: dict[int, int] = {}
        """Shard of entries that were loaded and are in another than their own, by number."""
        self._room_bytes = room_bytes
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._rewrite: asyncio.Task[None] | None = None
        self.rewrites = 0

    @staticmethod
    async def topic_of(broker: Broker, topics: TopicManager) -> Topic:
        """Return the topic of all shards' streams; it is made at the first start."""
        name = TopicName(DEFAULT_NAMESPACE, DELAYS_TOPIC)
        return await internal_topic(topics, name, broker.placement.shard_count, _CONFIGS)

    @property
    def size_bytes(self) -> int:
        """Bytes that the stream takes."""
        return self._broker.size_bytes(self.partition)

    @property
    def is_rewriting(self) -> bool:
        """Whether live entries are being appended again."""
        return self._rewrite is not None

    async def quiet(self) -> None:
        """Wait until no live entries are being appended again."""
        if self._rewrite is not None:
            await asyncio.wait([self._rewrite])

    async def load(self, home_of: HomeOf) -> int:
        """Read delayed messages into the state; return the highest number ever given.

        Messages of deleted topics are dropped. Errors: ``StorageUnavailable``;
        ``CorruptBatch``, when the stored entries cannot be read.
        """
        highest = 0
        homes: dict[tuple[bytes, int], int | None] = {}
        start = offset = self.partition.log_start_offset
        while offset < self.partition.high_watermark:
            for batch in await self.read(offset):
                self._broker.stored.check(self.partition, batch)
                for at, value in values_of(batch):
                    if at >= start:
                        highest = max(highest, self._apply(at, value, home_of, homes))
                offset = parse_batch_header(batch).last_offset + 1
            await asyncio.sleep(0)  # The loop serves others while much is loaded.
        self.state.loaded()
        return highest

    def _apply(
        self,
        offset: int,
        value: bytes,
        home_of: HomeOf,
        homes: dict[tuple[bytes, int], int | None],
    ) -> int:
        """Apply one stored entry; return the highest number that it names as given, or 0."""
        state = self.state
        if is_waiting(value):
            due_unix_ms, waiting_number, uuid, partition_number, *_ = parse_waiting(value)
            run_count = count_of(value)
            target = uuid, partition_number
            if target not in homes:
                homes[target] = home_of(uuid, partition_number)
            home = homes[target]
            if home is not None:
                if home != self.partition.number:
                    self.misplaced[waiting_number] = home
                size_bytes = len(value) + ENTRY_OVERHEAD_BYTES
                state.add(due_unix_ms, waiting_number, uuid, offset, size_bytes, run_count)
            return waiting_number + max(run_count - 1, 0)
        entry = decode_other(value)
        if isinstance(entry, Purged):
            state.purge(*entry)
            # What is given later, maybe by another node, must not be taken for purged.
            return entry.below - 1 if entry.below < NUMBER_MAX else 0
        if isinstance(entry, Ended):
            self._remove(entry.firsts)
        else:
            self._remove([number for number in entry if not self._remove_of_run(number)])
        return 0

    def _remove(self, numbers: Sequence[int]) -> None:
        state = self.state
        found = [(number, state.remove(number)) for number in numbers]
        state.settled(
            [(number, location) for number, location in found if location is not None]
        )

    def _remove_of_run(self, number: int) -> bool:
        """Remove a message of a run, and the run with its last one; False if it has no run."""
        state = self.state
        run = state.runs.of(number) if state.runs else None
        if run is None:
            return False
        location = state.find(run.first)
        if location is not None and number not in run.gone:
            run.gone |= {number}
            state.settle_part(run, 1, location)
            if not run.left:
                self._remove([run.first])
        return True

    async def read(self, offset: int) -> Sequence[Buffer]:
        """Return batches from an offset on. Errors: as ``Broker.read_disk``."""
        batches = self._broker.read(self.partition, offset, bytes_max=_READ_BYTES)
        if batches is None:
            batches = await self._broker.read_disk(
                self.partition, offset, bytes_max=_READ_BYTES
            )
        return batches

    def start(self) -> None:
        """Keep the stream small from now on."""
        self._timer = self._loop.call_later(CHECK_S, self._check)

    def close(self) -> None:
        """Stop the upkeep of the stream."""
        if self._timer is not None:
            self._timer.cancel()
        if self._rewrite is not None:
            self._rewrite.cancel()

    # --- keeping small

    def _check(self) -> None:
        self._timer = self._loop.call_later(CHECK_S, self._check)
        self.keep_small()

    def keep_small(self) -> None:
        """Truncate the finished front; start to append live entries again if they keep too much."""
        self._cut_off()
        bound = 2 * self.state.live_bytes + self._room_bytes
        if self._rewrite is None and self.size_bytes > bound:
            self._rewrite = self._loop.create_task(self._append_again())
            self._rewrite.add_done_callback(self._rewritten)

    def _cut_off(self) -> None:
        """Truncate the front. Not called within an ``on_done``: others of its append may follow."""
        partition = self.partition
        lowest = self.state.lowest_offset
        offset = partition.high_watermark if lowest is None else lowest
        if offset > partition.log_start_offset:
            self._broker.truncate_before(partition, offset, _ignore)

    def _rewritten(self, task: asyncio.Task[None]) -> None:
        self._rewrite = None
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, GatewayError):  # tried again at the next look
            log.warning("delayed messages not rewritten", error=str(error))
        elif error is not None:
            raise error
        else:
            self.rewrites += 1

    async def _append_again(self) -> None:
        """Append live entries of the oldest part again, until the stream is small enough."""
        end = self.partition.high_watermark  # what is on its way cannot be read yet
        offset = self.partition.log_start_offset
        while offset < end and self.size_bytes > 2 * self.state.live_bytes:
            for batch in await self.read(max(offset, self.partition.log_start_offset)):
                header = parse_batch_header(batch)
                if header.base_offset >= end:
                    return
                live = self.live_in(batch)
                if live:
                    await self._append(live)
                offset = header.last_offset + 1
            self._cut_off()
            await asyncio.sleep(0)

    def live_in(self, batch: Buffer) -> list[tuple[int, MessageLocation, bytes]]:
        """Return number, location and entry of the messages of a batch that wait."""
        live = []
        for offset, value in values_of(batch):
            if not is_waiting(value):
                continue
            number = parse_waiting(value)[1]
            location = self.state.find(number)
            if location is None:
                self.state.drop_purged(number, offset)
            elif location[0] == offset:
                live.append((number, location, value))
        return live

    def gone_of(self, live: list[tuple[int, MessageLocation, bytes]]) -> list[bytes]:
        """Return the entries that remove the cancelled messages of rewritten runs."""
        runs = self.state.runs
        found = [runs.get(number) for number, _, _ in live] if runs else []
        return [encode_removed(sorted(run.gone)) for run in found if run and run.gone]

    async def _append(self, live: list[tuple[int, MessageLocation, bytes]]) -> None:
        """Append entries again and update their locations. Error: ``StorageUnavailable``."""
        done: asyncio.Future[None] = self._loop.create_future()
        values = [value for _, _, value in live] + self.gone_of(live)
        writes = entry_writes(self.partition, values, self.clock.unix_ms())

        def on_done(error: StorageUnavailable | None) -> None:
            if error is None:
                self._moved(live, writes[0].base_offset)
            if done.cancelled():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        self._broker.append(writes, on_done, reserved=True)
        await done

    def _moved(self, live: list[tuple[int, MessageLocation, bytes]], base_offset: int) -> None:
        for offset, (number, location, _) in enumerate(live, start=base_offset):
            if self.state.find(number) == location:  # else it is on its way, or gone
                self.state.move(number, location, offset)


def _ignore(_error: StorageUnavailable | None) -> None:
    """Ignore the result of a truncation: without it the next start only reads more."""
