"""The memory storage keeps the contract; what a restart keeps, it keeps in the object."""

import asyncio
from pathlib import Path

import pytest

from gateway.clock import ManualClock
from gateway.errors import StorageFull
from gateway.model import Buffer, parse_batch_header
from gateway.storage import Bounds, StorageAdapter
from gateway.testing.compacting_storage import CompactingStorageContract
from gateway.testing.storage import (
    Host,
    append,
    delete,
    make_entry,
    read_all,
    truncate,
)
from storage_adapters.memory import MemoryConfig, MemoryStorage
from storage_adapters.memory_batches import REWRITE_BYTES


def new_memory(data_dir: Path, config: MemoryConfig | None = None) -> MemoryStorage:
    return MemoryStorage(config or MemoryConfig(), data_dir=data_dir, clock=ManualClock())


class TestMemory(CompactingStorageContract):
    def new_storage(self, data_dir: Path) -> StorageAdapter:
        return new_memory(data_dir, MemoryConfig(append_bytes_max=self.append_bytes_max - 1))

    async def reopen(self, storage: StorageAdapter, data_dir: Path) -> StorageAdapter:
        del data_dir
        await storage.close()
        await storage.open(Host())
        return storage


async def test_full_memory_refuses_and_truncation_makes_room(tmp_path: Path) -> None:
    config = MemoryConfig(bytes_max=1_048_576, reserve_bytes=100_000)
    storage = new_memory(tmp_path, config)
    await storage.open(Host())
    await append(storage, make_entry((1, 0), size_bytes=900_000))

    with pytest.raises(StorageFull):
        storage.enqueue([make_entry((1, 1), size_bytes=60_000)], lambda _: None)
    storage.enqueue([make_entry((2, 0), size_bytes=60_000)], lambda _: None, reserved=True)
    await truncate(storage, 1, 1)

    await append(storage, make_entry((1, 1), size_bytes=500_000))
    await storage.close()


async def test_rewriting_gives_others_their_turn(tmp_path: Path) -> None:
    storage = new_memory(tmp_path)
    await storage.open(Host())
    for offset in range(40):
        await append(storage, make_entry((1, offset), size_bytes=REWRITE_BYTES // 2))
    seen: list[Bounds] = []

    def keep(batch: Buffer) -> Buffer | None:
        seen.append(storage.bounds(1))
        return batch if parse_batch_header(batch).base_offset % 2 else None

    rewriting = asyncio.create_task(storage.rewrite(1, 40, keep))
    await append(storage, make_entry((1, 40)))
    await truncate(storage, 1, 3)
    done = await rewriting

    assert seen[0] == Bounds(0, 41)
    assert seen[-1] == Bounds(3, 41)
    assert done.upto_offset == 40
    kept = [parse_batch_header(batch).base_offset for batch in await read_all(storage, 1)]
    assert kept == [*range(3, 40, 2), 40]
    assert storage.disk_usage().log_bytes == storage.size_bytes(1)


async def test_rewriting_ends_with_its_partition(tmp_path: Path) -> None:
    storage = new_memory(tmp_path)
    await storage.open(Host())
    for offset in range(40):
        await append(storage, make_entry((1, offset), size_bytes=REWRITE_BYTES))
    rewriting = asyncio.create_task(storage.rewrite(1, 40, lambda _: None))
    await delete(storage, 1)
    await rewriting

    assert storage.disk_usage().log_bytes == 0
