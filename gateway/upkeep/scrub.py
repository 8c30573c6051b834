"""Scrub: reads the whole log at a bounded rate, to notice a failing disk early.

A pass goes through all partitions and compares the CRC of every batch. Damaged batches are counted
together with those that readers met (``gateway.records.stored_batches``) and stay as they are. One
pass a day starts by itself; ``headgate log verify --live`` starts one at once.
"""

import asyncio
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import structlog

from gateway.broker import Broker
from gateway.errors import GatewayError, PolicyViolation
from gateway.metrics import Metrics
from gateway.model import Buffer, parse_batch_header
from gateway.partition import Partition
from gateway.records.codec import check_crc
from gateway.topics.manager import Topic, TopicManager

READ_BYTES: Final = 262_144
BETWEEN_S: Final = 86_400.0  # from the end of a pass to the next one's beginning
FIRST_AFTER_S: Final = 600.0  # a start has other things to read
DAMAGES_MAX: Final = 1_000  # that a pass tells one by one

_log = structlog.get_logger()


class Damage(NamedTuple):
    """Damaged batch, or an unreadable place."""

    topic: str
    partition: int
    offset: int
    what: str


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
        self._ended.clear()

    async def _run(self) -> None:
        pause_s = FIRST_AFTER_S
        while True:
            await self._until_due(pause_s)
            if self.state is ScrubState.IDLE:
                self._pass_bytes_per_s = self._bytes_per_s
                self._begin()
            try:
                await self.run_once()
            except GatewayError as error:
                self.error = str(error)
                _log.warning("scrub ended early", error=self.error)
            finally:
                self.state = ScrubState.IDLE
                self._ended.set()
            pause_s = BETWEEN_S

    async def _until_due(self, pause_s: float) -> None:
        """Wait for a requested pass, or for the next periodic one."""
        asked = asyncio.ensure_future(self._asked.wait())
        try:
            await asyncio.wait([asked], timeout=pause_s if self._bytes_per_s else None)
        finally:
            asked.cancel()
        self._asked.clear()

    async def run_once(self) -> None:
        """Run one pass over all partitions."""
        for topic in self._topics.everything():
            for number in range(len(topic.partition_ids)):
                if self._topics.by_uuid(topic.uuid) is not topic:
                    break  # deleted while others had their turn
                await self._scrub(topic, number)
        self.passes += 1

    async def _scrub(self, topic: Topic, number: int) -> None:
        partition = self._broker.partition(topic, number)
        storage, partition_id = self._broker.storage, partition.partition_id
        offset = partition.log_start_offset
        while not partition.is_gone and offset < partition.high_watermark:
            offset = max(offset, partition.log_start_offset)
            end = partition.high_watermark
            try:
                batches = await storage.read(partition_id, offset, end, bytes_max=READ_BYTES)
            except GatewayError as error:
                self._note(partition, offset, str(error))
                return
            if not batches:
                return
            damaged, offset = await asyncio.to_thread(_damaged, batches, offset, end)
            for base_offset in damaged:
                self._note(partition, base_offset, "the CRC of the batch does not match")
            await self._pace(batches)

    async def _pace(self, batches: Sequence[Buffer]) -> None:
        size_bytes = sum(map(len, batches))
        self.checked_bytes += size_bytes
        self.pass_bytes += size_bytes
        await asyncio.sleep(size_bytes / self._pass_bytes_per_s)

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
