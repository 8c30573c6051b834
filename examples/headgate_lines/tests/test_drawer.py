"""The example's storage keeps the contract of every storage."""

import sqlite3
from collections.abc import Callable
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from gateway.clock import SystemClock
from gateway.errors import StorageFull, StorageUnavailable
from gateway.model import HEADER_BYTES
from gateway.storage import StorageAdapter
from gateway.testing.storage import Host, StorageContract, append, make_entry, read_all


def new_drawer(data_dir: Path, **settings: int) -> Any:
    """Return the storage as the composition root would make it: found by its entry point."""
    (point,) = entry_points(group="headgate.storage_adapters", name="drawer")
    drawer = point.load()
    return drawer(drawer.Config(**settings), data_dir=data_dir, clock=SystemClock())


class TestDrawer(StorageContract):
    append_bytes_max = 1 << 20

    def new_storage(self, data_dir: Path) -> StorageAdapter:
        storage: StorageAdapter = new_drawer(data_dir, append_bytes_max=(1 << 20) - 1)
        return storage

    def new_breakable(self, data_dir: Path) -> tuple[StorageAdapter, Callable[[], None]]:
        """See ``StorageContract``; what fails is the database."""
        storage = new_drawer(data_dir)
        lose = partial(
            storage._thread.submit, lambda: storage._sql.execute("DROP TABLE batches")
        )
        return storage, lose


async def test_a_second_process_is_kept_out(tmp_path: Path) -> None:
    first, second = new_drawer(tmp_path), new_drawer(tmp_path)
    await first.open(Host())
    with pytest.raises(StorageUnavailable, match="database is locked"):
        await second.open(Host())
    await second.close()
    await first.close()


async def test_a_full_drawer_refuses_before_anything_is_done(tmp_path: Path) -> None:
    storage = new_drawer(tmp_path, stored_bytes_max=1 << 20)
    await storage.open(Host())
    await append(storage, make_entry((1, 0), size_bytes=(1 << 20) - 50))
    with pytest.raises(StorageFull):
        storage.enqueue([make_entry((1, 1))], lambda _: None)
    assert storage.bounds(1).end == 1
    storage.enqueue([make_entry((1, 1))], lambda _: None, reserved=True)
    await storage.close()


async def test_a_failed_commit_acknowledges_nothing_and_stops_the_node(tmp_path: Path) -> None:
    storage, host = new_drawer(tmp_path), Host()
    await storage.open(host)
    await append(storage, make_entry((1, 0)))
    await storage._in_thread(lambda: storage._sql.execute("DROP TABLE batches"))
    with pytest.raises(StorageUnavailable, match="no such table"):
        await append(storage, make_entry((1, 1)))
    assert len(host.faults) == 1
    with pytest.raises(StorageUnavailable):
        storage.enqueue([make_entry((1, 2))], lambda _: None)
    await storage.close()


async def test_what_the_file_holds_is_the_batch_itself(tmp_path: Path) -> None:
    storage = new_drawer(tmp_path)
    await storage.open(Host())
    entry = make_entry([(1, 0), (2, 9)])
    await append(storage, entry)
    (other,) = await read_all(storage, 2)
    await storage.close()
    with sqlite3.connect(tmp_path / "drawer.sqlite") as sql:
        rows = sql.execute("SELECT batch FROM batches ORDER BY partition_id").fetchall()
    sql.close()
    assert rows == [(entry.batch,), (other,)]
    assert other[HEADER_BYTES:] == entry.batch[HEADER_BYTES:]
