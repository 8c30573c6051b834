"""Scrub: reads the whole log at a bounded rate, to notice a failing disk early.

A pass goes through all partitions and compares the CRC of every batch. Damaged batches are counted
together with those that readers met (``gateway.records.stored_batches``) and stay as they are. What
the storage cannot read at the moment is no damage: it is read again at the end of the pass, and
reported if that fails, too. One pass a day starts by itself; ``headgate log verify --live`` starts
one at once.
"""

import asyncio
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import structlog

from gateway.broker import Broker
from gateway.errors import (
    GatewayError,
    PolicyViolation,
    StorageUnavailable,
    StoredDataDamaged,
)
from gateway.metrics import Metrics
from gateway.model import Buffer, parse_batch_header
from gateway.partition import Partition
from gateway.records.codec import check_crc
from gateway.topics.manager import TopicManager

READ_BYTES: Final = 262_144
BETWEEN_S: Final = 86_400.0  # from the end of a pass to the next one's beginning
AGAIN_AFTER_S: Final = 600.0  # a pass that could not read all; also the first pass
RETRY_PAUSES_S: Final = (5.0, 10.0, 20.0)  # before what could not be read is read again
UNREAD_MAX: Final = 10  # partitions; then the storage is away, and the pass ends
DAMAGES_MAX: Final = 1_000  # that a pass tells one by one

_log = structlog.get_logger()


class Damage(NamedTuple):
    """Damaged batch."""

    topic: str
    partition: int
    offset: int
    what: str


class Unread(NamedTuple):
    """Partition that the storage could not read from an offset on."""

    topic: str
    partition: int
    offset: int
    error: str


class ScrubState(StrEnum):
    """State of a pass."""

    IDLE = "idle"
    RUNNING = "running"


