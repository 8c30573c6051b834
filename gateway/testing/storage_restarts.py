"""Tests of the storage contract that stop a storage, and start it again on the same data."""

from collections.abc import Callable
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.errors import StorageUnavailable
from gateway.model import HEADER_BYTES, unpack_batch_header
from gateway.storage import Bounds, Entry, StorageAdapter, Target
from gateway.testing.entries import make_batch, make_entry, make_marker
from gateway.testing.storage_calls import Host, append, delete, read_all, truncate


@pytest.mark.asyncio
class StorageRestartContract:
    """Stops and starts, and the headers that a start scans; the base of ``StorageContract``."""

    def new_storage(self, data_dir: Path) -> StorageAdapter:
        raise NotImplementedError

    def new_host(self, data_dir: Path) -> Host:
        del data_dir
        return Host()

    def new_breakable(self, data_dir: Path) -> tuple[StorageAdapter, Callable[[], None]]:
        """Return a storage, and what has its medium fail from then on, where it has one."""
        return self.new_storage(data_dir), lambda: None

    @pytest_asyncio.fixture
    async def storage(self, tmp_path: Path):  # type: ignore[no-untyped-def]  # noqa: ANN201
        storage = self.new_storage(tmp_path)
        await storage.open(self.new_host(tmp_path))
        yield storage
        await storage.close()

    async def reopen(self, storage: StorageAdapter, data_dir: Path) -> StorageAdapter:
        """Stop and start again on the same data."""
        await storage.close()
        storage = self.new_storage(data_dir)
        await storage.open(self.new_host(data_dir))
        return storage

    async def test_closed_storage_takes_nothing(self, tmp_path: Path) -> None:
        storage = self.new_storage(tmp_path)
        await storage.open(self.new_host(tmp_path))
        await storage.close()

        with pytest.raises(StorageUnavailable):
            storage.enqueue([make_entry((1, 0))], lambda _: None)
        with pytest.raises(StorageUnavailable):
            storage.truncate_before(1, 0, lambda _: None)

    async def test_closing_waits_for_what_is_enqueued(self, tmp_path: Path) -> None:
        storage = self.new_storage(tmp_path)
        await storage.open(self.new_host(tmp_path))
        answers: list[StorageUnavailable | None] = []

        storage.enqueue([make_entry((1, 0))], answers.append)
        await storage.close()

        assert answers == [None]

    async def test_sequences_and_incarnations_grow(self, tmp_path: Path) -> None:
        storage = self.new_storage(tmp_path)
        await storage.open(self.new_host(tmp_path))
        before = storage.next_sequence, storage.incarnation
        await append(storage, make_entry((1, 0)), make_entry((2, 0)))
        assert storage.next_sequence >= before[0] + 2

        after = storage.next_sequence
        storage = await self.reopen(storage, tmp_path)

        assert storage.next_sequence >= after
        assert storage.incarnation == before[1] + 1
        await storage.close()

    async def test_everything_is_there_after_a_restart(self, tmp_path: Path) -> None:
        storage = self.new_storage(tmp_path)
        await storage.open(self.new_host(tmp_path))
        shared = make_entry([(1, 0), (2, 0)], 5, timestamp_unix_ms=500)
        await append(storage, shared, make_entry((3, 0), 2))
        await append(storage, make_entry((1, 5), epoch=9))
        await truncate(storage, 2, 4)
        await delete(storage, 3)

        storage = await self.reopen(storage, tmp_path)

        assert storage.bounds(1) == Bounds(0, 6)
        assert storage.bounds(2) == Bounds(4, 5)
        assert storage.bounds(3) == Bounds(0, 0)
        assert await read_all(storage, 1) == [shared.batch, make_batch(5, epoch=9)]
        assert storage.end_offset_for_epoch(1, 3) == (1, 5)
        assert await storage.base_offset_for_time(2, 400) == 0
        assert storage.size_bytes(1) == 200
        await storage.close()

    async def test_scan_tells_all_batches_from_a_sequence_on(self, tmp_path: Path) -> None:
        storage = self.new_storage(tmp_path)
        await storage.open(self.new_host(tmp_path))
        await append(storage, make_entry((1, 0), 5))
        sequence = storage.next_sequence
        second, third = make_entry([(1, 5), (2, 0)]), make_entry((1, 6))
        await append(storage, second, third)

        storage = await self.reopen(storage, tmp_path)

        assert len(list(storage.scan(0))) == 3
        found = list(storage.scan(sequence))
        assert [header.targets for header in found] == [second.targets, third.targets]
        assert [header.header for header in found] == [
            bytes(entry.batch[:HEADER_BYTES]) for entry in (second, third)
        ]
        assert sequence <= found[0].sequence < found[1].sequence < storage.next_sequence
        await storage.close()

    async def test_scan_tells_how_a_transaction_ended(self, tmp_path: Path) -> None:
        storage = self.new_storage(tmp_path)
        await storage.open(self.new_host(tmp_path))
        aborted, committed = make_marker(1, is_abort=True), make_marker(2)
        await append(storage, make_entry((1, 0)))
        await append(storage, Entry((Target(1, 1), Target(2, 0)), aborted, 1, 1_000))
        await append(storage, Entry((Target(1, 2),), committed, 1, 1_000))

        storage = await self.reopen(storage, tmp_path)

        found = list(storage.scan(0))
        assert [header.is_abort for header in found] == [False, True, False]
        controls = [unpack_batch_header(header.header).is_control for header in found]
        assert controls == [False, True, True]
        assert await read_all(storage, 1, start=1) == [aborted, committed]
        assert await read_all(storage, 2) == [make_marker(0, is_abort=True)]
        await storage.close()
