"""Records of transfers for partitions in memory, where memory has no room for them now.

What a transfer has for other partitions does not wait: it is applied, and these records follow when
there is room. Until then they are in memory here, and end with the process as what is in their
partition does. The wait is bounded in time and in bytes; what is above is dropped, and counted.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

import structlog

from gateway.broker import Broker
from gateway.coalescer import Coalescer, Part
from gateway.errors import GatewayError, Overloaded, StorageUnavailable
from gateway.partition import Partition
from gateway.records.record_run import Run

WAITING_BYTES_MAX: Final = 4 * 1024 * 1024
TRIES_MAX: Final = 20  # without any progress: about 80 s
RETRY_S: Final = 0.2
RETRY_S_MAX: Final = 5.0

_log = structlog.get_logger()


class WaitingForMemory:
    """Runs that wait, by partition and in order. Loop only."""

    def __init__(self, broker: Broker, coalescer: Coalescer) -> None:
        self._broker = broker
        self._coalescer = coalescer
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Partition, deque[Run]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._tries = 0
        self.waiting_bytes = 0
        self.dropped = 0
        """Records dropped since the start."""

    def split(self, parts: Sequence[Part]) -> tuple[list[Part], list[Part]]:
        """Return the parts that have room, and those that must wait."""
        now: list[Part] = []
        later: list[Part] = []
        size_bytes = 0
        for partition, run in parts:
            if not partition.topic.settings.in_memory:
                now.append((partition, run))
                continue
            is_behind = partition in self._waiting or any(partition is one for one, _ in later)
            if is_behind or not self._has_room(size_bytes + run.size_bytes):
                later.append((partition, run))
            else:
                size_bytes += run.size_bytes
                now.append((partition, run))
        return now, later

    def put_off(self, parts: Sequence[Part]) -> None:
        """Append parts when there is room for them."""
        for partition, run in parts:
            if self.waiting_bytes + run.size_bytes > WAITING_BYTES_MAX:
                self._drop(partition, [run])
                continue
            self._waiting.setdefault(partition, deque()).append(run)
            self.waiting_bytes += run.size_bytes
        self._schedule()

    def undo(self, parts: Sequence[Part]) -> None:
        """Forget parts that were put off: their transfer is not applied."""
        for partition, run in parts:
            runs = self._waiting.get(partition, ())
            if run in runs:
                self._take(partition, run)

    def close(self) -> None:
        """Append nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        self._waiting.clear()

    def _has_room(self, size_bytes: int) -> bool:
        try:
            self._broker.memory.check_room(size_bytes)
        except Overloaded:
            return False
        return True

    def _take(self, partition: Partition, run: Run) -> None:
        runs = self._waiting[partition]
        runs.remove(run)
        self.waiting_bytes -= run.size_bytes
        if not runs:
            del self._waiting[partition]

    def _schedule(self) -> None:
        if self._timer is None and self._waiting:
            pause_s = min(RETRY_S * 2**self._tries, RETRY_S_MAX)
            self._timer = self._loop.call_later(pause_s, self._retry)

    def _retry(self) -> None:
        self._timer = None
        self._tries += 1
        for partition in list(self._waiting):
            while (runs := self._waiting.get(partition)) and (
                partition.is_gone or self._has_room(runs[0].size_bytes)
            ):
                run = runs[0]
                self._take(partition, run)
                self._append(partition, run)
                self._tries = 0
        if self._tries >= TRIES_MAX:
            for partition, runs in list(self._waiting.items()):
                self._drop(partition, list(runs))
            self._waiting.clear()
            self.waiting_bytes = self._tries = 0
        self._schedule()

    def _append(self, partition: Partition, run: Run) -> None:
        if partition.is_gone:  # and with it all that it had
            return
        try:
            self._coalescer.add(partition, run, self._note)
        except GatewayError as error:
            _log.warning("transferred records are dropped", error=str(error))

    def _note(self, error: StorageUnavailable | None) -> None:
        if error is not None:
            _log.warning("transferred records are dropped", error=str(error))

    def _drop(self, partition: Partition, runs: Sequence[Run]) -> None:
        count = sum(len(run.values) for run in runs)
        self.dropped += count
        error = f"memory has no room for {count} records of {partition!r}"
        _log.warning("transferred records are dropped", error=error)
