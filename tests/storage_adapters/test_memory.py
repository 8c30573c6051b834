"""The memory storage keeps the contract; what a restart keeps, it keeps in the object."""

from pathlib import Path

import pytest

from gateway.clock import ManualClock
from gateway.errors import StorageFull
from gateway.storage import StorageAdapter
from storage_adapters.memory import MemoryConfig, MemoryStorage
from tests.contracts.storage import (
    CompactingStorageContract,
    Host,
    append,
    make_entry,
    truncate,
)


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