class Scrub:
    """Repeated passes over the log. Loop only; checksums are computed in threads."""

    def __init__(self, topics: TopicManager, broker: Broker, bytes_per_s: int) -> None:
        self.state = ScrubState.IDLE
        self.passes = 0
        self.checked_bytes = 0
        self.pass_bytes = 0
        self.damages: list[Damage] = []
        self.damages_count = 0
        self.error = ""
        self._unread: dict[Partition, Unread] = {}
        self._topics = topics
        self._broker = broker
        self._bytes_per_s = bytes_per_s
        self._pass_bytes_per_s = bytes_per_s
        self._asked = asyncio.Event()
        self._ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start, with the first pass later; with a rate of 0, only passes on request."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Stop, also in the middle of a pass."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def begin(self, *, bytes_per_s: int) -> None:
        """Start a pass now, at its own rate. Error: ``PolicyViolation`` while one runs."""
        if self.state is ScrubState.RUNNING:
            raise PolicyViolation("a scrub goes on already")
        self._pass_bytes_per_s = bytes_per_s
        self._begin()
        self._asked.set()

    async def wait(self, seconds_max: float) -> None:
        """Wait for the end of the running pass, at most ``seconds_max``."""
        if self.state is ScrubState.RUNNING:
            ended = asyncio.ensure_future(self._ended.wait())
            await asyncio.wait([ended], timeout=seconds_max)
            ended.cancel()

    @property
    def unread(self) -> list[Unread]:
        """Partitions that the pass could not read to their end so far."""
        return list(self._unread.values())

    def register_metrics(self, metrics: Metrics) -> None:
        """Add its own metrics to the node's."""
        metrics.counter_fn(
            "headgate_scrubbed_bytes",
            "Bytes of batches whose CRC the scrub has checked.",
            lambda: self.checked_bytes,
        )
        metrics.counter_fn(
            "headgate_scrub_passes", "Passes of the scrub over the log.", lambda: self.passes
        )

    def _begin(self) -> None:
        self.state = ScrubState.RUNNING
        self.pass_bytes = self.damages_count = 0
        self.damages = []
        self.error = ""
        self._unread = {}
        self._ended.clear()

    async def _run(self) -> None:
        pause_s = AGAIN_AFTER_S  # a start has other things to read
        while True:
            await self._until_due(pause_s)
            if self.state is ScrubState.IDLE:
                self._pass_bytes_per_s = self._bytes_per_s
                self._begin()
            try:
                await self.run_once()
                pause_s = BETWEEN_S
            except GatewayError as error:
                self.error = str(error)
                _log.warning("scrub ended early", error=self.error)
                pause_s = AGAIN_AFTER_S
            finally:
                self.state = ScrubState.IDLE
                self._ended.set()

    async def _until_due(self, pause_s: float) -> None:
        """Wait for a requested pass, or for the next periodic one."""
        asked = asyncio.ensure_future(self._asked.wait())
        try:
            await asyncio.wait([asked], timeout=pause_s if self._bytes_per_s else None)
        finally:
            asked.cancel()
        self._asked.clear()

    async def run_once(self) -> None:
        """Run one pass over all partitions.

        Error: ``StorageUnavailable`` where a partition could not be read to its end.
        """
        for topic in self._topics.everything():
            for number in range(len(topic.partition_ids)):
                if self._topics.by_uuid(topic.uuid) is not topic:
                    break  # deleted while others had their turn
                if self._broker.owns(topic, number):
                    await self._scrub(self._broker.partition(topic, number))
        for pause_s in RETRY_PAUSES_S:
            if self._unread:
                await asyncio.sleep(pause_s)
                await self._scrub_unread()
        if self._unread:
            raise self._left_unread()
        self.passes += 1

    async def _scrub_unread(self) -> None:
        """Go on with the partitions that could not be read, each where it stopped."""
        for partition, one in list(self._unread.items()):
            del self._unread[partition]
            await self._scrub(partition, one.offset)

    async def _scrub(self, partition: Partition, offset: int = 0) -> None:
        offset = max(offset, partition.log_start_offset)
        while not partition.is_gone and offset < partition.high_watermark:
            offset = max(offset, partition.log_start_offset)
            try:
                offset_before, offset = offset, await self._scrub_run(partition, offset)
            except GatewayError as error:
                self._note_unread(partition, offset, str(error))
                return
            if offset == offset_before:
                return

    async def _scrub_run(self, partition: Partition, offset: int) -> int:
        """Check the batches of one read; return the next offset. Error: ``StorageUnavailable``."""
        end, batches = partition.high_watermark, None
        while batches is None:
            try:
                batches = await self._broker.storage.read(
                    partition.partition_id, offset, end, bytes_max=READ_BYTES
                )
            except StoredDataDamaged as error:
                if error.offset <= offset:
                    self._note(partition, error.offset, str(error))
                    return max(offset + 1, min(error.next_offset, end))
                end = error.offset  # what is before it is read first
        if not batches:
            return offset
        damaged, offset = await asyncio.to_thread(_damaged, batches, offset, end)
        for base_offset in damaged:
            self._note(partition, base_offset, "the CRC of the batch does not match")
        await self._pace(batches)
        return offset

    async def _pace(self, batches: Sequence[Buffer]) -> None:
        size_bytes = sum(map(len, batches))
        self.checked_bytes += size_bytes
        self.pass_bytes += size_bytes
        await asyncio.sleep(size_bytes / self._pass_bytes_per_s)

    def _note_unread(self, partition: Partition, offset: int, error: str) -> None:
        name = partition.topic.name.name
        self._unread[partition] = Unread(name, partition.number, offset, error)
        if len(self._unread) >= UNREAD_MAX:
            raise self._left_unread()

    def _left_unread(self) -> StorageUnavailable:
        one = self.unread[0]
        where = f"{one.topic}-{one.partition} from offset {one.offset} on"
        count = len(self._unread) - 1
        more = f" and {count} more partition(s)" if count else ""
        return StorageUnavailable(f"{where}{more} could not be read: {one.error}")

    def _note(self, partition: Partition, offset: int, what: str) -> None:
        name = partition.topic.name.name
        self._broker.stored.note(name, partition.number, partition.partition_id, offset)
        if self.damages and self.damages[-1][:3] == (name, partition.number, offset):
            return  # read again to find out where it ends
        self.damages_count += 1
        if len(self.damages) < DAMAGES_MAX:
            self.damages.append(Damage(name, partition.number, offset, what))


def _damaged(batches: Iterable[Buffer], offset: int, end: int) -> tuple[list[int], int]:
    """Return the offsets of damaged batches, and the next offset. In a thread."""
    damaged: list[int] = []
    for batch in batches:
        header = None
        try:
            header = parse_batch_header(batch)
            check_crc(batch, header)
        except GatewayError:
            damaged.append(offset if header is None else header.base_offset)
            if header is None or header.record_count != header.last_offset_delta + 1:
                offset += 1  # its own word for where it ends may be what has changed
                continue
        offset = max(offset + 1, min(header.last_offset + 1, end))
    return damaged, offset
