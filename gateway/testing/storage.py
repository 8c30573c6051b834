"""StorageContract: the suite that every storage passes; a subclass says how to open its own."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from gateway.errors import RunTooLarge, StorageUnavailable
from gateway.storage import Bounds, Entry, StorageAdapter, Target
from gateway.testing.callback_order import Calls
from gateway.testing.entries import make_batch, make_entry, make_marker
from gateway.testing.storage_calls import (
    ALL,
    Host,
    append,
    delete,
    offsets_of,
    read_all,
    truncate,
)
from gateway.testing.storage_restarts import StorageRestartContract

__all__ = [
    "ALL",
    "Host",
    "StorageContract",
    "append",
    "delete",
    "make_batch",
    "make_entry",
    "make_marker",
    "offsets_of",
    "read_all",
    "truncate",
]


def _note(finished: list[int], number: int, error: StorageUnavailable | None) -> None:
    assert error is None
    finished.append(number)


@pytest.mark.asyncio
class StorageContract(StorageRestartContract):
    """The suite. ``append_bytes_max``: an append above it is too large for the storage."""

    append_bytes_max = 2 * 1024 * 1024

    async def test_new_partition_is_empty(self, storage: StorageAdapter) -> None:
        assert storage.bounds(7) == Bounds(0, 0)
        assert await read_all(storage, 7) == []
        assert storage.size_bytes(7) == 0
        assert storage.offset_for_size(7, 10) == 0
        assert storage.end_offset_for_epoch(7, 5) == (-1, -1)
        assert await storage.base_offset_for_time(7, 0) is None

    async def test_what_is_appended_is_read(self, storage: StorageAdapter) -> None:
        first, second = make_entry((7, 0), 3), make_entry((7, 3), size_bytes=200)

        await append(storage, first)
        await append(storage, second)

        assert await read_all(storage, 7) == [first.batch, second.batch]
        assert storage.bounds(7) == Bounds(0, 4)
        assert storage.size_bytes(7) == 300

    async def test_partitions_do_not_mix(self, storage: StorageAdapter) -> None:
        entries = [make_entry((1, 0), size_bytes=90), make_entry((2, 0), size_bytes=110)]

        await append(storage, *entries)

        assert await read_all(storage, 1) == [entries[0].batch]
        assert await read_all(storage, 2) == [entries[1].batch]

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    async def test_any_bytes_are_taken(self, storage: StorageAdapter, kind: type) -> None:
        entry = make_entry((1, 0))

        await append(storage, entry._replace(batch=kind(entry.batch)))

        assert await read_all(storage, 1) == [entry.batch]

    async def test_read_starts_with_the_batch_that_holds_the_offset(
        self, storage: StorageAdapter
    ) -> None:
        for base_offset in (0, 10, 20):
            await append(storage, make_entry((1, base_offset), 10))

        assert offsets_of(await read_all(storage, 1, start=9)) == [0, 10, 20]
        assert offsets_of(await read_all(storage, 1, start=10)) == [10, 20]
        assert offsets_of(await read_all(storage, 1, start=29)) == [20]
        assert await read_all(storage, 1, start=30) == []

    async def test_no_batch_begins_at_the_end(self, storage: StorageAdapter) -> None:
        for base_offset in (0, 10, 20):
            await append(storage, make_entry((1, base_offset), 10))

        assert offsets_of(await read_all(storage, 1, end=20)) == [0, 10]
        assert offsets_of(await read_all(storage, 1, end=21)) == [0, 10, 20]
        assert await read_all(storage, 1, start=5, end=5) == []

    async def test_one_batch_is_read_above_the_limit(self, storage: StorageAdapter) -> None:
        for base_offset in (0, 1, 2):
            await append(storage, make_entry((1, base_offset), size_bytes=100))

        async def count(bytes_max: int) -> int:
            return len(await storage.read(1, 0, ALL, bytes_max=bytes_max))

        assert [await count(n) for n in (1, 199, 200, 299, 300)] == [1, 1, 2, 2, 3]

    async def test_other_targets_get_their_own_base_offset(
        self, storage: StorageAdapter
    ) -> None:
        await append(storage, make_entry((2, 0), 5))
        await append(storage, make_entry([(1, 0), (2, 5), (3, 0)], 2, epoch=4))

        assert await read_all(storage, 1) == [make_batch(0, 2, epoch=4)]
        there = await read_all(storage, 2, start=5)
        assert offsets_of(there) == [5]
        assert there[0][8:] == make_batch(0, 2, epoch=4)[8:]
        assert storage.bounds(3) == Bounds(0, 2)
        assert storage.size_bytes(3) == 100

    async def test_bounds_count_what_is_enqueued_and_reads_do_not(
        self, storage: StorageAdapter
    ) -> None:
        done = asyncio.get_running_loop().create_future()

        storage.enqueue([make_entry((1, 0), 3)], done.set_result)

        assert storage.bounds(1) == Bounds(0, 3)
        assert not done.done()
        assert storage.queued_bytes > 0
        assert storage.read_cached(1, 0, ALL, bytes_max=ALL) == []
        await done
        assert storage.queued_bytes == 0

    async def test_appends_are_done_in_order(self, storage: StorageAdapter) -> None:
        finished: list[int] = []
        done = asyncio.get_running_loop().create_future()

        for base_offset in range(5):
            on_done = partial(_note, finished, base_offset)
            storage.enqueue([make_entry((1, base_offset))], on_done)
        storage.enqueue([make_entry((2, 0))], done.set_result)
        await done

        assert finished == [0, 1, 2, 3, 4]

    async def test_no_callback_runs_within_a_call(self, tmp_path: Path) -> None:
        """Not those of other calls either, also where a call finds that the medium fails."""
        storage, break_medium = self.new_breakable(tmp_path)
        await storage.open(self.new_host(tmp_path))
        calls = Calls(storage)
        calls.append_many(20)
        await calls.all_told()
        break_medium()
        calls.append_many(80)
        calls.make(lambda on_done: storage.truncate_before(1, 5, on_done))
        calls.make(lambda on_done: storage.delete([9], on_done))
        await calls.all_told()
        await storage.close()

        assert calls.told_within == []
        assert sorted(calls.told) == list(range(calls.taken_count))
        assert storage.queued_bytes == 0

    async def test_too_large_an_append_changes_nothing(self, storage: StorageAdapter) -> None:
        sequence = storage.next_sequence

        with pytest.raises(RunTooLarge):
            storage.enqueue(
                [make_entry((1, 0), size_bytes=self.append_bytes_max)], lambda _: None
            )

        assert storage.bounds(1) == Bounds(0, 0)
        assert storage.next_sequence == sequence
        await append(storage, make_entry((1, 0)))

    async def test_truncation_moves_the_start(self, storage: StorageAdapter) -> None:
        for base_offset in (0, 10, 20):
            await append(storage, make_entry((1, base_offset), 10))

        await truncate(storage, 1, 15)

        assert storage.bounds(1) == Bounds(15, 30)
        assert offsets_of(await read_all(storage, 1)) == [10, 20]
        assert storage.size_bytes(1) == 200

    async def test_start_never_goes_back_nor_behind_the_end(
        self, storage: StorageAdapter
    ) -> None:
        await append(storage, make_entry((1, 0), 10))

        await truncate(storage, 1, 5)
        await truncate(storage, 1, 3)
        assert storage.bounds(1) == Bounds(5, 10)
        await truncate(storage, 1, 99)
        assert storage.bounds(1) == Bounds(10, 10)

    async def test_offsets_go_on_when_all_is_truncated(self, storage: StorageAdapter) -> None:
        await append(storage, make_entry((1, 0), 10))
        await truncate(storage, 1, 10)
        assert await read_all(storage, 1) == []

        await append(storage, make_entry((1, 10), 2))

        assert offsets_of(await read_all(storage, 1)) == [10]
        assert storage.bounds(1) == Bounds(10, 12)

    async def test_deleted_partition_is_forgotten(self, storage: StorageAdapter) -> None:
        await append(storage, make_entry((1, 0)), make_entry((2, 0)), make_entry((3, 0)))

        await delete(storage, 1, 3)

        assert storage.bounds(1) == Bounds(0, 0)
        assert await read_all(storage, 3) == []
        assert storage.size_bytes(3) == 0
        assert len(await read_all(storage, 2)) == 1

    async def test_time_finds_the_first_batch_that_reaches_it(
        self, storage: StorageAdapter
    ) -> None:
        for base_offset, timestamp_unix_ms in enumerate((100, 300, 200, 400)):
            entry = make_entry((1, base_offset), timestamp_unix_ms=timestamp_unix_ms)
            await append(storage, entry)

        async def find(timestamp_unix_ms: int) -> int | None:
            return await storage.base_offset_for_time(1, timestamp_unix_ms)

        found = [await find(t) for t in (0, 100, 101, 300, 301, 400, 401)]
        assert found == [0, 0, 1, 1, 3, 3, None]

    async def test_time_is_not_looked_for_below_the_start(
        self, storage: StorageAdapter
    ) -> None:
        for base_offset, timestamp_unix_ms in enumerate((900, 100, 200)):
            entry = make_entry((1, base_offset), timestamp_unix_ms=timestamp_unix_ms)
            await append(storage, entry)

        await truncate(storage, 1, 1)

        assert await storage.base_offset_for_time(1, 150) == 2
        assert await storage.base_offset_for_time(1, 250) is None

    async def test_offset_for_size(self, storage: StorageAdapter) -> None:
        for base_offset in (0, 10, 20):
            await append(storage, make_entry((1, base_offset), 10, size_bytes=100))

        sizes = (0, 99, 100, 199, 200, 299, 300, 1_000)
        found = [storage.offset_for_size(1, size) for size in sizes]
        assert found == [30, 30, 20, 20, 10, 10, 0, 0]

    async def test_epochs_end_where_the_next_begins(self, storage: StorageAdapter) -> None:
        for base_offset, epoch in enumerate((2, 2, 5, 5, 7)):
            await append(storage, make_entry((1, base_offset), epoch=epoch))

        found = [storage.end_offset_for_epoch(1, epoch) for epoch in (1, 2, 4, 5, 6, 7, 9)]
        assert found == [(1, 0), (2, 2), (2, 2), (5, 4), (5, 4), (7, 5), (7, 5)]

    async def test_epoch_below_the_start_ends_there(self, storage: StorageAdapter) -> None:
        for base_offset, epoch in enumerate((2, 2, 5, 5, 7)):
            await append(storage, make_entry((1, base_offset), epoch=epoch))

        await truncate(storage, 1, 3)

        assert storage.end_offset_for_epoch(1, 2) == (2, 3)  # KIP-101
        assert storage.end_offset_for_epoch(1, 5) == (5, 4)

    async def test_one_append_to_partitions_of_different_leader_epochs(
        self, storage: StorageAdapter
    ) -> None:
        await append(
            storage,
            Entry((Target(1, 0), Target(2, 0)), make_marker(0, epoch=4), 1, 1_000),
            Entry((Target(3, 0),), make_marker(0, epoch=9), 1, 1_000),
        )

        assert [storage.end_offset_for_epoch(i, 9)[0] for i in (1, 2, 3)] == [4, 4, 9]
        assert await read_all(storage, 2) == [make_marker(0, epoch=4)]
        assert await read_all(storage, 3) == [make_marker(0, epoch=9)]
