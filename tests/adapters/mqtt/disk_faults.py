"""Disks that are full, or slow to read, under a running endpoint."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence

import pytest

from gateway.errors import StorageFull
from gateway.model import Buffer
from gateway.storage import Entry, OnDone
from tests.adapters.mqtt.restartable_node import RestartableNode

RARELY = {"session": {"checkpoint_ms": 3_600_000}}  # a test says when


@contextlib.contextmanager
def full_disk(one: RestartableNode) -> Iterator[None]:
    """Refuse every append, those that have a reserve too."""
    storage = one.live.storage
    roomy = storage._config
    storage._config = roomy.model_copy(update={"bytes_max": 0})
    try:
        yield
    finally:
        storage._config = roomy


@contextlib.contextmanager
def no_room_for(one: RestartableNode, data: bytes) -> Iterator[list[bytes]]:
    """Refuse appends that have these bytes; yield what was refused."""
    storage = one.live.storage
    enqueue = storage.enqueue
    refused: list[bytes] = []

    def picky(entries: Sequence[Entry], on_done: OnDone, *, reserved: bool = False) -> None:
        found = [bytes(entry.batch) for entry in entries if data in bytes(entry.batch)]
        refused.extend(found)
        if found:
            raise StorageFull("no room for that")
        enqueue(entries, on_done, reserved=reserved)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "enqueue", picky)
        yield refused


class SlowReads:
    """Nothing is cached: reads wait until they are let go."""

    def __init__(self, one: RestartableNode, monkeypatch: pytest.MonkeyPatch) -> None:
        storage = one.live.storage
        self._cached = storage.read_cached
        self.started = asyncio.Event()
        self.go = asyncio.Event()
        monkeypatch.setattr(storage, "read_cached", self._not_cached)
        monkeypatch.setattr(storage, "read", self._read)

    def _not_cached(self, *_args: int, bytes_max: int) -> None:
        """Say that it is on the disk only."""

    async def _read(
        self, partition_id: int, start: int, end: int, *, bytes_max: int
    ) -> list[Buffer]:
        self.started.set()
        await self.go.wait()
        return self._cached(partition_id, start, end, bytes_max=bytes_max) or []
